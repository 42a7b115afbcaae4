import math
from itertools import groupby

import networkx as nx
import pytest
import torch
from torch import Tensor
from torch_geometric.utils import to_networkx, to_undirected

from torch_goat.data.datasets import betweenness, disease_sim, effective_size, order_task, synthetic, top2


def matrix(graph: nx.Graph) -> Tensor:
    return torch.from_numpy(nx.to_numpy_array(graph) > 0)


def test_top2_of_six_nodes_by_hand() -> None:
    # 0 - 1 - 2 - 3, 1 - 4, and 5 alone. Features:
    feature = torch.tensor([5.0, 1.0, 2.0, 10.0, 2.0, 7.0])
    largest = [
        (1.6, 1.0),  # 0: its neighbour 1 has 1; at distance 2, nodes 2 and 4 have 0.8 * 2, which counts once
        (8.0, 5.0),  # 1: 5, 2, 2; at distance 2, node 3 has 8
        (10.0, 4.0),  # 2: 1, 10; at distance 2, nodes 0 and 4 have 4 and 1.6
        (2.0, 0.8),  # 3: 2; at distance 2, node 1 has 0.8
        (4.0, 1.6),  # 4: 1; at distance 2, nodes 0 and 2 have 4 and 1.6
    ]
    graph = nx.empty_graph(6)
    graph.add_edges_from([(0, 1), (1, 2), (2, 3), (1, 4)])
    value = synthetic.top2_value(feature, matrix(graph))
    for node, (a, b) in enumerate(largest):
        assert float(value[node]) == pytest.approx(math.sqrt(math.exp(a) + math.exp(b)), rel=1e-5)
    assert value[5] == 0  # no neighbours


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_of_top2_agree_with_a_search_by_networkx(seed: int) -> None:
    data = top2(seed, num_nodes=120, edge_probability=0.03)
    graph = to_networkx(data, to_undirected=True)
    values = []
    for node in range(120):
        near = nx.single_source_shortest_path_length(graph, node, cutoff=2)
        features = {float(data.x[j]) * (0.8 if hops == 2 else 1) for j, hops in near.items() if j != node}
        a, b = (sorted(features, reverse=True) + [-math.inf] * 2)[:2]
        values.append(math.sqrt(math.exp(a) + math.exp(b)))
    threshold = sorted(values)[59]
    assert data.y.tolist() == [int(value > threshold) for value in values]


def test_top2_is_the_task_of_the_paper() -> None:
    data = top2(3)
    # Neighbours share their two largest, so that values tie at the median.
    assert all(abs(int(top2(seed).y.sum()) - 500) <= 10 for seed in range(10))
    # Mean 4/3; variance (1 + 16 + 1) / 3 + 2/9, so that the mean of 1000 has a standard deviation of 0.079.
    assert abs(float(data.x.mean()) - 4 / 3) < 5 * 0.079
    assert torch.equal(top2(3).x, data.x)
    assert not torch.equal(top2(4).x, data.x)


