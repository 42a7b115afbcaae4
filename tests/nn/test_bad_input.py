"""Bad input is refused in one sentence with the offending value, before any work."""

import threading

import numpy as np
import pytest
import torch

from torch_goat import set_checks
from torch_goat.nn import GOATConv, RNNAggregation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rnn": "transformer"},
            r"rnn must be one of \['gru', 'lstm', 'mingru', 'minlstm', 'rnn'\] or a factory, got 'transformer'",
        ),
        ({"attention": "dot"}, r"attention must be one of \['gat', 'gatv2'\] or a module, got 'dot'"),
        ({"backend": "tpu"}, "backend must be one of.*'reference', 'torch'.*got 'tpu'"),
        ({"out_channels": 0}, "out_channels must be a whole number of at least 1, got 0"),
        ({"heads": 0}, "heads must be a whole number of at least 1, got 0"),
        ({"heads": 2.5}, r"heads must be a whole number.*, got 2\.5"),
        ({"heads": "2"}, "heads must be a whole number.*, got '2'"),
        ({"heads": True}, "heads must be a whole number.*, got True"),
        ({"concat": False, "head_pooling": "cat"}, "concat=False cannot be combined with head_pooling='cat'"),
        ({"flow": "up"}, "flow must be 'source_to_target' or 'target_to_source', got 'up'"),
        ({"fill_value": "median"}, "fill_value must be 'mean', 'add', 'min', 'max' or 'mul', got 'median'"),
        ({"fill_value": None}, "fill_value must be a finite number, got None"),
        ({"edge_dim": 1.5}, r"edge_dim must be a whole number.*or None, got 1\.5"),
        ({"negative_slope": float("nan")}, "negative_slope must be a finite number, got nan"),
        ({"negative_slope": "0.2"}, "negative_slope must be a finite number, got '0.2'"),
        ({"head_pooling": "max"}, "'cat', 'sum' or 'mean', got 'max'"),
        ({"neighbor_selection": "last"}, "'random' or 'top', got 'last'"),
        ({"max_neighbors": 0}, "at least 1 or None, got 0"),
        ({"max_neighbors": 1.5}, r"max_neighbors must be a whole number.*, got 1\.5"),
        (
            {"max_neighbors": 2**70},
            r"max_neighbors must be a whole number below 2\*\*63 or None, got 1180591620717411303424",
        ),
        ({"dropout": 1.5}, "between 0 and 1, got 1.5"),
        ({"in_channels": (4, 4, 4)}, r"a whole number or a pair of them, got \(4, 4, 4\)"),
        ({"in_channels": 4.0}, r"a whole number or a pair of them, got 4\.0"),
        ({"in_channels": -2}, r"in_channels must be -1, a whole number or a pair of them, got -2"),
        ({"scaling": "sum"}, "scaling must be 'softmax' or 'size', got 'sum'"),
        ({"state_dropout": 1.5}, "state_dropout must lie between 0 and 1, got 1.5"),
        ({"rnn_init": "zero"}, "rnn_init must be 'uniform' or 'orthogonal', got 'zero'"),
        ({"rnn": torch.nn.LSTM, "rnn_init": "orthogonal"}, "a factory draws its own weights"),
    ],
)
def test_bad_options_are_refused(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GOATConv(**({"in_channels": 5, "out_channels": 4} | options))


EDGES = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": torch.ones(3, 4)}, ValueError, "x has 4 channels, but the layer was built for 5"),
        ({"x": torch.ones(3)}, ValueError, r"two dimensions \[rows, channels\], got shape \[3\]"),
        ({"x": torch.ones(3, 5, dtype=torch.long)}, TypeError, "floating point dtype, got torch.int64"),
        ({"x": torch.ones(3, 5).double()}, TypeError, "x is torch.float64, but the weights are torch.float32"),
        ({"x": (torch.ones(3, 5), torch.ones(2, 5).double())}, TypeError, r"x\[1\] \(targets\) is torch.float64, but"),
        ({"x": [[1.0] * 5] * 3}, TypeError, "x must be a tensor or a pair of tensors, got list"),
        ({"x": torch.tensor([[1.0] * 5, [torch.inf] * 5])}, ValueError, "non-finite value in row 1"),
        ({"edge_index": torch.tensor([[0, 7], [1, 2]])}, IndexError, "node 7, but there are 3 nodes"),
        ({"x": (torch.ones(2, 5), torch.ones(3, 5))}, ValueError, "3 targets cannot be the first rows of 2 sources"),
        ({"size": (4, 3)}, ValueError, "size says 4 sources, but x has 3 rows"),
        ({"x": (torch.ones(3, 5), torch.ones(2, 5)), "size": (3, 1)}, ValueError, "size says 1 targets, but x has 2"),
        ({"edge_attr": torch.ones(2, 1)}, ValueError, "without edge features"),
        ({"n_id": torch.arange(4)}, ValueError, r"number the 3 nodes of one set, got shape \[4\]"),
        ({"n_id": [0, 1, 2]}, TypeError, "n_id must be a tensor of int64 node numbers, got list"),
        ({"n_id": torch.ones(3)}, TypeError, "int64 node numbers, got torch.float32"),
        ({"ordering": EDGES}, TypeError, "ordering must be an Ordering, got Tensor"),
    ],
)
def test_bad_calls_are_refused(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        GOATConv(5, 4)(**({"x": torch.ones(3, 5), "edge_index": EDGES} | arguments))


@pytest.mark.parametrize("layer", [GOATConv(5, 4), RNNAggregation(5, 4)], ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float32), (torch.float32, torch.float64)])
def test_autocast_does_not_convert_float64(dtypes: tuple[torch.dtype, torch.dtype], layer: torch.nn.Module) -> None:
    of_x, of_weights = dtypes
    given = EDGES if isinstance(layer, GOATConv) else torch.tensor([0, 0, 1])
    message = f"x is {of_x}, but the weights are {of_weights}"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match=message):
        layer.to(of_weights)(torch.ones(3, 5, dtype=of_x), given)


