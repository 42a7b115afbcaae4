"""A search for hyperparameters, in several processes."""

import csv
import io
import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import torch
from optuna.trial import FrozenTrial

from torch_goat import settings
from torch_goat.experiments import Experiment, Interrupted, RunError
from torch_goat.experiments.run import usable
from torch_goat.experiments.search.search import Search, check_metric
from torch_goat.experiments.search.space import decoded
from torch_goat.experiments.search.storage import answering
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.search.worker import Setting, TrialEvent, over, work
from torch_goat.experiments.training.fabric import make_fabric
from torch_goat.experiments.training.interrupt import deaf
from torch_goat.experiments.training.task import task_of
from torch_goat.experiments.training.train import graph_of
from torch_goat.files import write_atomic

BEST: Final = "best.toml"
TABLE: Final = "trials.csv"


@dataclass(frozen=True)
class Outcome:
    """What a search has come to.

    Args:
        best: The best experiment, on the first of the search's indices.
        number: The number of its trial.
        value: Its value.
        finished: How many trials are over.
        failed: How many of them failed.
        elsewhere: How many are still running on other machines.
        total: How many there are in the end.
    """

    best: Experiment
    number: int
    value: float
    finished: int
    failed: int
    elsewhere: int
    total: int


def tune(
    search: Search,
    folder: str | Path,
    *,
    storage: str = "",
    trials: int = 100,
    jobs: int = 1,
    device: str = "auto",
    data_dir: str | Path | None = None,
    on_event: Callable[[TrialEvent], None] = lambda event: None,
) -> Outcome:
    """Searches, or goes on with a search that was stopped or killed, or adds trials to one that is done.

    The folder holds ``search.toml`` (the search), ``trials/7/0`` (the run of trial 7 on index 0), ``trials.csv`` (a
    line per trial) and ``best.toml`` (the best experiment). One job without pruning comes to the same trials every
    time, and so does the grid with any number of jobs. Ctrl-C ends every trial after its present epoch with a
    checkpoint and raises :class:`Interrupted`; pressed twice, at once.

    Args:
        search: What is searched.
        folder: Where; made if it is not there. A folder with another search is refused.
        storage: Where the trials are listed, for several machines to share: the path of a journal, or the address of a
            database; a journal in the folder if empty.
        trials: How many trials there are in the end; more, if more are over already.
        jobs: How many at a time; each has one thread on a CPU.
        device: As :func:`train` takes it; with ``"cuda"`` the jobs take all GPUs in turn.
        data_dir: The folder of the datasets.
        on_event: Called with what happens, in this process.
    """
    if trials < 1 or jobs < 1:
        raise settings.SettingsError(f"trials and jobs must be 1 or more, got {trials} and {jobs}.")
    make_fabric(device, search.experiment.training.precision)
    for index in search.indices:  # what is wrong with the data is wrong with every trial
        data, _ = graph_of(replace(search.experiment, index=index), None if data_dir is None else Path(data_dir))
        check_metric(search.experiment.dataset, task_of(data), search.metric)
    setting = Setting(search, Path(folder), storage, trials, None if data_dir is None else str(data_dir))
    study = setting.study()
    with answering(storage):
        on_event(over(study, TrialEvent("opened", -1)))
        try:
            _Workers(setting, study, jobs, _devices(device), on_event).run()
        finally:
            if study.best() is not None:
                _write(study)
        return _outcome(study)


@dataclass
class _Worker:
    """A process and the trial that it is at."""

    job: int
    process: BaseProcess
    trial: int | None = None


class _Workers:
    """The processes of a search: started, listened to, and started again if one is killed."""

    def __init__(
        self, setting: Setting, study: Study, jobs: int, devices: list[str], on_event: Callable[[TrialEvent], None]
    ) -> None:
        self.setting, self.study, self.jobs, self.devices, self.on_event = setting, study, jobs, devices, on_event
        self.workers: dict[Connection, _Worker] = {}

    def run(self) -> None:
        try:
            left = self.study.expected() - len(self.study.finished())
            for job in range(min(self.jobs, left)):
                self._start(job)
            while self.workers:
                self._listen()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # the second one
                self._wind_down()
            done = len(self.study.finished())
            raise Interrupted(
                f"stopped; {done} of {self.study.expected()} trials are done, the same command goes on from there "
                f"({self.setting.folder})."
            ) from None
        finally:
            for worker in self.workers.values():
                worker.process.kill()
                worker.process.join()

    def _start(self, job: int) -> None:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        arguments = (there, self.setting, job, self.devices[job % len(self.devices)])
        process = context.Process(target=work, args=arguments, daemon=True)
        with deaf():
            process.start()
        there.close()
        self.workers[here] = _Worker(job, process)

    def _listen(self) -> None:
        for connection, worker in self._ready():
            try:
                message = connection.recv()
            except (EOFError, OSError):
                self._ended(connection, worker)
                continue
            if not isinstance(message, TrialEvent):
                raise RunError(message)
            worker.trial = message.number if message.kind in ("started", "epoch") else None
            self.on_event(message)

    def _ready(self) -> list[tuple[Connection, _Worker]]:
        """The processes that have something to say or have ended, once there is one."""
        ready = wait(list(self.workers))
        return [(connection, worker) for connection, worker in self.workers.items() if connection in ready]

    def _ended(self, connection: Connection, worker: _Worker) -> None:
        """A process that has no more to do, or that was killed: then its trial failed, and another takes its place."""
        worker.process.join()
        del self.workers[connection]
        code = worker.process.exitcode or 0
        if code == 0:
            return
        reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if worker.trial is None:
            raise RunError(f"a process of the search {reason} before it had a trial.")
        message = f"its process {reason}" + (" (out of memory?)." if code == -signal.SIGKILL else ".")
        if self.study.give_up(worker.trial, message):
            self.on_event(over(self.study, TrialEvent("failed", worker.trial, worker.job, message=message)))
        self._start(worker.job)

    def _wind_down(self) -> None:
        """Asks every process to end after its present epoch and waits for it."""
        for connection in self.workers:
            with suppress(OSError):
                connection.send(None)
        while self.workers:
            for connection, worker in self._ready():
                try:
                    connection.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    del self.workers[connection]


def _devices(device: str) -> list[str]:
    gpus = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    return [f"cuda:{number}" for number in range(gpus)] or [device]


def _write(study: Study) -> None:
    best = study.best()
    assert best is not None
    with usable(study.folder):
        write_atomic(study.folder / BEST, settings.dumps(study.experiment(best)))
        write_atomic(study.folder / TABLE, _table(study))


def _table(study: Study) -> str:
    """The text of ``trials.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    keys = list(study.search.space)
    writer.writerow(["trial", "state", f"val_{study.search.metric}", *keys])
    for trial in study.trials():
        point = decoded(study.search.space, trial.params)
        values = [" ".join(map(str, value)) if isinstance(value, tuple) else value for value in point.values()]
        writer.writerow([trial.number, trial.state.name.lower(), _value(trial), *values])
    return text.getvalue()


def _value(trial: FrozenTrial) -> float | str:
    return "" if trial.value is None else trial.value


def _outcome(study: Study) -> Outcome:
    trials, best = study.trials(), study.best()
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    if best is None or best.value is None:
        reason = f": {study.reason(failed[0])}" if failed else "."
        raise RunError(f"none of {len(trials)} trials has come to a value{reason}")
    finished = len(study.finished())
    elsewhere = len(trials) - finished
    return Outcome(study.experiment(best), best.number, best.value, finished, len(failed), elsewhere, study.expected())
