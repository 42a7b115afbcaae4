import networkx as nx
import pytest
import torch
from torch import Tensor

from torch_goat.data.datasets import betweenness, effective_size
from torch_goat.data.datasets.synthetic import betweenness_value, effective_size_value, erdos_renyi, scaled


def adjacency(num_nodes: int, edges: list[tuple[int, int]]) -> Tensor:
    adjacent = torch.zeros(num_nodes, num_nodes, dtype=torch.bool)
    for a, b in edges:
        adjacent[a, b] = adjacent[b, a] = True
    return adjacent


def networkx(adjacent: Tensor) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(adjacent)))
    graph.add_edges_from(adjacent.nonzero().tolist())
    return graph


def test_betweenness_of_six_nodes_by_hand() -> None:
    # A square 0 - 1 - 2 - 3 - 0 with 4 hanging on 3, and 5 alone.
    value = betweenness_value(adjacency(6, [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]))
    # From 0 to 2 half of the paths go over 1 and half over 3, from 1 to 3 half over 0 and half over 2; those from 0, 1
    # and 2 to 4 all go over 3, and the one from 1 half over 0 and half over 2 before.
    assert value.tolist() == [1.0, 0.5, 1.0, 3.5, 0.0, 0.0]
    assert scaled(value).tolist() == pytest.approx([1 / 3.5, 0.5 / 3.5, 1 / 3.5, 1, 0, 0])


def test_effective_size_of_six_nodes_by_hand() -> None:
    # A triangle 0, 1, 2 with the tail 2 - 3 - 4, and 5 alone.
    value = effective_size_value(adjacency(6, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)]))
    # 0 and 1 have two neighbours that know each other: 2 - 2 * 1 / 2; of the three of node 2, two do: 3 - 2 * 1 / 3.
    assert value.tolist() == pytest.approx([1, 1, 3 - 2 / 3, 2, 1, 0])


# The sparse graphs fall into parts and have nodes without neighbours; the grid has very many shortest paths.
GRAPHS = {
    "dense": erdos_renyi(60, 0.2, torch.Generator().manual_seed(0)),
    "sparse": erdos_renyi(80, 0.02, torch.Generator().manual_seed(1)),
    "empty": erdos_renyi(5, 0.0, torch.Generator().manual_seed(2)),
    "complete": erdos_renyi(7, 1.0, torch.Generator().manual_seed(3)),
    "grid": torch.from_numpy(nx.to_numpy_array(nx.grid_2d_graph(9, 9)) > 0),
    "path": torch.from_numpy(nx.to_numpy_array(nx.path_graph(40)) > 0),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_agrees_with_networkx(name: str) -> None:
    adjacent = GRAPHS[name]
    graph = networkx(adjacent)
    expected = nx.betweenness_centrality(graph, normalized=False)
    assert betweenness_value(adjacent).tolist() == pytest.approx([expected[node] for node in graph], rel=1e-9, abs=1e-9)
    expected = nx.effective_size(graph)
    sizes = [expected[node] if graph.degree(node) else 0 for node in graph]  # NetworkX gives NaN for those alone
    assert effective_size_value(adjacent).tolist() == pytest.approx(sizes, rel=1e-5)


def test_values_that_are_all_equal_scale_to_zero() -> None:
    assert scaled(torch.tensor([2.0, 2.0])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("make", "measure"), [(betweenness, nx.betweenness_centrality), (effective_size, nx.effective_size)]
)
def test_is_the_task_of_the_paper(make, measure) -> None:
    data = make(4)
    assert torch.equal(data.x, torch.eye(100))
    assert data.is_undirected()
    assert not data.has_self_loops()
    # 4950 pairs at 9 %: 445.5 edges, standard deviation 20.
    assert abs(data.num_edges / 2 - 445.5) < 5 * 20.2
    graph = nx.Graph(data.edge_index.t().tolist())
    measured = measure(graph)
    value = torch.tensor([measured[node] for node in range(100)])
    assert data.y.dtype == torch.float
    assert torch.allclose(data.y, (value - value.min()) / (value.max() - value.min()), atol=1e-5)
    parts = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert parts.sum(dim=1).tolist() == [60, 20, 20]
    assert parts.sum(dim=0).tolist() == [1] * 100
    assert torch.equal(make(4).edge_index, data.edge_index)
    assert not torch.equal(make(5).y, data.y)
