"""Runs a search: trials claimed from its study, in the processes of the pool."""

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial

from torch_goat import settings
from torch_goat.data.datasets import DataError
from torch_goat.experiments import Epoch, Experiment, Interrupted, RunError, train
from torch_goat.experiments.pool import Event, Pool, Reporter, devices_of
from torch_goat.experiments.run import usable
from torch_goat.experiments.search.search import Search, check_metric, decoded, default_point, trial_value
from torch_goat.experiments.search.storage import answering
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.training.features import import_for
from torch_goat.experiments.training.processes import make_fabric
from torch_goat.experiments.training.task import task_of
from torch_goat.experiments.training.train import graph_of
from torch_goat.files import Busy, csv_text, replace_file

BEST: Final = "best.toml"
TABLE: Final = "trials.csv"
WAIT_SECONDS: Final = 0.5  # between two checks whether another process has left a trial behind
PRUNE_STEPS: Final = 20  # comparisons with other trials in the epochs of a training


@dataclass(frozen=True)
class SearchOutcome:
    best: Experiment  # on the first of the search's indices
    number: int  # of its trial
    value: float  # of its trial
    finished: int  # number of finished trials
    failed: int  # number of failed trials among them
    elsewhere: int  # number of trials still running on other machines
    total: int
    default: float | None = None  # value of the first trial, if it has the default settings


