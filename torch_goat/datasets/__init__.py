"""Graphs to learn from."""

from torch_goat.datasets.top2 import top2

__all__ = ["top2"]
