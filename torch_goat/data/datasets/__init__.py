"""Datasets by name, with split protocols, and generators of synthetic graphs."""

from torch_goat.data.datasets.cache import DataError
from torch_goat.data.datasets.dataset import Dataset
from torch_goat.data.datasets.neighborhood import (
    NEIGHBORHOOD_TASKS,
    CountDistinct,
    NeighborhoodCopy,
    NeighborhoodDial,
    NeighborhoodTask,
    NeighborhoodUnique,
    NeighborhoodXOR,
)
from torch_goat.data.datasets.registry import DATASETS, load
from torch_goat.data.datasets.synthetic import betweenness, disease_sim, effective_size, top2

__all__ = [
    "DATASETS",
    "NEIGHBORHOOD_TASKS",
    "CountDistinct",
    "DataError",
    "Dataset",
    "NeighborhoodCopy",
    "NeighborhoodDial",
    "NeighborhoodTask",
    "NeighborhoodUnique",
    "NeighborhoodXOR",
    "betweenness",
    "disease_sim",
    "effective_size",
    "load",
    "top2",
]
