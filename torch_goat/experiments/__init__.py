"""Training, the networks to compare, run folders, hyperparameter search, result tables and information measures."""

# ruff: noqa: F401  the imports are for type checkers; __all__ gets the same names from _HOMES
from typing import TYPE_CHECKING

from torch_goat.lazy import lazy_names

if TYPE_CHECKING:
    from torch_goat.experiments.comparison import compare_runs
    from torch_goat.experiments.models import ModelOptions
    from torch_goat.experiments.named_graph import NamedGraph
    from torch_goat.experiments.own_graph import ModelComparison, compare_models
    from torch_goat.experiments.plan import PlannedRun, read_plan, run_plan, write_plan
    from torch_goat.experiments.pool import Event
    from torch_goat.experiments.predictions import Predictions, predict
    from torch_goat.experiments.run import Run, RunError, find_runs, finished
    from torch_goat.experiments.training.fit import Observer, fit
    from torch_goat.experiments.training.interrupt import Interrupted
    from torch_goat.experiments.training.loggers import MLflow, TensorBoard, WandB
    from torch_goat.experiments.training.options import Experiment, TrainingOptions
    from torch_goat.experiments.training.result import Epoch, Result
    from torch_goat.experiments.training.train import train
    from torch_goat.experiments.verdict import Difference, Verdict

_HOMES = {
    "comparison": ("compare_runs",),
    "models": ("ModelOptions",),
    "named_graph": ("NamedGraph",),
    "own_graph": ("ModelComparison", "compare_models"),
    "plan": ("PlannedRun", "read_plan", "run_plan", "write_plan"),
    "pool": ("Event",),
    "predictions": ("Predictions", "predict"),
    "run": ("Run", "RunError", "find_runs", "finished"),
    "training.fit": ("Observer", "fit"),
    "training.interrupt": ("Interrupted",),
    "training.loggers": ("MLflow", "TensorBoard", "WandB"),
    "training.options": ("Experiment", "TrainingOptions"),
    "training.result": ("Epoch", "Result"),
    "training.train": ("train",),
    "verdict": ("Difference", "Verdict"),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
