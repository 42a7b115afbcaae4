"""Graph Ordering Attention for PyTorch Geometric."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_goat._version import __version__

if TYPE_CHECKING:
    from torch_goat.experiments.models import Network
    from torch_goat.ops.checks import set_checks
    from torch_goat.ops.ragged_rnn.backends import backends

__all__ = ["__version__", "backends", "load", "set_checks"]
_HOMES = {"backends": "torch_goat.ops.ragged_rnn.backends", "set_checks": "torch_goat.ops.checks"}


def __getattr__(name: str) -> Any:
    """Imports what needs PyTorch when it is asked for: meanwhile the command line can answer Ctrl-C."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The names that are not imported yet belong to the module too: completion and the API reference list them."""
    return sorted(globals().keys() | _HOMES.keys())


def load(folder: str | Path) -> "Network":
    """The trained network of a run folder, with its best weights, in evaluation, on the CPU.

    The folder holds TOML, JSON and safetensors files alone; nothing in it is executed.

    Args:
        folder: A run folder of ``goat train`` whose run is done.
    """
    from torch_goat.experiments.training.load import open_run  # here, so that the layers alone import quickly

    return open_run(folder).network
