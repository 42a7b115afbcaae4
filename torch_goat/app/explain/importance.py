"""Importance of columns: how much worse predictions become if the values of a column are permuted."""

import copy
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.data.tables import Schema
from torch_goat.data.tables.schema import Column
from torch_goat.experiments import NamedGraph
from torch_goat.experiments.intervals import Z95
from torch_goat.experiments.training import metrics
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER

MAX_COLUMNS: Final = 60  # more are not tried
PERMUTATIONS: Final = 5  # of a column in a small graph
WORK: Final = 20_000_000  # nodes and edges of all forward passes with more than one permutation of each column
DRAWS: Final = 50  # resamples of nodes and permutations


class Feature(NamedTuple):
    """A column of the tables, or a feature without a name, and its channels in ``x`` or ``edge_attr``."""

    name: str
    start: int
    end: int
    of_edges: bool = False
    column: Column | None = None  # how it was encoded, if it is a column of a table


class Importance(NamedTuple):
    """How much the metric gets worse if a column is permuted among all nodes or edges."""

    feature: Feature
    drop: float  # of a score, or the increase of an error
    interval: tuple[float, float]  # 95 %, over nodes and permutations


def features(data: Data, schema: Schema | None) -> list[Feature]:
    """The columns that a network reads, or the features of a graph that is not from tables."""
    if schema is None or not schema.nodes:
        names = ["constant", "degree"] if schema is not None else map(str, range(data.num_features))
        found = [Feature(f"feature {name}", at, at + 1) for at, name in enumerate(names)]
    else:
        found = _placed(schema.nodes, of_edges=False)
    if data.get("edge_attr") is None:
        return found
    if schema is None:
        channels = range(data.num_edge_features)
        return found + [Feature(f"edge feature {at}", at, at + 1, of_edges=True) for at in channels]
    return found + _placed(schema.edges, of_edges=True)


def _placed(columns: Sequence[Column], of_edges: bool) -> list[Feature]:
    found, start = [], 0
    for column in columns:
        name = f"{column.name} (of edges)" if of_edges else column.name
        found.append(Feature(name, start, start + column.width, of_edges, column))
        start += column.width
    return found


def importance(
    predict: Callable[[Data], Tensor], graph: NamedGraph, columns: Sequence[Feature], metric: str, nodes: Tensor
) -> list[Importance]:
    """The importance of columns for the predictions of some nodes, the most important first.

    A column is permuted among all nodes, or all edges: both its values at the nodes themselves and those at their
    neighbours change. Columns with the same information replace each other, so neither seems important. The interval is
    a normal one, with the standard deviation of resamples of the nodes and of the permutations.

    Args:
        predict: The trained model: its output ``[N, C]`` on a graph.
        graph: The graph.
        columns: The columns, see :func:`features`.
        metric: The name of a metric in :mod:`torch_goat.experiments.training.metrics`.
        nodes: The nodes to evaluate ``[n]``, at least one.
    """
    data, y = graph.data, graph.truth[nodes]
    size = data.num_nodes + data.edge_index.size(1)
    repeats = max(1, min(PERMUTATIONS, WORK // max(1, size * len(columns))))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(nodes), (DRAWS, len(nodes)), generator=generator)
    chosen = torch.randint(repeats, (DRAWS, repeats), generator=generator)
    sign = 1 if metric in LOWER_IS_BETTER else -1

    def score(out: Tensor, place: Tensor) -> float:
        """The metric of outputs ``[R, n, C]`` at the nodes at some places, of all permutations together."""
        part, target = out[:, place], y[place].repeat(out.size(0))
        if not graph.classes:
            part, target = graph.in_units(part), target.view(-1, 1)
        return float(getattr(metrics, metric)(part.reshape(-1, out.size(-1)), target))

    whole = torch.arange(len(nodes))
    before = predict(data)[nodes].expand(repeats, -1, -1)  # with the rounding errors of as many permutations
    base = [score(before, place) for place in (whole, *drawn)]
    found = []
    for column in columns:
        after = torch.stack([predict(_permuted(data, column, generator))[nodes] for _ in range(repeats)])
        drop = sign * (score(after, whole) - base[0]) + 0.0  # without a negative zero
        draws = [
            sign * (score(after[some], place) - at) for some, place, at in zip(chosen, drawn, base[1:], strict=True)
        ]
        half = Z95 * float(torch.tensor(draws).nan_to_num().std())
        found.append(Importance(column, drop, (drop - half, drop + half)))
    return sorted(found, key=lambda one: -one.drop)


def _permuted(data: Data, column: Feature, generator: torch.Generator) -> Data:
    key = "edge_attr" if column.of_edges else "x"
    values = data[key].clone()
    place = torch.randperm(values.size(0), generator=generator)
    values.view(values.size(0), -1)[:, column.start : column.end] = data[key].view(values.size(0), -1)[
        place, column.start : column.end
    ]
    permuted = copy.copy(data)
    permuted[key] = values
    return permuted
