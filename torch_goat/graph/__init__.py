"""Graphs as a layer reads them: every form of adjacency becomes one :class:`Neighborhoods`."""

from torch_goat.graph.adjacency import to_edges
from torch_goat.graph.neighborhoods import Neighborhoods, neighborhoods
from torch_goat.graph.selection import keep_random, keep_top, random_order

__all__ = ["Neighborhoods", "keep_random", "keep_top", "neighborhoods", "random_order", "to_edges"]
