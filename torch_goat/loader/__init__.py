"""Graphs that are read in parts: neighbours sampled for mini-batches, and files larger than memory."""

from torch_goat.loader.csc import CSC
from torch_goat.loader.loaders import neighbor_loader
from torch_goat.loader.sampler import NeighborSampler

__all__ = ["CSC", "NeighborSampler", "neighbor_loader"]
