from typing import Any

import networkx as nx
import pytest
import torch
from torch_geometric.utils import to_networkx

from torch_goat.data.datasets import NeighborhoodTask, NeighborhoodUnique, NeighborhoodXOR, load
from torch_goat.data.datasets.neighborhood import NEIGHBORHOOD_TASKS, CountDistinct, NeighborhoodCopy, NeighborhoodDial
from torch_goat.experiments.information import decompose


def read(task: NeighborhoodTask, data: Any, node: int) -> tuple[list[int], set[int]]:
    """The values of a centre's informative neighbours by their roles, and their marks, off the features alone."""
    around = data.edge_index[0][data.edge_index[1] == node].tolist()
    size = task.num_values
    told = [neighbor for neighbor in around if data.x[neighbor, size : 3 * size].sum() == 1]
    told.sort(key=lambda neighbor: int(data.role[neighbor]))
    assert [int(data.role[neighbor]) for neighbor in told] == list(range(1, task.informative + 1))
    values = [int(data.x[neighbor, : 3 * size].argmax()) % size for neighbor in told]
    return values, {int(data.x[neighbor, 3 * size :].argmax()) for neighbor in told if task.num_rules}


@pytest.mark.parametrize("graph", ["random", "tree"])
@pytest.mark.parametrize(
    "task", [NeighborhoodXOR, NeighborhoodCopy, NeighborhoodUnique, CountDistinct, NeighborhoodDial]
)
def test_the_label_is_what_the_informative_neighbours_say(task: type[NeighborhoodTask], graph: Any) -> None:
    made = task(informative=3, centers=60, graph=graph)
    data = made.make(1)
    assert data.x.shape == (made.num_nodes, made.num_features)
    for node in range(made.centers):
        values, marks = read(made, data, node)
        if task is CountDistinct:
            expected = len(set(values)) - 1
        else:
            (rule,) = marks
            expected = sum(values) % 2 if rule == 0 else values[0]
            assert rule != 1 or len(set(values)) == 1
        assert int(data.y[node]) == expected
    assert (data.y[made.centers :] == -1).all()
    assert not (data.train_mask | data.val_mask | data.test_mask)[made.centers :].any()
    assert [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [36, 12, 12]


def test_graphs_have_the_shape_that_they_are_named_for() -> None:
    tree = to_networkx(NeighborhoodXOR(graph="tree").make(), to_undirected=True)
    assert nx.is_tree(tree)
    task = NeighborhoodXOR(centers=500)
    data = task.make()
    center, other = data.role[data.edge_index] == 0
    assert int((center & other).sum()) / task.centers == pytest.approx(3, abs=0.5)  # distractors of a centre
    assert data.num_edges / 2 == pytest.approx(task.num_edges, rel=0.1)
    assert data.is_undirected()


def test_what_distractors_have_is_independent_of_the_label() -> None:
    task = NeighborhoodCopy(centers=4000, graph="tree")
    data = task.make()
    own = data.x[:4000, :2].argmax(dim=1)
    assert float((own == data.y[:4000]).float().mean()) == pytest.approx(0.5, abs=0.03)


# (unique 1, unique 2, redundancy, synergy), worked out by hand in the docstrings.
KNOWN = {
    NeighborhoodXOR(): (0, 0, 0, 1),
    NeighborhoodXOR(informative=4): (0, 0, 0, 1),
    NeighborhoodCopy(): (0, 0, 1, 0),
    NeighborhoodUnique(): (1, 0, 0, 0),
    NeighborhoodDial(synergy=0.5, unique=0.2): (0.2, 0, 0.3, 0.5),
    CountDistinct(informative=2, values=4): (0, 0, 0, 0.8113),  # equal with probability 1/4: H(1/4)
}


@pytest.mark.parametrize("measure", ["wb", "broja"])
@pytest.mark.parametrize("task", KNOWN, ids=str)
def test_the_exact_decomposition(task: NeighborhoodTask, measure: Any) -> None:
    found = decompose(task.distribution(), measure=measure)
    assert (*found.unique, found.redundancy, found.synergy) == pytest.approx(KNOWN[task], abs=2e-3)
    assert found.total == pytest.approx(sum(KNOWN[task]), abs=1e-3)


@pytest.mark.parametrize("shares", [{"synergy": 1}, {"synergy": 0.25}, {"unique": 0.2}], ids=str)
def test_the_decomposition_of_what_is_drawn(shares: dict[str, float]) -> None:
    task = NeighborhoodDial(centers=4000, graph="tree", **shares)
    data = task.make()
    symbol = data.x @ 2.0 ** torch.arange(task.num_features)  # value and mark in one number
    slots = [symbol[data.role == role] for role in (1, 2)]
    found = decompose(torch.stack([*slots, data.y[:4000].float()], dim=1))
    exact = decompose(task.distribution())
    parts, expected = ((*one.unique, one.redundancy, one.synergy) for one in (found, exact))
    assert parts == pytest.approx(expected, abs=0.03)


def test_three_sources() -> None:
    found = decompose(NeighborhoodXOR(informative=3).distribution(3))
    assert found.atoms["{1:2:3}"] == pytest.approx(1)
    with pytest.raises(ValueError, match="sources must be 2 or 3"):
        NeighborhoodXOR().distribution(3)


@pytest.mark.parametrize("name", NEIGHBORHOOD_TASKS)
def test_registered(name: str) -> None:
    data, task = load(name, index=2), NEIGHBORHOOD_TASKS[name]
    assert torch.equal(data.x, task.make(2).x)
    assert data.num_classes == task.num_classes == int(data.y.max()) + 1
    assert abs(sum(outcome.probability for outcome in task.outcomes()) - 1) < 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NeighborhoodXOR(informative=1), "informative must be at least 2, got 1"),
        (lambda: NeighborhoodXOR(centers=5), "centers must be at least 10, got 5"),
        (lambda: NeighborhoodXOR(graph="ring"), "graph must be 'random' or 'tree', got 'ring'"),  # type: ignore[arg-type]
        (lambda: NeighborhoodDial(synergy=0.8, unique=0.4), "sum to at most 1"),
        (lambda: CountDistinct(values=1), "values must be at least 2"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
