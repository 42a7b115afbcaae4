"""Graphs that are read in parts: neighbours sampled for mini-batches, and files larger than memory."""

from torch_goat.data.loader.blocks import Blocks
from torch_goat.data.loader.csc import CSC
from torch_goat.data.loader.folder import open_graph, write_graph
from torch_goat.data.loader.loaders import neighbor_loader
from torch_goat.data.loader.sampler import NeighborSampler

__all__ = ["CSC", "Blocks", "NeighborSampler", "neighbor_loader", "open_graph", "write_graph"]
