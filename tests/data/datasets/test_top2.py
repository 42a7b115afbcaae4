import math

import networkx as nx
import pytest
import torch

from torch_goat.data.datasets import top2
from torch_goat.data.datasets.synthetic import top2_value


def test_six_nodes_by_hand() -> None:
    # 0 - 1 - 2 - 3, 1 - 4, and 5 alone. Features:
    feature = torch.tensor([5.0, 1.0, 2.0, 10.0, 2.0, 7.0])
    adjacent = torch.zeros(6, 6, dtype=torch.bool)
    for a, b in [(0, 1), (1, 2), (2, 3), (1, 4)]:
        adjacent[a, b] = adjacent[b, a] = True
    largest = [
        (1.6, 1.0),  # 0: its neighbour 1 has 1; at distance 2, nodes 2 and 4 have 0.8 * 2, which counts once
        (8.0, 5.0),  # 1: 5, 2, 2; at distance 2, node 3 has 8
        (10.0, 4.0),  # 2: 1, 10; at distance 2, nodes 0 and 4 have 4 and 1.6
        (2.0, 0.8),  # 3: 2; at distance 2, node 1 has 0.8
        (4.0, 1.6),  # 4: 1; at distance 2, nodes 0 and 2 have 4 and 1.6
    ]
    value = top2_value(feature, adjacent)
    for node, (a, b) in enumerate(largest):
        assert float(value[node]) == pytest.approx(math.sqrt(math.exp(a) + math.exp(b)), rel=1e-5)
    assert value[5] == 0  # nobody around


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_agree_with_a_search_by_networkx(seed: int) -> None:
    data = top2(seed, num_nodes=120, edge_probability=0.03)
    graph = nx.Graph()
    graph.add_nodes_from(range(120))
    graph.add_edges_from(data.edge_index.t().tolist())
    values = []
    for node in range(120):
        near = nx.single_source_shortest_path_length(graph, node, cutoff=2)
        features = {float(data.x[j]) * (0.8 if hops == 2 else 1) for j, hops in near.items() if j != node}
        a, b = (sorted(features, reverse=True) + [-math.inf] * 2)[:2]
        values.append(math.sqrt(math.exp(a) + math.exp(b)))
    threshold = sorted(values)[59]
    assert data.y.tolist() == [int(value > threshold) for value in values]


def test_is_the_task_of_the_paper() -> None:
    data = top2(3)
    assert data.num_nodes == 1000
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert abs(int(data.y.sum()) - 500) <= 10  # neighbours share their largest two, so that values tie at the median
    assert [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [600, 200, 200]
    assert int((data.train_mask.int() + data.val_mask.int() + data.test_mask.int()).max()) == 1
    # 499500 pairs at 1 %: 4995 edges, standard deviation 70.
    assert abs(data.num_edges / 2 - 4995) < 5 * 70
    # Mean 4/3; variance (1 + 16 + 1) / 3 + 2/9, so that the mean of 1000 has a standard deviation of 0.079.
    assert abs(float(data.x.mean()) - 4 / 3) < 5 * 0.079
    assert torch.equal(top2(3).x, data.x)
    assert not torch.equal(top2(4).x, data.x)


@pytest.mark.parametrize("change", [{"num_nodes": 0}, {"edge_probability": 1.5}, {"edge_probability": math.nan}])
def test_graphs_that_cannot_be_are_refused(change: dict[str, float]) -> None:
    (name,) = change
    with pytest.raises(ValueError, match=f"{name} must be"):
        top2(**change)  # type: ignore[arg-type]
