"""Graphs as a layer reads them: every form of adjacency becomes one :class:`Neighborhoods`."""

from torch_goat.graph.adjacency import to_edges
from torch_goat.graph.memory import derived
from torch_goat.graph.neighborhoods import Neighborhoods, neighborhoods
from torch_goat.graph.selection import keep_random, keep_top

__all__ = ["Neighborhoods", "derived", "keep_random", "keep_top", "neighborhoods", "to_edges"]
