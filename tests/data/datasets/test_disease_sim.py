import networkx as nx
import pytest
import torch
from torch_geometric.utils import to_undirected

from torch_goat.data.datasets import disease_sim
from torch_goat.data.datasets.synthetic import epidemic, random_tree


def test_the_tree_is_one_and_grows_level_by_level() -> None:
    graph = nx.Graph(random_tree(200, torch.Generator().manual_seed(0)).t().tolist())
    assert nx.is_tree(graph)
    assert len(graph) == 200
    depth = nx.single_source_shortest_path_length(graph, 0)
    assert [depth[node] for node in range(200)] == sorted(depth.values())
    children = [graph.degree(node) - (node > 0) for node in range(200)]
    leaves = children.index(next(count for count in children if count < 2))
    assert {2, 3, 4, 5, 6} == set(children[:leaves])
    assert sum(children[leaves + 1 :]) == 0  # only the last parent may lack children


def test_certain_and_impossible_infections() -> None:
    edge_index = random_tree(50, torch.Generator().manual_seed(0))
    start = torch.arange(50) == 0
    generator = torch.Generator().manual_seed(1)
    assert epidemic(edge_index, torch.ones(50), start, generator).all()
    assert torch.equal(epidemic(edge_index, torch.zeros(50), start, generator), start)


def test_how_often_a_neighbour_is_infected() -> None:
    # 4000 pairs, one of each infected. It stays so for k steps with probability 2^-k, and in every step the other one
    # escapes with probability 1/2: it escapes altogether with the sum of 4^-k, which is 1/3.
    edge_index = to_undirected(torch.arange(8000).view(4000, 2).t())
    start = torch.arange(8000) % 2 == 0
    ever = epidemic(edge_index, torch.full((8000,), 0.5), start, torch.Generator().manual_seed(0))
    assert ever[start].all()
    assert float(ever[~start].float().mean()) == pytest.approx(2 / 3, abs=5 * (2 / 9 / 4000) ** 0.5)


def test_two_infected_neighbours_infect_twice_as_hard() -> None:
    # As above, with two infected neighbours that recover after one step: escape 1/4.
    node = torch.arange(4000)
    edge_index = to_undirected(torch.stack([torch.cat([node, node + 4000]), torch.cat([node + 8000, node + 8000])]))
    start = torch.arange(12000) < 8000
    ever = epidemic(edge_index, torch.full((12000,), 0.5), start, torch.Generator().manual_seed(0), recovery=1.0)
    assert float(ever[8000:].float().mean()) == pytest.approx(3 / 4, abs=5 * (3 / 16 / 4000) ** 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_looks_like_disease(seed: int) -> None:
    data = disease_sim(seed)
    assert data.x.shape == (1044, 10)
    assert data.num_edges == 2 * 1043
    assert 0.1 <= float(data.y.float().mean()) <= 0.5
    parent = data.edge_index[1, data.edge_index[0] > data.edge_index[1]]
    assert bool((data.y[1:] <= data.y[parent]).all())  # nobody is infected but by the parent
    caught = data.y[parent] == 1
    readings = data.x[1:].mean(dim=1)[caught]
    assert readings[data.y[1:][caught] == 1].mean() > readings[data.y[1:][caught] == 0].mean() + 1
    assert [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [312, 105, 627]
    assert torch.equal(disease_sim(seed).x, data.x)


def test_too_few_nodes() -> None:
    with pytest.raises(ValueError, match="num_nodes must be at least 10, got 3"):
        disease_sim(num_nodes=3)
