"""The description of a search: what ``search.toml`` holds."""

import hashlib
from dataclasses import dataclass
from typing import Any, Final, Literal

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables.options import Task
from torch_goat.experiments import Experiment
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER
from torch_goat.settings import SettingsError, nearest

METRICS: Final = {"classification": ("accuracy", "macro_f1", "roc_auc"), "regression": ("mse", "r2")}
ONE_SPLIT: Final = ("time", "masks")  # split protocols of user graphs with a single split


@dataclass(frozen=True)
class Search:
    """A search, except for its number of trials. Run one at a time without pruning, the trials are reproducible."""

    experiment: Experiment  # the starting point: all settings that are not searched, and the seed of every training
    space: dict[str, tuple[Any, ...]]  # the values of each key
    indices: tuple[int, ...] = (0,)  # the graphs or splits of a trial; its value is the mean over them
    metric: str = "accuracy"  # of the validation nodes, to optimise
    method: Literal["tpe", "grid"] = "tpe"  # tree-structured Parzen estimators, or all points in order
    seed: int = 0  # of the sampler
    prune: bool = False  # whether to stop trials early that are worse than the median

    def __post_init__(self) -> None:
        one = self.experiment
        if not self.indices or len(set(self.indices)) < len(self.indices):
            raise SettingsError(f"indices must be one or more distinct numbers, got {list(self.indices)}.")
        if one.tables is None and not one.graph:
            if one.dataset not in DATASETS:
                raise SettingsError(f"there is no dataset {one.dataset!r}{nearest(one.dataset, DATASETS)}")
            check_metric(one.dataset, DATASETS[one.dataset].task, self.metric)
            for index in self.indices:
                DATASETS[one.dataset].check(one.split, index)
        elif min(self.indices) < 0 or (one.split in ONE_SPLIT and self.indices != (0,)):
            known = "index 0" if one.split in ONE_SPLIT else "indices from 0"
            raise SettingsError(f"{one.dataset} has {known} under the split {one.split!r}, got {list(self.indices)}.")
        watched = next((names[0] for names in METRICS.values() if self.metric in names), self.metric)
        if self.prune and self.metric != watched:
            raise SettingsError(f"pruning uses the {watched}, not the {self.metric}; leave out --prune.")

    @property
    def name(self) -> str:
        return f"{self.experiment.dataset}-{self.experiment.model.name}-{fingerprint(self)}"

    @property
    def minimize(self) -> bool:
        return self.metric in LOWER_IS_BETTER


def check_metric(name: str, task: Task, metric: str) -> None:
    """Raises an error if the task of a graph does not have a metric."""
    if metric not in METRICS[task]:
        raise SettingsError(f"{name} has no metric {metric!r}{nearest(metric, METRICS[task])}")


def fingerprint(value: Any) -> str:
    """Eight hexadecimal digits that identify all settings of a dataclass."""
    return hashlib.sha256(settings.dumps(value).encode()).hexdigest()[:8]