# The sparse graphs are disconnected and have isolated nodes; the grid has very many shortest paths.
GRAPHS = {
    "dense": synthetic.erdos_renyi(60, 0.2, torch.Generator().manual_seed(0)),
    "sparse": synthetic.erdos_renyi(80, 0.02, torch.Generator().manual_seed(1)),
    "empty": synthetic.erdos_renyi(5, 0.0, torch.Generator().manual_seed(2)),
    "complete": synthetic.erdos_renyi(7, 1.0, torch.Generator().manual_seed(3)),
    "grid": matrix(nx.grid_2d_graph(9, 9)),
    "path": matrix(nx.path_graph(40)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_structural_properties_agree_with_networkx(name: str) -> None:
    adjacent = GRAPHS[name]
    graph = nx.from_numpy_array(adjacent.numpy())
    expected = nx.betweenness_centrality(graph, normalized=False)
    assert synthetic.betweenness_value(adjacent).tolist() == pytest.approx(
        [expected[node] for node in graph], rel=1e-9, abs=1e-9
    )
    expected = nx.effective_size(graph)
    sizes = [expected[node] if graph.degree(node) else 0 for node in graph]  # NetworkX returns NaN for isolated nodes
    assert synthetic.effective_size_value(adjacent).tolist() == pytest.approx(sizes, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "measure"), [(betweenness, nx.betweenness_centrality), (effective_size, nx.effective_size)]
)
def test_structural_tasks_are_those_of_the_paper(make, measure) -> None:
    data = make(4)
    assert torch.equal(data.x, torch.eye(100))
    measured = measure(nx.Graph(data.edge_index.t().tolist()))
    value = torch.tensor([measured[node] for node in range(100)])
    assert data.y.dtype == torch.float
    assert torch.allclose(data.y, (value - value.min()) / (value.max() - value.min()), atol=1e-5)
    assert torch.equal(make(4).edge_index, data.edge_index)
    assert not torch.equal(make(5).y, data.y)
    assert make(0, num_nodes=5, edge_probability=0.0).y.tolist() == [0] * 5


@pytest.mark.parametrize(
    ("make", "option", "value", "message"),
    [
        (top2, "num_nodes", 0, "num_nodes must be at least 1, got 0"),
        (top2, "edge_probability", 1.5, "edge_probability must be between 0 and 1, got 1.5"),
        (top2, "edge_probability", math.nan, "edge_probability must be between 0 and 1, got nan"),
        (order_task, "task", "mode", "task must be 'alternations', 'median' or 'run', got 'mode'"),
        (order_task, "num_nodes", 12, r"neighbors must be two ascending .* num_nodes - 1, got \(6, 12\)"),
        (order_task, "neighbors", (3, 2), r"neighbors must be two ascending .*, got \(3, 2\)"),
        (order_task, "noise_columns", -1, "noise_columns must be at least 0, got -1"),
        (disease_sim, "num_nodes", 3, "num_nodes must be at least 10, got 3"),
    ],
)
def test_impossible_graphs_are_refused(make, option: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**{option: value})


def test_the_tree_grows_level_by_level() -> None:
    graph = nx.Graph(synthetic.random_tree(200, torch.Generator().manual_seed(0)).t().tolist())
    assert nx.is_tree(graph)
    assert len(graph) == 200
    depth = nx.single_source_shortest_path_length(graph, 0)
    assert [depth[node] for node in range(200)] == sorted(depth.values())
    children = [graph.degree(node) - (node > 0) for node in range(200)]
    leaves = children.index(next(count for count in children if count < 2))
    assert {2, 3, 4, 5, 6} == set(children[:leaves])
    assert sum(children[leaves + 1 :]) == 0  # only the last parent may lack children


def test_certain_and_impossible_infections() -> None:
    edge_index = synthetic.random_tree(50, torch.Generator().manual_seed(0))
    start = torch.arange(50) == 0
    generator = torch.Generator().manual_seed(1)
    assert synthetic.epidemic(edge_index, torch.ones(50), start, generator).all()
    assert torch.equal(synthetic.epidemic(edge_index, torch.zeros(50), start, generator), start)


def test_how_often_a_neighbour_is_infected() -> None:
    # The infected node of each pair stays infected for k steps with probability 2^-k, and in every step the other node
    # escapes with probability 1/2: it escapes altogether with the sum of 4^-k, which is 1/3.
    edge_index = to_undirected(torch.arange(8000).view(4000, 2).t())
    start = torch.arange(8000) % 2 == 0
    ever = synthetic.epidemic(edge_index, torch.full((8000,), 0.5), start, torch.Generator().manual_seed(0))
    assert ever[start].all()
    assert float(ever[~start].float().mean()) == pytest.approx(2 / 3, abs=5 * (2 / 9 / 4000) ** 0.5)


def test_two_infected_neighbours_infect_twice_as_hard() -> None:
    # As above, with two infected neighbours that recover after one step: the node escapes with probability 1/4.
    node = torch.arange(4000)
    edge_index = to_undirected(torch.stack([torch.cat([node, node + 4000]), torch.cat([node + 8000, node + 8000])]))
    start = torch.arange(12000) < 8000
    ever = synthetic.epidemic(
        edge_index, torch.full((12000,), 0.5), start, torch.Generator().manual_seed(0), recovery=1.0
    )
    assert float(ever[8000:].float().mean()) == pytest.approx(3 / 4, abs=5 * (3 / 16 / 4000) ** 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_disease_sim_looks_like_disease(seed: int) -> None:
    data = disease_sim(seed)
    assert data.x.shape == (1044, 10)
    assert data.num_edges == 2 * 1043
    assert 0.1 <= float(data.y.float().mean()) <= 0.5
    parent = data.edge_index[1, data.edge_index[0] > data.edge_index[1]]
    assert bool((data.y[1:] <= data.y[parent]).all())  # only the parent can infect a node
    caught = data.y[parent] == 1
    readings = data.x[1:].mean(dim=1)[caught]
    assert readings[data.y[1:][caught] == 1].mean() > readings[data.y[1:][caught] == 0].mean() + 1
    assert [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [312, 105, 627]
    assert torch.equal(disease_sim(seed).x, data.x)


def test_order_labels_of_seven_nodes_by_hand() -> None:
    key = torch.tensor([5.0, 4.0, 3.0, 2.0, 2.0, 1.0, 9.0])
    value = torch.tensor([1.0, -1.0, -2.0, 0.0, 3.0, 0.5, 7.0])
    neighbors = {
        0: [5, 2, 1, 4],  # keys 4 3 2 1: - - + +
        1: [4, 3, 0],  # keys 5 2 2, of equal keys node 3 first, whose value of 0 is not positive: + - +
        2: [6, 0, 5, 1, 4],  # keys 9 5 4 2 1: + + - + +
        3: [2],  # -
        4: [1, 2, 3, 3],  # keys 4 3 2 2, the last of two equal edges: - - - -
        6: [0, 2, 5],  # keys 5 3 1: + - +
    }
    edge_index = torch.tensor([[source, node] for node, sources in neighbors.items() for source in sources]).t()
    edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=torch.Generator().manual_seed(0))]
    for task, label in {
        "alternations": [1, 2, 2, 0, 0, 0, 2],
        "median": [1, 0, 0, 0, 0, 0, 0],  # of the four of node 0 the third
        "run": [2, 1, 2, 1, 4, 0, 1],
    }.items():
        assert synthetic.order_label(task, key, value, edge_index).tolist() == label
        assert synthetic.order_label(task, key, value, edge_index[:, :0]).tolist() == [0] * 7


@pytest.mark.parametrize("task", ["alternations", "median", "run"])
def test_order_labels_agree_with_a_slow_reading(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    label, seen = synthetic.order_label, []
    monkeypatch.setattr(synthetic, "order_label", lambda *arguments: seen.append(arguments) or label(*arguments))
    data = order_task(3, task, num_nodes=40, neighbors=(0, 39), noise_columns=2)
    (_, key, value, edge_index) = seen[0]
    expected = []
    for node in range(40):
        sources = edge_index[0, edge_index[1] == node].tolist()
        assert len(set(sources) - {node}) == len(sources)  # distinct, and no self loop
        signs = [bool(value[source] > 0) for source in sorted(sources, key=lambda source: -float(key[source]))]
        runs = [len(list(run)) for _, run in groupby(signs)]
        read = {"alternations": max(len(runs) - 1, 0), "run": max(runs, default=0)}
        expected.append(read.get(task, int(any(signs[len(signs) // 2 :][:1]))))
    assert data.y.tolist() == expected
    # The features are the key, the value and the noise after a rotation, which the inverse rotation undoes.
    back = torch.linalg.lstsq(data.x, torch.stack([key, value], dim=1)).solution  # [4, 2]
    torch.testing.assert_close(data.x @ back, torch.stack([data.key, value], dim=1), atol=1e-5, rtol=0)
    torch.testing.assert_close(back.t() @ back, torch.eye(2), atol=1e-5, rtol=0)


def test_the_random_graph_of_the_order_tasks() -> None:
    data = order_task(1)
    size = torch.bincount(data.edge_index[1], minlength=8000)
    assert size.unique().tolist() == list(range(6, 13))
    assert float(size.float().mean()) == pytest.approx(9, abs=5 * 2 / 8000**0.5)  # a deviation of 2
    assert not data.has_self_loops()
    assert data.edge_index.unique(dim=1).size(1) == data.num_edges
    assert torch.equal(data.edge_key, data.key[data.edge_index[0]])
    assert torch.equal(order_task(1).x, data.x)
    assert not torch.equal(order_task(2).x, data.x)
    assert float(data.x.std()) == pytest.approx(1, abs=0.02)
    # Every neighbour is equally likely, at every distance: the mean distance of 72,000 edges is half of the nodes.
    distance = ((data.edge_index[0] - data.edge_index[1]) % 8000).float()
    assert float(distance.mean()) == pytest.approx(4000, abs=5 * 8000 / (12 * 72000) ** 0.5)


def test_keys_of_edges_are_never_taken_for_those_of_nodes() -> None:
    data = order_task(0, num_nodes=9, neighbors=(1, 1))  # as many edges as nodes
    assert data.is_edge_attr("edge_key")
    assert not data.is_node_attr("edge_key")
    assert data.is_node_attr("key")
    part = data.edge_subgraph(torch.tensor([2, 5]))
    assert torch.equal(part.edge_key, part.key[part.edge_index[0]])
