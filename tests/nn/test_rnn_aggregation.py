from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import LSTMAggregation, MultiAggregation, SAGEConv

from tests.backends import AVAILABLE
from tests.compare import assert_close, relative_error, with_gradients
from torch_goat.nn import RNNAggregation

INDEX = torch.tensor([2, 0, 2, 2, 0, 4, 2])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn"])
def test_reads_each_group_in_the_given_order(rnn: str, bidirectional: bool) -> None:
    aggregation = RNNAggregation(3, 4, rnn=rnn, bidirectional=bidirectional).double()
    x = torch.randn(7, 3, dtype=torch.double)
    out = aggregation(x, INDEX, dim_size=5)
    module = aggregation.as_torch()
    for group in range(5):
        elements = x[group == INDEX]
        if elements.size(0) == 0:
            assert not out[group].any()
            continue
        state = module(elements)[1]
        expected = (state[0] if rnn == "lstm" else state).flatten()
        assert relative_error(out[group], expected) < 1e-12


def test_ptr_equals_index() -> None:
    aggregation = RNNAggregation(3, 4)
    x, index = torch.randn(7, 3), INDEX.sort().values
    ptr = torch.tensor([0, 2, 2, 6, 6, 7])
    assert torch.equal(aggregation(x, ptr=ptr), aggregation(x, index, dim_size=5))


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_int32_numbers_equal_int64_ones_and_leave_no_trace(backend: str) -> None:
    if backend not in AVAILABLE:
        pytest.skip(f"{backend} does not run here")
    # No other test has this width: the first call decides what the kernel is compiled for.
    aggregation, x = RNNAggregation(3, 3, rnn="rnn", backend=backend).double(), torch.randn(7, 3).double()
    ptr = torch.tensor([0, 2, 2, 6, 6, 7])
    small = [aggregation(x, INDEX.int(), dim_size=5), aggregation(x, ptr=ptr.int())]
    assert torch.equal(small[0], aggregation(x, INDEX, dim_size=5))
    assert torch.equal(small[1], aggregation(x, ptr=ptr))


def test_rows_that_stand_in_many_groups() -> None:
    aggregation = RNNAggregation(3, 4).double()
    x, source, ptr = torch.randn(5, 3, dtype=torch.double), torch.tensor([4, 1, 1, 0, 4]), torch.tensor([0, 2, 2, 5])
    assert relative_error(aggregation.read(x, source, ptr), aggregation(x[source], ptr=ptr)) < 1e-12


def test_equals_pyg_except_that_a_group_does_not_depend_on_the_size_of_others() -> None:
    ours, pyg = RNNAggregation(3, 4).double(), LSTMAggregation(3, 4).double()
    pyg.lstm.load_state_dict(ours.as_torch().state_dict())
    x, index = torch.randn(9, 3).double(), torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 1])
    assert relative_error(ours(x[:6], index[:6]), pyg(x[:6], index[:6])) < 1e-12
    assert relative_error(ours(x[:3], index[:3]), ours(x, index)[:1]) < 1e-12
    assert relative_error(pyg(x[:3], index[:3]), pyg(x, index)[:1]) > 1e-2  # reads padding after the shorter group


def test_works_inside_a_layer_of_pyg() -> None:
    conv = SAGEConv(3, 5, aggr=RNNAggregation(3, 3))
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 1, 2]])
    x = torch.randn(4, 3)
    expected = conv.lin_l(conv.aggr_module(x[edge_index[0]], edge_index[1], dim_size=4)) + conv.lin_r(x)
    assert relative_error(conv(x, edge_index), expected) < 1e-6


def test_a_factory_is_not_accepted() -> None:
    with pytest.raises(ValueError, match="rnn must be 'lstm', 'gru', 'rnn', 'mingru' or 'minlstm', got <class"):
        RNNAggregation(3, 4, rnn=torch.nn.GRU)