def tune(
    search: Search,
    folder: str | Path,
    *,
    storage: str = "",
    trials: int = 100,
    jobs: int = 1,
    device: str = "auto",
    data_dir: str | Path | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> SearchOutcome:
    """Runs a search, continues one that was stopped or killed, or adds trials to a finished one.

    The folder holds ``search.toml`` (the search), ``trials/7/0`` (the run of trial 7 on index 0), ``trials.csv`` (a
    line per trial) and ``best.toml`` (the best experiment). With one job and without pruning, the same search always
    runs the same trials, and so does a grid with any number of jobs. Ctrl-C stops every trial after its current epoch
    with a checkpoint and raises :class:`Interrupted`; pressed twice, it kills them.

    Args:
        folder: Folder of the search, created if it does not exist. A folder with another search raises an error.
        storage: Where the trials are listed, for several machines to share: the path of a journal or the address of a
            database. By default a journal in the folder.
        trials: Total number of trials, including earlier ones.
        jobs: Number of trials at a time; each uses one CPU thread.
        device: As in :func:`train`; with ``"cuda"`` the jobs use all GPUs in turn.
        data_dir: Folder of the datasets.
        on_event: Called with each event, in this process.
    """
    if trials < 1 or jobs < 1:
        raise settings.SettingsError(f"trials and jobs must be at least 1, got {trials} and {jobs}.")
    make_fabric(device, search.experiment.training.precision)
    if search.experiment.model.fitted:
        import_for(search.experiment.model.name)
    for index in search.indices:  # a problem with the data would fail every trial
        data, _ = graph_of(replace(search.experiment, index=index), data_dir)
        check_metric(search.experiment.dataset, task_of(data), search.metric)
    arguments = search, Path(folder), storage, trials
    study = Study(*arguments)

    def dead(_: object, last: Event | None, reason: str) -> bool:
        if last is None or last.kind not in ("started", "epoch"):
            raise RunError(f"a process of the search {reason} before it had a trial.")
        message = f"its process {reason}."
        if study.give_up(last.number, message):
            on_event(_over(study, Event("failed", last.number, last.job, message=message)))
        return True  # another process takes its place

    with answering(storage):
        on_event(_over(study, Event("opened", -1)))
        try:
            jobs = min(jobs, study.expected() - len(study.finished()))
            pool = Pool(_work, jobs=jobs, devices=devices_of(device), on_event=on_event, on_death=dead)
            pool.add([(arguments, data_dir)] * jobs)
            pool.run()
        except Interrupted:
            done = f"{len(study.finished())} of {study.expected()} trials are done"
            raise Interrupted(f"stopped; {done}, run the same command again to continue ({study.folder}).") from None
        finally:
            if (best := study.best()) is not None:
                _write(study, best)
        return _outcome(study)


def run_trials(
    study: Study,
    *,
    job: int = 0,
    device: str = "auto",
    data_dir: str | Path | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Trains trials in this process until all are finished, or claimed by machines that do not share the folder.

    Raises :class:`Interrupted` once ``stop()`` is true.
    """
    with answering(study.storage):
        while True:
            with study.claimed() as trial:
                if trial is not None:
                    on_event(Event("started", trial.number, job))
                    watch = _Watch(study, trial, Reporter(job, on_event, stop))
                    event = _trained(study, trial, watch, device, data_dir)
                    study.tell(trial, event.value, pruned=event.kind == "pruned")
                    on_event(_over(study, event))
            if trial is None:
                if not study.waits():
                    return
                if stop():
                    raise Interrupted("stopped.")
                time.sleep(WAIT_SECONDS)


def _work(task: tuple[tuple[Search, Path, str, int], str | Path | None], device: str, report: Reporter) -> bool:
    """Trains all trials of a study that a process of the pool can claim."""
    study, job = Study(*task[0]), report.job
    run_trials(study, job=job, device=device, data_dir=task[1], on_event=report.send, stop=report.stops)
    return True


def _over(study: Study, event: Event) -> Event:
    best = study.best()
    return replace(event, done=len(study.finished()), best=None if best is None else best.value)


class _Watch:
    """Observes the epochs of a trial: reports them, and stops the training on request or to prune it."""

    def __init__(self, study: Study, trial: FrozenTrial, report: Reporter) -> None:
        self.number, self.report = trial.number, report
        self.pruned = False
        self.before = 0  # epochs of the trainings on earlier indices
        self._reported = set(trial.intermediate_values)
        self._live = study.live(trial) if study.search.prune else None

    def __call__(self, epoch: Epoch) -> None:
        if self._live is not None and epoch.number % max(1, epoch.total // PRUNE_STEPS) == 0:
            step = self.before + epoch.number
            if step not in self._reported:
                self._live.report(epoch.val_metric, step)
            self.pruned = epoch.number < epoch.total and self._live.should_prune()
        self.report.epoch(self.number, epoch)
        if self.pruned:
            raise KeyboardInterrupt


def _trained(study: Study, trial: FrozenTrial, watch: _Watch, device: str, data_dir: str | Path | None) -> Event:
    """Trains a trial and returns its last event; errors that are not the trial's fault are raised."""
    number, job = trial.number, watch.report.job
    metric, results = study.search.metric, []
    try:
        experiment = study.experiment(trial)
        for index in study.search.indices:
            folder = study.folder_of(trial) / str(index)
            one = replace(experiment, index=index)
            results.append(train(one, folder, device=device, data_dir=data_dir, observer=watch))
            watch.before += experiment.training.epochs
        if not math.isfinite(value := trial_value(results, metric)):
            raise ValueError(f"the validation {metric} is {value}.")
    except Interrupted:
        if not watch.pruned:
            raise
        return Event("pruned", number, job)
    except (RunError, Busy, DataError, OSError, ImportError, StorageInternalError):
        raise
    except Exception as error:
        message = str(error) or type(error).__name__
        study.explain(trial, f"{message}\n\n{traceback.format_exc()}")
        return Event("failed", number, job, message=message)
    return Event("finished", number, job, value=value)


def _write(study: Study, best: FrozenTrial) -> None:
    rows: list[list[Any]] = [["trial", "state", f"val_{study.search.metric}", *study.search.space]]
    for trial in study.trials():
        point = decoded(study.search.space, trial.params)
        values = [" ".join(map(str, value)) if isinstance(value, tuple) else value for value in point.values()]
        rows.append([trial.number, trial.state.name.lower(), trial.value, *values])
    with usable(study.folder):
        replace_file(study.folder / BEST, settings.dumps(study.experiment(best)))
        replace_file(study.folder / TABLE, csv_text(rows))


def _outcome(study: Study) -> SearchOutcome:
    trials, best = study.trials(), study.best()
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    if best is None or best.value is None:
        reason = f": {study.reason(failed[0])}" if failed else "."
        raise RunError(f"none of {len(trials)} trials has a value{reason}")
    finished, default = len(study.finished()), default_point(study.search)
    first = (
        trials[0].value if default is not None and decoded(study.search.space, trials[0].params) == default else None
    )
    elsewhere = len(trials) - finished
    return SearchOutcome(
        study.experiment(best), best.number, best.value, finished, len(failed), elsewhere, study.expected(), first
    )
