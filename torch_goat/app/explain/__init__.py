"""Explanations of single predictions: learned orders, contributions of neighbours, and their stability."""

from torch_goat.app.explain.explanation import (
    Effect,
    Explanation,
    Interaction,
    Prediction,
    Reading,
    contributions,
    explain,
    readings,
)
from torch_goat.app.explain.removals import Removal, neighbors, outputs_without
from torch_goat.app.explain.stability import Agreement, Stability, stability

__all__ = [
    "Agreement",
    "Effect",
    "Explanation",
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
