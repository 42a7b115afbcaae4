import pytest
import torch
from torch_geometric.nn import LSTMAggregation, SAGEConv

from tests.compare import relative_error
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


def test_rows_that_stand_in_many_groups() -> None:
    aggregation = RNNAggregation(3, 4).double()
    x, source, ptr = torch.randn(5, 3, dtype=torch.double), torch.tensor([4, 1, 1, 0, 4]), torch.tensor([0, 2, 2, 5])
    assert relative_error(aggregation.read(x, source, ptr), aggregation(x[source], ptr=ptr)) < 1e-12


def test_a_group_does_not_depend_on_the_size_of_others() -> None:
    x, index = torch.randn(9, 3), torch.tensor([0, 0, 1, 1, 1, 1, 1, 1, 1])
    ours, pyg = RNNAggregation(3, 4), LSTMAggregation(3, 4)
    assert relative_error(ours(x[:2], index[:2]), ours(x, index)[:1]) < 1e-6
    # PyG's own reads on after the end of the shorter group.
    assert relative_error(pyg(x[:2], index[:2]), pyg(x, index)[:1]) > 1e-2


def test_equals_pyg_where_all_groups_have_one_size() -> None:
    ours, pyg = RNNAggregation(3, 4).double(), LSTMAggregation(3, 4).double()
    pyg.lstm.load_state_dict(ours.as_torch().state_dict())
    x, index = torch.randn(6, 3, dtype=torch.double), torch.tensor([0, 0, 0, 1, 1, 1])
    assert relative_error(ours(x, index), pyg(x, index)) < 1e-12


def test_works_inside_a_layer_of_pyg() -> None:
    conv = SAGEConv(3, 5, aggr=RNNAggregation(3, 3))
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 1, 2]])
    x = torch.randn(4, 3)
    expected = conv.lin_l(conv.aggr_module(x[edge_index[0]], edge_index[1], dim_size=4)) + conv.lin_r(x)
    assert relative_error(conv(x, edge_index), expected) < 1e-6


@pytest.mark.parametrize(
    ("x", "index", "error", "message"),
    [
        (torch.ones(7, 2), INDEX, ValueError, r"\[elements, 3\], got \[7, 2\]"),
        (torch.ones(1, 7, 3), INDEX, ValueError, r"got \[1, 7, 3\]"),
        (torch.ones(7, 3), INDEX - 1, ValueError, "node -1|dim_size"),
    ],
)
def test_bad_input_is_refused(x, index, error, message) -> None:
    with pytest.raises((error, IndexError), match=message):
        RNNAggregation(3, 4)(x, index)
