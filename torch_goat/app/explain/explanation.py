import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from torch_goat.app.explain.steadiness import Stability
from torch_goat.experiments import NamedGraph


def in_units(named: NamedGraph, values: Tensor) -> Tensor:
    """Numbers as a network reads and gives them, as numbers of the target; classes stay as they are."""
    return values if named.classes else values * named.target_scale + named.target_mean


def truths(named: NamedGraph) -> Tensor:
    """The class or the target of every node ``[N]``."""
    return in_units(named, named.data.y.view(named.data.num_nodes, -1)[:, 0])


@dataclass(frozen=True)
class Prediction:
    """What a network says of a node.

    Args:
        value: The number of the class or, in regression, the predicted number.
        probability: That of the class; not a number in regression.
        truth: The class or the number in the data; a negative class or NaN if it is not known.
    """

    value: float
    probability: float
    truth: float


@dataclass(frozen=True)
class Effect:
    """What a neighbour contributes to a node's prediction.

    Args:
        neighbor: The neighbour.
        contribution: How much lower the prediction is without it: the log-odds of the predicted class or, in
            regression, the predicted number.
        without: What remains without it: the probability of that class, or the number.
    """

    neighbor: int
    contribution: float
    without: float


@dataclass(frozen=True)
class Interaction:
    """How far two neighbours are from contributing independently.

    Args:
        first: A neighbour.
        second: Another one.
        value: The contribution of both together less the sum of their contributions. Of two that speak for the
            prediction it is negative if one counts only with the other (synergy), positive if one stands in for the
            other (redundancy).
    """

    first: int
    second: int
    value: float


@dataclass(frozen=True)
class Reading:
    """How a head of a GOAT layer reads a node's neighbourhood, in which the node itself is unless the layer says not.

    Args:
        layer: The layer's number among the GOAT layers, from 1.
        head: The head's number, from 1.
        neighbors: The neighbours in order.
        coefficients: Their coefficients, which sum to one.
    """

    layer: int
    head: int
    neighbors: tuple[int, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class Explanation:
    """Why a network says what it says of a node.

    Args:
        node: The node.
        graph: The graph, for names.
        prediction: What the network says.
        readings: The learned order for every head of every GOAT layer; none of a network without such layers.
        effects: What every neighbour contributes, the strongest first.
        interactions: Of every two of the 20 strongest neighbours, the strongest first.
        stability: How much of the order other epochs and seeds share, where that is known.
    """

    node: int
    graph: NamedGraph
    prediction: Prediction
    readings: tuple[Reading, ...]
    effects: tuple[Effect, ...]
    interactions: tuple[Interaction, ...]
    stability: Stability

    @property
    def unit(self) -> str:
        """What contributions are measured in."""
        if self.graph.classes:
            return f"log-odds of class {self.label(self.prediction.value)}"
        return f"units of {self.graph.target or 'the target'}"

    def label(self, value: float) -> str:
        """A class by its name, a number as it is, nothing if it is not known."""
        if self.graph.classes:
            return self.graph.classes[int(value)] if value >= 0 else ""
        return f"{value:.4g}" if math.isfinite(value) else ""

    def to_dict(self) -> dict[str, Any]:
        """The explanation in names and numbers, for JSON; what is not known is ``None``."""
        ids, said = self.graph.ids, self.prediction
        return {
            "node": ids[self.node],
            "prediction": self._plain(said.value),
            "probability": said.probability if self.graph.classes else None,
            "truth": self._plain(said.truth),
            "unit": self.unit,
            "orders": [
                {
                    "layer": one.layer,
                    "head": one.head,
                    "neighbors": [ids[node] for node in one.neighbors],
                    "coefficients": list(one.coefficients),
                }
                for one in self.readings
            ],
            "contributions": [
                {"neighbor": ids[one.neighbor], "contribution": one.contribution, "without": one.without}
                for one in self.effects
            ],
            "interactions": [
                {"neighbors": [ids[one.first], ids[one.second]], "interaction": one.value} for one in self.interactions
            ],
            "stability": self.stability.to_dict(),
        }

    def _plain(self, value: float) -> str | float | None:
        if self.graph.classes:
            return self.label(value) or None
        return value if math.isfinite(value) else None
