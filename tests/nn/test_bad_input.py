"""Bad input is refused in one sentence with the offending value, before any work."""

import numpy as np
import pytest
import torch

from torch_goat import set_checks
from torch_goat.nn import GOATConv


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rnn": "transformer"}, r"rnn must be one of \['gru', 'lstm', 'rnn'\] or a factory, got 'transformer'"),
        ({"attention": "dot"}, r"attention must be one of \['gat', 'gatv2'\] or a module, got 'dot'"),
        ({"backend": "tpu"}, "backend must be one of.*'reference', 'torch'.*got 'tpu'"),
        ({"out_channels": 5}, "out_channels=5 is odd"),
        ({"heads": 0}, "at least 1, got 4 and 0"),
        ({"head_pooling": "max"}, "'cat', 'sum' or 'mean', got 'max'"),
        ({"neighbor_selection": "last"}, "'random' or 'top', got 'last'"),
        ({"max_neighbors": 0}, "at least 1 or None, got 0"),
        ({"dropout": 1.5}, "between 0 and 1, got 1.5"),
        ({"in_channels": (4, 4, 4)}, r"a whole number or a pair of them, got \(4, 4, 4\)"),
        ({"in_channels": 4.0}, r"a whole number or a pair of them, got 4\.0"),
        ({"in_channels": (5, 3)}, r"in_channels=\(5, 3\) means that.*add_self_loops=False"),
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
        ({"x": torch.ones(3, 5).double()}, TypeError, "x is torch.float64, but the layer's weights are torch.float32"),
        ({"x": [[1.0] * 5] * 3}, TypeError, "x must be a tensor, got list"),
        ({"x": torch.tensor([[1.0] * 5, [torch.inf] * 5])}, ValueError, "non-finite value in row 1"),
        ({"edge_index": torch.tensor([[0, 7], [1, 2]])}, IndexError, "node 7, but there are 3 nodes"),
        ({"x": (torch.ones(2, 5), torch.ones(3, 5))}, ValueError, "3 targets cannot be the first rows of 2 sources"),
        ({"size": (4, 3)}, ValueError, "size says 4 sources, but x has 3 rows"),
        ({"x": (torch.ones(3, 5), torch.ones(2, 5)), "size": (3, 1)}, ValueError, "size says 1 targets, but x has 2"),
        ({"edge_attr": torch.ones(2, 1)}, ValueError, "without edge features"),
        ({"n_id": torch.arange(4)}, ValueError, r"number the 3 nodes of one set, got shape \[4\]"),
        ({"ordering": EDGES}, TypeError, "ordering must be an Ordering, got Tensor"),
    ],
)
def test_bad_calls_are_refused(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        GOATConv(5, 4)(**({"x": torch.ones(3, 5), "edge_index": EDGES} | arguments))


def test_a_number_of_numpy_is_one_width() -> None:
    assert GOATConv(np.int64(5), 4)(torch.ones(3, 5), EDGES).shape == (3, 4)


def test_a_lazy_layer_refuses_another_dtype_in_the_first_call_too() -> None:
    with pytest.raises(TypeError, match=r"x is torch.float64, but the layer's weights are torch.float32"):
        GOATConv(-1, 4)(torch.ones(3, 5).double(), EDGES)


def test_options_for_one_set_of_nodes_are_refused_for_two() -> None:
    with pytest.raises(ValueError, match="needs the targets' states"):
        GOATConv((5, 3), 4, add_self_loops=False, residual=True)((torch.ones(3, 5), None), EDGES, size=(3, 3))
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
