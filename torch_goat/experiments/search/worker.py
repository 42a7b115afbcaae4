"""A process of a search: one trial after the other, until there is none left."""

import math
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import torch
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial

from torch_goat.data.datasets import DataError
from torch_goat.experiments import Epoch, Interrupted, RunError, train
from torch_goat.experiments.search.search import Search
from torch_goat.experiments.search.storage import answering
from torch_goat.experiments.search.study import Study
from torch_goat.files import Busy

REPORT_SECONDS = 0.1  # between two reports of a trial, and between two looks at whether it is to stop
WAIT_SECONDS = 0.5  # between two looks at whether another process has left a trial behind
PRUNE_STEPS = 20  # how often in the epochs of a training a trial is compared with others


@dataclass(frozen=True)
class TrialEvent:
    """Something that happened to a trial.

    Args:
        kind: ``"opened"`` (the study, before any trial), ``"started"``, ``"epoch"`` (some of them, a few times a
            second), ``"finished"``, ``"pruned"`` or ``"failed"``.
        number: The trial's number.
        job: Which of the processes side by side, from 0.
        epoch: The epoch, of an ``"epoch"``.
        value: What the trial came to, of a ``"finished"``.
        message: The reason, of a ``"failed"``.
        done: How many trials of the study are over, with this one.
        best: The best value of them, if one has a value.
    """

    kind: Literal["opened", "started", "epoch", "finished", "pruned", "failed"]
    number: int
    job: int = 0
    epoch: Epoch | None = None
    value: float | None = None
    message: str = ""
    done: int = 0
    best: float | None = None


class Setting(NamedTuple):
    """What the processes of a search share."""

    search: Search
    folder: Path
    storage: str
    total: int
    data_dir: str | None

    def study(self) -> Study:
        """The study, opened."""
        return Study(self.search, self.folder, self.storage, self.total)


def run_trials(
    study: Study,
    *,
    job: int = 0,
    device: str = "auto",
    data_dir: str | Path | None = None,
    on_event: Callable[[TrialEvent], None] = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Trains trials until all of the study are over, or in the hands of machines with a folder of their own.

    Args:
        study: The study.
        job: The number of this process, for its events.
        device: As :func:`torch_goat.experiments.train` takes it.
        data_dir: The folder of the datasets.
        on_event: Called with what happens.
        stop: Asked now and then whether to stop, which raises :class:`Interrupted`.
    """
    with answering(study.storage):
        while True:
            with study.claimed() as trial:
                if trial is not None:
                    on_event(TrialEvent("started", trial.number, job))
                    watch = _Watch(study, trial, job, on_event, stop)
                    event = _trained(study, trial, watch, device, data_dir)
                    study.tell(trial, event.value, pruned=event.kind == "pruned")
                    on_event(over(study, event))
            if trial is None:
                if not study.waits():
                    return
                if stop():
                    raise Interrupted("stopped.")
                time.sleep(WAIT_SECONDS)


def over(study: Study, event: TrialEvent) -> TrialEvent:
    """The end of a trial, with where the study stands."""
    best = study.best()
    return replace(event, done=len(study.finished()), best=None if best is None else best.value)


def work(connection: Connection, setting: Setting, job: int, device: str) -> None:
    """The life of a process that belongs to a search; it ends after the present epoch if that search is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the search's own process, which then says what to do
    torch.set_num_threads(1)
    parent = _Parent(connection)
    try:
        run_trials(
            setting.study(), job=job, device=device, data_dir=setting.data_dir, on_event=parent.send, stop=parent.stops
        )
    except Interrupted:
        return
    except Exception as error:
        parent.send(str(error) or type(error).__name__)


class _Parent:
    """The process that a worker reports to, which may be gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: TrialEvent | str) -> None:
        with suppress(OSError):
            self._connection.send(message)

    def stops(self) -> bool:
        """Whether it says to stop, or is gone."""
        try:
            return self._connection.poll()
        except OSError:
            return True


class _Watch:
    """Follows the epochs of a trial: reports them, and ends the training if it is to stop or to be pruned."""

    def __init__(
        self,
        study: Study,
        trial: FrozenTrial,
        job: int,
        on_event: Callable[[TrialEvent], None],
        stop: Callable[[], bool],
    ) -> None:
        self.number, self.job, self.on_event, self.stop = trial.number, job, on_event, stop
        self.pruned = False
        self.before = 0  # epochs of the trainings on earlier indices
        self._reported = set(trial.intermediate_values)
        self._live = study.live(trial) if study.search.prune else None
        self._next = 0.0

    def __call__(self, epoch: Epoch) -> None:
        if self._live is not None and epoch.number % max(1, epoch.total // PRUNE_STEPS) == 0:
            step = self.before + epoch.number
            if step not in self._reported:
                self._live.report(epoch.val_metric, step)
            self.pruned = epoch.number < epoch.total and self._live.should_prune()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REPORT_SECONDS
            self.on_event(TrialEvent("epoch", self.number, self.job, epoch))
            if self.stop():
                raise KeyboardInterrupt
        if self.pruned:
            raise KeyboardInterrupt


def _trained(study: Study, trial: FrozenTrial, watch: _Watch, device: str, data_dir: str | Path | None) -> TrialEvent:
    """How a trial ends; what is no fault of the trial's is raised."""
    try:
        value = _value(study, trial, watch, device, data_dir)
    except Interrupted:
        if not watch.pruned:
            raise
        return TrialEvent("pruned", trial.number, watch.job)
    except (RunError, Busy, DataError, OSError, ImportError, StorageInternalError):
        raise
    except Exception as error:
        message = str(error) or type(error).__name__
        study.explain(trial, f"{message}\n\n{traceback.format_exc()}")
        return TrialEvent("failed", trial.number, watch.job, message=message)
    return TrialEvent("finished", trial.number, watch.job, value=value)


def _value(study: Study, trial: FrozenTrial, watch: _Watch, device: str, data_dir: str | Path | None) -> float:
    """What a trial comes to: the mean over its indices of the validation nodes' metric."""
    experiment, metric, values = study.experiment(trial), study.search.metric, []
    for index in study.search.indices:
        folder = study.folder_of(trial) / str(index)
        result = train(replace(experiment, index=index), folder, device=device, data_dir=data_dir, observer=watch)
        values.append(result.metrics["val"][metric])
        watch.before += experiment.training.epochs
    if not math.isfinite(value := fmean(values)):
        raise ValueError(f"the validation {metric} is {value}.")
    return value
