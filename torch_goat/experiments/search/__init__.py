"""Hyperparameter search with Optuna, which only ``tune`` imports."""

from torch_goat.experiments.search.defaults import own_starting_point, starting_point
from torch_goat.experiments.search.search import Search, fingerprint
from torch_goat.experiments.search.space import Space, paper_grid, parse_space, search_space

__all__ = [
    "Search",
    "Space",
    "fingerprint",
    "own_starting_point",
    "paper_grid",
    "parse_space",
    "search_space",
    "starting_point",
]
