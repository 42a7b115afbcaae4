"""Graph Ordering Attention for PyTorch Geometric."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch_goat._version import __version__
from torch_goat.lazy import lazy_names

if TYPE_CHECKING:
    from torch_goat.app.estimators import NodeClassifier, NodeRegressor
    from torch_goat.app.leaderboard import compare
    from torch_goat.experiments.models import Network
    from torch_goat.nn.warm_up import warm_up
    from torch_goat.ops.checks import set_checks
    from torch_goat.ops.ragged_rnn.backends import backends

_HOMES = {
    "ops.ragged_rnn.backends": ("backends",),
    "ops.checks": ("set_checks",),
    "app.estimators": ("NodeClassifier", "NodeRegressor"),
    "app.leaderboard": ("compare",),
    "nn.warm_up": ("warm_up",),
}
__all__ = ["NodeClassifier", "NodeRegressor", "__version__", "backends", "compare", "load", "set_checks", "warm_up"]
__getattr__, __dir__ = lazy_names(__name__, _HOMES)


def load(folder: str | Path) -> "Network":
    """Loads the trained network of a run folder with its best weights, on the CPU and in evaluation mode.

    Run folders hold no code, and nothing in them is executed.

    Args:
        folder: The folder of a finished run of ``goat train``.
    """
    from torch_goat.experiments.run import Run  # here, so that the layers alone import quickly

    return Run(folder).network
