"""Graph Ordering Attention for PyTorch Geometric."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch_goat._version import __version__
from torch_goat.checks import set_checks
from torch_goat.sequence.backends import backends

if TYPE_CHECKING:
    from torch_goat.models import Network

__all__ = ["__version__", "backends", "load", "set_checks"]


def load(folder: str | Path) -> "Network":
    """The trained network of a run folder, with its best weights, in evaluation, on the CPU.

    The folder holds TOML, JSON and safetensors files alone; nothing in it is executed.

    Args:
        folder: A run folder of ``goat train`` whose run is done.
    """
    from torch_goat.training.load import open_run  # here, so that the layers alone import quickly

    return open_run(folder).network
