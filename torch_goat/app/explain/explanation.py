import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torch_goat.app.explain.removals import Removal, forward, neighbors, outputs_without
from torch_goat.app.explain.stability import Stability, sample, stability
from torch_goat.experiments import NamedGraph, Run, RunError
from torch_goat.experiments.models import Network

STRONGEST: Final = 20  # neighbours whose interactions are computed


class Prediction(NamedTuple):
    """The prediction of a node: a class, or a number for regression."""

    value: float
    probability: float  # of the predicted class; NaN for regression
    truth: float  # a negative class or NaN if unknown


class Effect(NamedTuple):
    """The contribution of a neighbour to a prediction.

    It is how much the prediction drops without the neighbour: the log-odds of the predicted class or, for regression,
    the predicted number.
    """

    neighbor: int
    contribution: float
    without: float  # the probability of that class, or the predicted number, without the neighbour


class Interaction(NamedTuple):
    """The interaction of two neighbours: their contribution together minus the sum of their contributions.

    If both support the prediction, a negative value means that one only counts together with the other (synergy), a
    positive value that one can replace the other (redundancy).
    """

    first: int
    second: int
    value: float


class Reading(NamedTuple):
    """The order in which a head of a GOAT layer reads a node's neighbourhood, including added self loops."""

    layer: int  # among the GOAT layers, from 1
    head: int  # from 1
    neighbors: tuple[int, ...]
    coefficients: tuple[float, ...]  # they sum to one


@dataclass(frozen=True)
class Explanation:
    """An explanation of the prediction of a node."""

    node: int
    graph: NamedGraph
    prediction: Prediction
    readings: tuple[Reading, ...]  # one per head of every GOAT layer
    effects: tuple[Effect, ...]  # of all neighbours, the strongest first
    interactions: tuple[Interaction, ...]  # of the 20 strongest neighbours, the strongest first
    stability: Stability

    def __repr__(self) -> str:
        said = self.to_dict()
        shown = {key: said[key] for key in ("node", "prediction", "probability", "truth") if said[key] is not None}
        digits = 4 if self.graph.classes else self.graph.digits  # of the probability, or of the number
        parts = [
            f"{key}={value:.{digits}g}" if isinstance(value, float) else f"{key}={value!r}"
            for key, value in shown.items()
        ]
        return f"Explanation({', '.join(parts)}, neighbors={len(self.effects)})"

    @property
    def unit(self) -> str:
        """The unit of contributions."""
        if self.graph.classes:
            return f"log-odds of class {self.label(self.prediction.value)}"
        return f"units of {self.graph.target or 'the target'}"

    def label(self, value: float) -> str:
        """The name of a class or a formatted number; empty if unknown."""
        if self.graph.classes:
            return self.graph.classes[int(value)] if value >= 0 else ""
        return f"{value:.{self.graph.digits}g}" if math.isfinite(value) else ""

    def to_dict(self) -> dict[str, Any]:
        """The explanation with names, for JSON; unknown values are ``None``."""
        ids, said = self.graph.ids, self.prediction

        def plain(value: float) -> str | float | None:
            return (self.label(value) or None) if self.graph.classes or not math.isfinite(value) else value

        return {
            "node": ids[self.node],
            "prediction": plain(said.value),
            "probability": said.probability if self.graph.classes else None,
            "truth": plain(said.truth),
            "unit": self.unit,
            "orders": [
                one._asdict()
                | {"neighbors": [ids[node] for node in one.neighbors], "coefficients": list(one.coefficients)}
                for one in self.readings
            ],
            "contributions": [one._asdict() | {"neighbor": ids[one.neighbor]} for one in self.effects],
            "interactions": [
                {"neighbors": [ids[one.first], ids[one.second]], "interaction": one.value} for one in self.interactions
            ],
            "stability": self.stability.to_dict(),
        }


