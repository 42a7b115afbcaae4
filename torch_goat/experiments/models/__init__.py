"""GOAT and baseline networks, which differ only in their layers."""

from torch_goat.experiments.models.export import export_program
from torch_goat.experiments.models.janossy import JanossyConv
from torch_goat.experiments.models.layers import KINDS, degree_histogram
from torch_goat.experiments.models.network import Network, paper_network
from torch_goat.experiments.models.options import ModelOptions

MODELS = {name: kind.description for name, kind in KINDS.items() if not kind.fitted}  # networks that are trained
FITTED = {name: kind.description for name, kind in KINDS.items() if kind.fitted}  # models of the features alone

__all__ = [
    "FITTED",
    "MODELS",
    "JanossyConv",
    "ModelOptions",
    "Network",
    "degree_histogram",
    "export_program",
    "paper_network",
]
