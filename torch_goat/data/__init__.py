"""Datasets by name, user tables, and samplers and memory-mapped graphs for mini-batches."""

from torch_goat.lazy import lazy_names

_DATASETS = ("DATASETS", "DataError", "Dataset", "betweenness", "disease_sim", "effective_size", "load", "top2")
_TASKS = ("CountDistinct", "NeighborhoodCopy", "NeighborhoodDial", "NeighborhoodUnique", "NeighborhoodXOR")
_LOADER = ("CSC", "Blocks", "NeighborSampler", "neighbor_loader", "open_graph", "write_graph")
__all__ = sorted(_DATASETS + _TASKS + _LOADER)
__getattr__, __dir__ = lazy_names(__name__, {"datasets": _DATASETS + _TASKS, "loader": _LOADER})
