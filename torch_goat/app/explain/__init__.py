"""Why a network says what it says of a node: what it reads, in which order, and what every neighbour contributes."""

from torch_goat.app.explain.explanation import Effect, Explanation, Interaction, Prediction, Reading
from torch_goat.app.explain.node import contributions, explain, readings
from torch_goat.app.explain.removals import Graph, Removal, neighbors, outputs_without
from torch_goat.app.explain.steadiness import Agreement, Stability, stability

__all__ = [
    "Agreement",
    "Effect",
    "Explanation",
    "Graph",
    "Interaction",
    "Prediction",
    "Reading",
    "Removal",
    "Stability",
    "contributions",
    "explain",
    "neighbors",
    "outputs_without",
    "readings",
    "stability",
]
