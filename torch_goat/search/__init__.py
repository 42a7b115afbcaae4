"""The search for hyperparameters. ``torch_goat.search.tune`` runs one and needs Optuna; the rest does not."""

from torch_goat.search.defaults import own_starting_point, starting_point
from torch_goat.search.search import Search, fingerprint
from torch_goat.search.space import Space, parse_space, search_space

__all__ = ["Search", "Space", "fingerprint", "own_starting_point", "parse_space", "search_space", "starting_point"]
