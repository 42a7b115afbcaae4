import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.utils import add_self_loops, remove_self_loops

from tests.compare import relative_error
from tests.graphs import graphs, small_graph
from torch_goat.ops.neighborhoods import neighborhoods


@given(graphs(), st.booleans())
def test_tokens_are_the_edges_grouped_by_target(graph: tuple[int, torch.Tensor], loops: bool) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, loops)
    assert torch.equal(hood.edge_index[:, hood.edge], torch.stack([hood.source, hood.target]))
    for node in range(num_nodes):
        expected = [j for j, i in edge_index.t().tolist() if i == node and not (loops and i == j)]
        found = hood.source[hood.ptr[node] : hood.ptr[node + 1]].tolist()
        assert found == sorted(expected + [node] * loops)


def test_self_loops_and_their_features_are_those_of_pyg() -> None:
    edge_index, edge_attr = small_graph(), torch.randn(32, 3, dtype=torch.double)
    hood = neighborhoods(edge_index, edge_attr, 10, 10, add_self_loops=True)
    expected_index, expected_attr = add_self_loops(
        *remove_self_loops(edge_index, edge_attr), fill_value="mean", num_nodes=10
    )
    assert torch.equal(hood.edge_index, expected_index)
    assert relative_error(hood.edge_attr, expected_attr) < 1e-14


@given(st.randoms(use_true_random=False))
def test_mean_of_edge_features_does_not_depend_on_their_order(random) -> None:
    edge_attr = torch.randn(40, 2) * 10 ** torch.randint(-4, 4, (40, 2))
    edge_index = torch.stack([torch.arange(1, 41), torch.zeros(40, dtype=torch.long)])
    order = list(range(40))
    random.shuffle(order)
    plain = neighborhoods(edge_index, edge_attr, 41, 1, add_self_loops=True)
    shuffled = neighborhoods(edge_index[:, order], edge_attr[order], 41, 1, add_self_loops=True)
    assert torch.equal(plain.edge_attr[-1], shuffled.edge_attr[-1])


@pytest.mark.parametrize("node", [4, -1])
@pytest.mark.parametrize("feature", [None, torch.ones(2, 1)])
def test_nodes_that_are_not_there_are_refused(node: int, feature: Tensor | None) -> None:
    with pytest.raises(IndexError, match=f"node {node}, but there are 4 nodes"):
        neighborhoods(torch.tensor([[0, node], [1, 2]]), feature, 4, 4, True)