def explain(
    run: Run, node: str, *, data_dir: str | Path | None = None, others: Iterable[Run] | None = None
) -> Explanation:
    """Explains the prediction of a trained network for a node.

    Computes the prediction without each neighbour, and without each pair of the 20 neighbours with the largest
    contributions; see :func:`~torch_goat.app.explain.outputs_without`.

    Args:
        run: The run.
        node: The name of the node.
        data_dir: The folder of the datasets.
        others: Runs to search for other seeds; by default those in the same parent folder.
    """
    check_learned_order(run)
    graph = run.graph(data_dir)
    number = graph.node(node)
    out, orderings = forward(run.network, graph.data)
    column = _column(out[number], graph)
    effects = contributions(run.network, graph, out, [number])
    compared = torch.cat([torch.tensor([number]), sample(graph.data.num_nodes)])
    value = float(_value(out[number], column, graph))
    return Explanation(
        node=number,
        graph=graph,
        prediction=Prediction(
            value=float(column) if graph.classes else value,
            probability=value if graph.classes else float("nan"),
            truth=float(graph.truth[number]),
        ),
        readings=tuple(
            Reading(
                layer,
                head + 1,
                tuple(ordering.neighbors(number, head).tolist()),
                tuple(ordering.weights(number, head).tolist()),
            )
            for layer, ordering in enumerate(orderings, start=1)
            for head in range(ordering.heads)
        ),
        effects=tuple(effects[number]),
        interactions=tuple(interactions(run.network, graph, out, effects)[number]),
        stability=stability(run, graph.data, orderings, others, compared, data_dir),
    )


def contributions(network: Network, graph: NamedGraph, out: Tensor, nodes: Sequence[int]) -> dict[int, list[Effect]]:
    """The contributions of all neighbours of some nodes, the strongest first, by node.

    Args:
        network: The network, in evaluation mode.
        graph: The graph.
        out: The output of the network on it ``[N, C]``.
        nodes: The nodes.
    """
    around = {node: neighbors(graph.data, node).tolist() for node in nodes}
    removals = [Removal(node, (source,)) for node, sources in around.items() for source in sources]
    parts = outputs_without(network, graph.data, removals).split([len(sources) for sources in around.values()])
    found = {}
    for (node, sources), without in zip(around.items(), parts, strict=True):
        column = _column(out[node], graph)
        drop = _score(out[node], column, graph) - _score(without, column, graph)
        values = zip(sources, drop.tolist(), _value(without, column, graph).tolist(), strict=True)
        found[node] = sorted((Effect(*one) for one in values), key=lambda effect: -abs(effect.contribution))
    return found


def interactions(
    network: Network,
    graph: NamedGraph,
    out: Tensor,
    effects: Mapping[int, Sequence[Effect]],
    strongest: int = STRONGEST,
) -> dict[int, list[Interaction]]:
    """The interactions of the neighbours with the strongest contributions, the strongest first, by node.

    Args:
        network: The network, in evaluation mode.
        graph: The graph.
        out: The output of the network on it ``[N, C]``.
        effects: The contributions of all neighbours of some nodes, from :func:`contributions`.
        strongest: The number of neighbours of a node whose pairs are removed together.
    """
    pairs = {node: list(combinations(found[:strongest], 2)) for node, found in effects.items()}
    removals = [Removal(node, (a.neighbor, b.neighbor)) for node, some in pairs.items() for a, b in some]
    parts = outputs_without(network, graph.data, removals).split([len(some) for some in pairs.values()])
    found = {}
    for (node, some), without in zip(pairs.items(), parts, strict=True):
        column = _column(out[node], graph)
        drops = (_score(out[node], column, graph) - _score(without, column, graph)).tolist()
        values = [
            Interaction(a.neighbor, b.neighbor, both - a.contribution - b.contribution)
            for (a, b), both in zip(some, drops, strict=True)
        ]
        found[node] = sorted(values, key=lambda one: -abs(one.value))
    return found


def learns_order(run: Run) -> bool:
    """Whether a run was trained without fixed orders, which are not stored with the weights."""
    return not run.experiment.training.holds_orderings


def check_learned_order(run: Run) -> None:
    """Raises an error if a run cannot be explained because it was trained with fixed orders."""
    if not learns_order(run):
        raise RunError(
            f"the run in {run.folder} was trained with fixed orders, which are not stored with the network; "
            "explain a run without fixed_ordering and orderings_files."
        )


def _column(out: Tensor, graph: NamedGraph) -> int:
    """The predicted class of an output ``[C]``, or the column of the target."""
    return int(graph.decision.classes(out)) if graph.classes else 0


def _score(out: Tensor, column: int, graph: NamedGraph) -> Tensor:
    """The calibrated log-odds of a class, which do not saturate, or the number, in outputs ``[..., C]``."""
    out = out.double()
    if not graph.classes:
        return graph.in_units(out[..., column])
    out = out / graph.decision.temperature
    others = torch.arange(out.size(-1)) != column
    return out[..., column] - out[..., others].logsumexp(dim=-1)


def _value(out: Tensor, column: int, graph: NamedGraph) -> Tensor:
    """The probability of a class, or the number, in outputs ``[..., C]``."""
    return graph.decision.probabilities(out)[..., column] if graph.classes else _score(out, column, graph)
