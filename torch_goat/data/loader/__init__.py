"""Neighbour sampling for mini-batches, exact blocks, and graphs in memory-mapped files."""

from torch_goat.data.loader.blocks import Blocks
from torch_goat.data.loader.csc import CSC
from torch_goat.data.loader.folder import open_graph, write_graph
from torch_goat.data.loader.sampler import NeighborSampler, neighbor_loader

__all__ = ["CSC", "Blocks", "NeighborSampler", "neighbor_loader", "open_graph", "write_graph"]
