"""GOAT and baseline networks, which differ only in their layers."""

# ruff: noqa: F401  the imports are for type checkers; __all__ gets the same names from _HOMES
from typing import TYPE_CHECKING

from torch_goat.lazy import lazy_names

if TYPE_CHECKING:
    from torch_goat.experiments.models.export import export_program
    from torch_goat.experiments.models.janossy import JanossyConv
    from torch_goat.experiments.models.kinds import FITTED, MODELS
    from torch_goat.experiments.models.layers import degree_histogram
    from torch_goat.experiments.models.network import Network, paper_network
    from torch_goat.experiments.models.options import ModelOptions

_HOMES = {
    "export": ("export_program",),
    "janossy": ("JanossyConv",),
    "kinds": ("FITTED", "MODELS"),
    "layers": ("degree_histogram",),
    "network": ("Network", "paper_network"),
    "options": ("ModelOptions",),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
