"""Graphs that are read in parts: neighbours sampled for mini-batches, and files larger than memory."""

from torch_goat.loader.blocks import Blocks
from torch_goat.loader.csc import CSC
from torch_goat.loader.folder import open_graph, write_graph
from torch_goat.loader.inference import Inference
from torch_goat.loader.loaders import neighbor_loader
from torch_goat.loader.sampler import NeighborSampler

__all__ = ["CSC", "Blocks", "Inference", "NeighborSampler", "neighbor_loader", "open_graph", "write_graph"]