@pytest.mark.parametrize(
    ("x", "index", "error", "message"),
    [
        (torch.ones(7, 2), INDEX, ValueError, r"\[elements, 3\], got \[7, 2\]"),
        (torch.ones(1, 7, 3), INDEX, ValueError, r"got \[1, 7, 3\]"),
        (torch.ones(7, 3).double(), INDEX, TypeError, "x is torch.float64, but the weights are torch.float32"),
        (torch.ones(7, 3), INDEX - 1, IndexError, "index has node -1, but there are 4 nodes"),
        (torch.ones(1, 3), torch.tensor([-1]), IndexError, "node -1, but there are no nodes; indices start at 0"),
        (torch.ones(5, 3), INDEX, ValueError, r"one entry for each of the 5 elements, got shape \[7\]"),
        (torch.ones(9, 3), INDEX, ValueError, r"each of the 9 elements"),
        (torch.ones(7, 3), INDEX.view(1, 7), ValueError, r"got shape \[1, 7\]"),
    ],
)
def test_bad_input_is_refused(x: Tensor, index: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RNNAggregation(3, 4)(x, index)


@pytest.mark.parametrize(
    ("ptr", "message"),
    [
        ([0, 3, 9], r"end at 7, the number of elements; got \[0, 3, 9\]"),
        ([0, 3], "end at 7"),
        ([2, 3, 7], "start at 0"),
        ([0, 5, 3, 7], "never decrease"),
        ([0, 1, 2, 3, 4, 5, 6, 8], r"got \[0, 1, 2, ..., 5, 6, 8\]"),
        ([[0, 7]], r"a vector of integers, got torch.int64 of shape \[1, 2\]"),
        ([0.0, 7.0], "got torch.float32"),
        ([], "got"),
    ],
)
def test_bad_bounds_are_refused(ptr: list, message: str) -> None:
    aggregation, x = RNNAggregation(3, 4), torch.ones(7, 3)
    for call in (lambda ptr: aggregation(x, ptr=ptr), lambda ptr: aggregation.read(x[:2], torch.zeros(7).long(), ptr)):
        with pytest.raises(ValueError, match=message):
            call(torch.tensor(ptr))


def test_rows_that_are_not_there_are_refused() -> None:
    aggregation = RNNAggregation(3, 4)
    with pytest.raises(IndexError, match="source has node 10000000, but there are 5 nodes"):
        aggregation.read(torch.ones(5, 3), torch.tensor([0, 10**7, 1]), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"source must be a vector, got shape \[1, 3\]"):
        aggregation.read(torch.ones(5, 3), torch.zeros(1, 3).long(), torch.tensor([0, 3]))


CALLS = {
    "index": lambda aggregation, x, index: aggregation(x, index, dim_size=5),
    "ptr": lambda aggregation, x, ptr: aggregation(x, ptr=ptr),
    "source": lambda aggregation, x, source: aggregation.read(x, source, torch.tensor([0, 2, 3])),
}


def compiled(aggregation: RNNAggregation, call: str) -> Callable[[Tensor, Tensor], Tensor]:
    run = partial(CALLS[call], aggregation)
    return torch.compile(run, dynamic=True, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize(("call", "given"), [("index", INDEX), ("ptr", [0, 2, 2, 7]), ("source", [6, 0, 0])])
def test_compiles_without_graph_breaks(call: str, given) -> None:
    aggregation, x = RNNAggregation(3, 4).double(), torch.randn(7, 3).double().requires_grad_()
    given = torch.as_tensor(given)
    found = with_gradients(aggregation, compiled(aggregation, call)(x, given), x)
    assert_close(found, with_gradients(aggregation, CALLS[call](aggregation, x, given), x), 1e-12)


@pytest.mark.parametrize(
    ("call", "given", "error", "message"),
    [
        ("index", [0, 5, 1], IndexError, "index has node 5, but there are 5 nodes"),
        ("index", [0, -1, 1], IndexError, "index has node -1, but there are 5 nodes"),
        ("ptr", [0, 10**7], ValueError, r"end at 3, the number of elements; got \[0, 10000000\]"),
        ("source", [0, 10**7, 1], IndexError, "source has node 10000000, but there are 3 nodes"),
        ("source", [0, 1], ValueError, "end at 2, the number of elements"),
    ],
)
def test_compiled_code_refuses_numbers_that_are_out_of_range(call, given, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compiled(RNNAggregation(3, 4), call)(torch.ones(3, 3), torch.tensor(given))


def test_compiled_code_follows_the_switch_for_checks() -> None:
    aggregation = RNNAggregation(3, 4)
    run, x, index = compiled(aggregation, "index"), torch.ones(2, 3), torch.tensor([0, 5])
    with pytest.raises(IndexError, match="node 5"):
        run(x, index)
    aggregation.checks = False
    assert torch.equal(run(x, index)[0], CALLS["index"](aggregation, x, index)[0])


@pytest.mark.parametrize("rnn", ["lstm", "gru", "mingru"])
@pytest.mark.parametrize("loaded", [False, True])
def test_lazy_width(rnn: str, loaded: bool) -> None:
    lazy, x = RNNAggregation(-1, 5, rnn=rnn, bidirectional=True), torch.randn(7, 3)
    known = RNNAggregation(3, 5, rnn=rnn, bidirectional=True)
    assert repr(lazy) == f"RNNAggregation(-1, 5, rnn={rnn!r})"
    if loaded:
        lazy.load_state_dict(known.state_dict())
    out = lazy(x, INDEX, dim_size=5)
    assert repr(lazy) == f"RNNAggregation(3, 5, rnn={rnn!r})"
    known.load_state_dict(lazy.state_dict())
    assert torch.equal(known(x, INDEX, dim_size=5), out)
    assert bool(out.any())
    with pytest.raises(ValueError, match=r"x must have shape \[elements, 3\], got \[7, 4\]"):
        lazy(torch.randn(7, 4), INDEX)


def test_as_an_aggregation_of_pyg() -> None:
    x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])
    alone = RNNAggregation(-1, 4)
    conv = SAGEConv(4, 6, aggr=alone)
    expected = conv.lin_l(alone(x[edge_index[0]], edge_index[1], dim_size=5)) + conv.lin_r(x)
    assert relative_error(conv(x, edge_index), expected) < 1e-6
    both = MultiAggregation([RNNAggregation(-1, 4), "mean"])
    out = both(x[:4], edge_index[1], dim_size=2)
    assert torch.equal(out[:, :4], both.aggrs[0](x[:4], edge_index[1], dim_size=2))
    assert torch.equal(out[:, 4:], x[:4].view(2, 2, 4).mean(dim=1))


@pytest.mark.parametrize("index", [INDEX.float(), INDEX.bool()])
def test_an_index_must_hold_whole_numbers(index: Tensor) -> None:
    with pytest.raises(TypeError, match=f"index must hold whole numbers, got {index.dtype}"):
        RNNAggregation(3, 4)(torch.randn(7, 3), index)


@pytest.mark.parametrize("width", [-2, 1.5, "3", True])
def test_impossible_widths_are_refused(width) -> None:
    with pytest.raises(ValueError, match=f"in_channels must be a whole number of at least 0 or -1, got {width!r}"):
        RNNAggregation(width, 4)
