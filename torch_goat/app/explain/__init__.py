"""Explanations of single predictions: learned orders, contributions of neighbours, and their stability."""

from torch_goat.app.explain.explanation import (
    Effect,
    Explanation,
    Interaction,
    Prediction,
    Reading,
    contributions,
    explain,
)
from torch_goat.app.explain.removals import Removal, outputs_without
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
    "outputs_without",
    "stability",
]
