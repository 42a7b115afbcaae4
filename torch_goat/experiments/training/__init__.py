"""Training on one graph: in memory (:func:`fit`), in a run folder (:func:`train`), and many runs at a time."""

from torch_goat.experiments.training.fit import Observer, fit
from torch_goat.experiments.training.folder import RunError, finished
from torch_goat.experiments.training.interrupt import Interrupted
from torch_goat.experiments.training.jobs import Event, run_plan
from torch_goat.experiments.training.load import NamedGraph, Run, open_run
from torch_goat.experiments.training.loop import Epoch
from torch_goat.experiments.training.options import Experiment, TrainingOptions
from torch_goat.experiments.training.plan import PlannedRun, read_plan, write_plan
from torch_goat.experiments.training.predict import Predictions, predict
from torch_goat.experiments.training.result import Result
from torch_goat.experiments.training.run import train
from torch_goat.experiments.training.tensorboard import TensorBoard
from torch_goat.files import Busy

__all__ = [
    "Busy",
    "Epoch",
    "Event",
    "Experiment",
    "Interrupted",
    "NamedGraph",
    "Observer",
    "PlannedRun",
    "Predictions",
    "Result",
    "Run",
    "RunError",
    "TensorBoard",
    "TrainingOptions",
    "finished",
    "fit",
    "open_run",
    "predict",
    "read_plan",
    "run_plan",
    "train",
    "write_plan",
]
