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
    """Imports what needs PyTorch on first use: until then the command line can respond to Ctrl-C."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(globals().keys() | _HOMES.keys())


def load(folder: str | Path) -> "Network":
    """Loads the trained network of a run folder, with its best weights, in evaluation mode, on the CPU.

    Run folders hold TOML, JSON and safetensors files only; nothing in them is executed.

    Args:
        folder: The folder of a finished run of ``goat train``.
    """
    from torch_goat.experiments.run import Run  # here, so that the layers alone import quickly

    return Run(folder).network
