"""Graphs to learn from."""

from torch_goat.data.datasets.dataset import Dataset
from torch_goat.data.datasets.disease_sim import disease_sim
from torch_goat.data.datasets.errors import DataError
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
from torch_goat.data.datasets.structure import betweenness, effective_size
from torch_goat.data.datasets.top2 import top2

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
