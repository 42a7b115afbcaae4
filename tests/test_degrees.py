"""What the degrees tell of the structural tasks, against NetworkX's counts and NumPy's least squares."""

import json
from pathlib import Path

import degrees
import networkx as nx
import numpy as np
import pytest
from torch_geometric.utils import to_networkx

from torch_goat.data.datasets import load

RESULTS = Path(__file__).parents[1] / "results/structure"


MEASURED = json.loads((RESULTS / "degrees.json").read_text())
ERRORS = {(row["task"], row["known"]): row["values"] for row in MEASURED}


def test_the_table_is_of_the_values() -> None:
    assert (RESULTS / "degrees.md").read_text() == degrees.markdown(MEASURED)
    assert set(ERRORS) == {(task, known) for task in degrees.TASKS for known in degrees.KNOWN}
    assert {len(values) for values in ERRORS.values()} == {10}


@pytest.mark.parametrize("task", ["betweenness-100", "effective-size-100"])
@pytest.mark.parametrize("index", [0, 7])
def test_the_errors_are_those_of_a_second_count(task: str, index: int) -> None:
    data = load(task, index=index)
    graph = to_networkx(data, to_undirected=True)
    triangles = nx.triangles(graph)
    known: dict[str, list[list[float]]] = {name: [] for name in degrees.KNOWN}
    for node in graph:
        own = [1.0, graph.degree[node], graph.degree[node] ** 2]
        theirs = [graph.degree[other] for other in graph[node]]
        ties = [triangles[node], triangles[node] / max(len(theirs), 1)]
        more = ([1.0], own, [*own, sum(theirs), sum(1 / one for one in theirs)], [*own, *ties])
        for name, values in zip(degrees.KNOWN, more, strict=True):
            known[name].append(values)
    y, train, test = data.y.double().numpy().ravel(), data.train_mask.numpy(), data.test_mask.numpy()
    for name, lists in known.items():
        x = np.array(lists)
        weights, *_ = np.linalg.lstsq(x[train], y[train], rcond=None)
        error = np.mean((x[test] @ weights - y[test]) ** 2)
        assert ERRORS[task, name][index] == pytest.approx(error, rel=1e-6, abs=1e-12)
