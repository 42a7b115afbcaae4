"""Hyperparameter search with Optuna, which only ``tune`` imports."""

from torch_goat.experiments.search.defaults import own_starting_point as own_starting_point
from torch_goat.experiments.search.defaults import starting_point as starting_point
from torch_goat.experiments.search.search import Search as Search
from torch_goat.experiments.search.search import Space as Space
from torch_goat.experiments.search.search import fingerprint as fingerprint
from torch_goat.experiments.search.search import paper_grid as paper_grid
from torch_goat.experiments.search.search import parse_space as parse_space
from torch_goat.experiments.search.search import search_space as search_space