class Fixed(torch.nn.Module):
    def __init__(self, score: float) -> None:
        super().__init__()
        self.score = score

    def forward(self, target, source, edge_attr):
        return torch.full(source.shape[:2], self.score)


def test_scores_of_an_attention_module_must_be_finite() -> None:
    with pytest.raises(ValueError, match="the result of the attention module has a non-finite value in row 0"):
        GOATConv(5, 4, attention=Fixed(float("nan")))(torch.ones(3, 5), EDGES)


def test_a_number_of_numpy_is_one_width() -> None:
    assert GOATConv(np.int64(5), 4)(torch.ones(3, 5), EDGES).shape == (3, 4)


def test_a_lazy_layer_refuses_another_dtype_in_the_first_call_too() -> None:
    with pytest.raises(TypeError, match=r"x is torch.float64, but the weights are torch.float32"):
        GOATConv(-1, 4)(torch.ones(3, 5).double(), EDGES)


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
def test_a_lazy_layer_refuses_widths_other_than_those_of_its_first_call(attention: str) -> None:
    conv = GOATConv(-1, 4, attention=attention, edge_dim=-1)
    assert (conv.in_channels, conv.edge_dim) == (-1, -1)
    conv(torch.ones(3, 5), EDGES, torch.ones(2, 3))
    assert (conv.in_channels, conv.edge_dim) == (5, 3)
    with pytest.raises(ValueError, match="x has 6 channels, but the layer was built for 5"):
        conv(torch.ones(3, 6), EDGES, torch.ones(2, 3))
    with pytest.raises(ValueError, match="edge_attr has 4 channels, but the layer was built for 3"):
        conv(torch.ones(3, 5), EDGES, torch.ones(2, 4))


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
def test_a_lazy_layer_of_one_set_of_nodes_refuses_two_widths(attention: str) -> None:
    with pytest.raises(ValueError, match=r"sources have 5 channels and targets 3; .* a pair of in_channels"):
        GOATConv(-1, 4, attention=attention)((torch.ones(3, 5), torch.ones(3, 3)), EDGES)


def test_options_for_one_set_of_nodes_are_refused_for_two() -> None:
    conv = GOATConv((5, 3), 4, add_self_loops=False, max_neighbors=1).eval()
    with pytest.raises(ValueError, match=r"n_id must number the 3 nodes of one set.*in_channels=\(5, 3\)"):
        conv((torch.ones(3, 5), torch.ones(3, 3)), EDGES, n_id=torch.arange(3))


def test_checks_can_be_switched_off_for_one_layer_or_for_all() -> None:
    x, conv, without, checked = torch.full((3, 5), torch.nan), *(GOATConv(5, 4) for _ in range(3))
    without.checks, checked.checks = False, True
    assert without(x, EDGES).isnan().any()
    with pytest.raises(ValueError, match="non-finite"):
        conv(x, EDGES)
    set_checks(False)
    try:
        assert conv(x, EDGES).isnan().any()
        with pytest.raises(ValueError, match="non-finite"):
            checked(x, EDGES)
    finally:
        set_checks(True)
    with pytest.raises(TypeError, match="True or False, got 'no'"):
        set_checks("no")


def test_a_layer_without_checks_leaves_those_of_other_threads_on() -> None:
    free, checked = GOATConv(5, 4), GOATConv(5, 4)
    free.checks = False
    x, wrong, stop = torch.ones(5, 5), torch.tensor([[0], [10_000_000]]), threading.Event()

    def train() -> None:
        while not stop.is_set():
            free(x, EDGES)

    other = threading.Thread(target=train)
    other.start()
    try:
        for _ in range(300):
            with pytest.raises(IndexError, match="node 10000000, but there are 5 nodes"):
                checked(x, wrong)
    finally:
        stop.set()
        other.join()
