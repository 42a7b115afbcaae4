"""Datasets by name, with split protocols, and generators of synthetic graphs."""

from torch_goat.data.datasets.cache import DataError as DataError
from torch_goat.data.datasets.dataset import Dataset as Dataset
from torch_goat.data.datasets.neighborhood import NEIGHBORHOOD_TASKS as NEIGHBORHOOD_TASKS
from torch_goat.data.datasets.neighborhood import CountDistinct as CountDistinct
from torch_goat.data.datasets.neighborhood import NeighborhoodCopy as NeighborhoodCopy
from torch_goat.data.datasets.neighborhood import NeighborhoodDial as NeighborhoodDial
from torch_goat.data.datasets.neighborhood import NeighborhoodTask as NeighborhoodTask
from torch_goat.data.datasets.neighborhood import NeighborhoodUnique as NeighborhoodUnique
from torch_goat.data.datasets.neighborhood import NeighborhoodXOR as NeighborhoodXOR
from torch_goat.data.datasets.registry import DATASETS as DATASETS
from torch_goat.data.datasets.registry import load as load
from torch_goat.data.datasets.synthetic import betweenness as betweenness
from torch_goat.data.datasets.synthetic import disease_sim as disease_sim
from torch_goat.data.datasets.synthetic import effective_size as effective_size
from torch_goat.data.datasets.synthetic import order_task as order_task
from torch_goat.data.datasets.synthetic import top2 as top2
