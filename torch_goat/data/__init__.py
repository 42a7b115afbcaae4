"""Datasets by name, user tables, and samplers and memory-mapped graphs for mini-batches."""

from importlib import import_module
from typing import Any

_DATASETS = ("DATASETS", "DataError", "Dataset", "betweenness", "disease_sim", "effective_size", "load", "top2")
_TASKS = ("CountDistinct", "NeighborhoodCopy", "NeighborhoodDial", "NeighborhoodUnique", "NeighborhoodXOR")
_LOADER = ("CSC", "Blocks", "NeighborSampler", "neighbor_loader", "open_graph", "write_graph")
_HOMES = dict.fromkeys(_DATASETS + _TASKS, "datasets") | dict.fromkeys(_LOADER, "loader")
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Imports the subpackages on first use, which keeps the start of the command line fast."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
