"""Graph Ordering Attention for PyTorch Geometric."""

from torch_goat._version import __version__
from torch_goat.checks import set_checks
from torch_goat.sequence.backends import backends

__all__ = ["__version__", "backends", "set_checks"]
