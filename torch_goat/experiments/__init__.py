"""Training, the networks to compare, run folders, hyperparameter search, result tables and information measures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_goat.experiments.comparison import compare_runs
    from torch_goat.experiments.models import ModelOptions
    from torch_goat.experiments.own_graph import ModelComparison, compare_models
    from torch_goat.experiments.plan import PlannedRun, read_plan, run_plan, write_plan
    from torch_goat.experiments.pool import Event
    from torch_goat.experiments.predictions import Predictions, predict
    from torch_goat.experiments.run import NamedGraph, Run, RunError, find_runs, finished
    from torch_goat.experiments.training.fit import Observer, fit
    from torch_goat.experiments.training.interrupt import Interrupted
    from torch_goat.experiments.training.loop import Epoch
    from torch_goat.experiments.training.options import Experiment, TrainingOptions
    from torch_goat.experiments.training.result import Result
    from torch_goat.experiments.training.tensorboard import TensorBoard
    from torch_goat.experiments.training.train import train

_HOMES = {
    "comparison": ("compare_runs",),
    "models": ("ModelOptions",),
    "own_graph": ("ModelComparison", "compare_models"),
    "plan": ("PlannedRun", "read_plan", "run_plan", "write_plan"),
    "pool": ("Event",),
    "predictions": ("Predictions", "predict"),
    "run": ("NamedGraph", "Run", "RunError", "find_runs", "finished"),
    "training.fit": ("Observer", "fit"),
    "training.interrupt": ("Interrupted",),
    "training.loop": ("Epoch",),
    "training.options": ("Experiment", "TrainingOptions"),
    "training.result": ("Result",),
    "training.tensorboard": ("TensorBoard",),
    "training.train": ("train",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "Epoch",
    "Event",
    "Experiment",
    "Interrupted",
    "ModelComparison",
    "ModelOptions",
    "NamedGraph",
    "Observer",
    "PlannedRun",
    "Predictions",
    "Result",
    "Run",
    "RunError",
    "TensorBoard",
    "TrainingOptions",
    "compare_models",
    "compare_runs",
    "find_runs",
    "finished",
    "fit",
    "predict",
    "read_plan",
    "run_plan",
    "train",
    "write_plan",
]


def __getattr__(name: str) -> Any:
    """Imports a name on first use, so that one module of this package does not import all others."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
