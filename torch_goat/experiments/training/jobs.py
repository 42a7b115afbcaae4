"""Many runs at a time, each in a process of its own."""

import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from torch_goat.experiments.run import ERROR, RunError, finished
from torch_goat.experiments.training.fabric import check_device
from torch_goat.experiments.training.interrupt import Interrupted, deaf
from torch_goat.experiments.training.loop import Epoch
from torch_goat.experiments.training.plan import PlannedRun
from torch_goat.experiments.training.result import Result
from torch_goat.experiments.training.train import train
from torch_goat.files import Busy, write_atomic

GPU_JOBS = 8  # on one GPU, unless told otherwise
REPORT_SECONDS = 0.1  # between two reports of a run, and between two looks at whether it is to stop


@dataclass(frozen=True)
class Event:
    """Something that happened to a planned run.

    Args:
        kind: ``"skipped"`` (it was done before), ``"started"``, ``"epoch"`` (some of them, a few times a second),
            ``"finished"`` or ``"failed"``.
        index: Which run of the plan, from 0.
        job: Which of the processes side by side, from 0.
        epoch: The epoch, of an ``"epoch"``.
        result: The result, of a ``"finished"`` or ``"skipped"``.
        message: The reason, of a ``"failed"``.
    """

    kind: Literal["skipped", "started", "epoch", "finished", "failed"]
    index: int
    job: int = 0
    epoch: Epoch | None = None
    result: Result | None = None
    message: str = ""


def run_plan(
    plan: Sequence[PlannedRun],
    *,
    jobs: int = 0,
    device: str = "auto",
    threads: int = 1,
    data_dir: str | Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[Event]:
    """Runs what is not done of a plan, several runs at a time.

    A run that fails, or whose process is killed, leaves ``error.txt`` in its folder, and the others go on. Ctrl-C ends
    every run after its present epoch with a checkpoint and raises :class:`Interrupted`; pressed twice, at once. The
    processes are new interpreters, so that a script must call this under ``if __name__ == "__main__":``.

    Args:
        plan: The runs.
        jobs: How many at a time; 0 is as many as the cores have ``threads`` for, and at most 8 on a GPU.
        device: As :func:`train` takes it; ``"cuda"`` takes all GPUs in turn.
        threads: The CPU threads of each run.
        data_dir: The folder of the datasets.
        on_event: Called with what happens, in this process.

    Returns:
        How each run of the plan ended: skipped, finished or failed.
    """
    if jobs < 0 or threads < 1:
        raise ValueError(f"jobs must be 0 or more and threads 1 or more, got {jobs} and {threads}.")
    folder, count = Counter(run.folder.resolve() for run in plan).most_common(1)[0] if plan else (None, 0)
    if count > 1:
        raise ValueError(f"the plan has {count} runs for the folder {folder}; give each its own.")
    check_device(device)
    gpus = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    devices = [f"cuda:{number}" for number in range(gpus)] or [device]
    if jobs == 0:
        cores = max(1, _cores() // threads)
        jobs = min(cores, GPU_JOBS * len(devices)) if devices[0].startswith("cuda") else cores
    setting = _Setting(devices, threads, None if data_dir is None else str(data_dir))
    return _Dispatcher(plan, jobs, setting, on_event or (lambda event: None)).run()


def why_failed(plan: Sequence[PlannedRun], ends: Iterable[Event]) -> list[str]:
    """Why runs of a plan failed, a sentence each that names the folder.

    Args:
        plan: The runs.
        ends: How they ended, as :func:`run_plan` returns it.
    """
    failed = [(str(plan[end.index].folder), end.message) for end in ends if end.kind == "failed"]
    return [message if where in message else f"{where}: {message}" for where, message in failed]


class _Setting(NamedTuple):
    """What all runs share."""

    devices: list[str]
    threads: int
    data_dir: str | None


@dataclass
class _Job:
    """A process and the run that it is at."""

    number: int
    process: BaseProcess
    connection: Connection
    index: int  # of the run in the plan


class _Dispatcher:
    """Hands the runs of a plan to processes, one at a time to each, over a pipe of its own.

    Nothing is shared between processes, so that one that is killed holds up no other.
    """

    def __init__(
        self, plan: Sequence[PlannedRun], jobs: int, setting: _Setting, on_event: Callable[[Event], None]
    ) -> None:
        self.plan, self.limit, self.setting, self.on_event = plan, jobs, setting, on_event
        self.waiting: deque[int] = deque()
        self.jobs: dict[Connection, _Job] = {}
        self.ends: dict[int, Event] = {}

    def run(self) -> list[Event]:
        try:
            self._sort_out()
            while self.waiting or self.jobs:
                while self.waiting and len(self.jobs) < self.limit:
                    self._start()
                self._listen()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # the second one
                self._wind_down()
            done = sum(event.kind != "failed" for event in self.ends.values())
            raise Interrupted(
                f"stopped; {done} of {len(self.plan)} runs are done, the same plan goes on from there."
            ) from None
        finally:
            for job in self.jobs.values():
                job.process.kill()
                job.process.join()
        return [self.ends[index] for index in range(len(self.plan))]

    def _sort_out(self) -> None:
        for index, (folder, experiment) in enumerate(self.plan):
            try:
                result = finished(experiment, folder)
            except RunError as error:
                self._end(Event("failed", index, message=str(error)))
                continue
            if result is None:
                self.waiting.append(index)
            else:
                self._end(Event("skipped", index, result=result))

    def _start(self) -> None:
        taken = {job.number for job in self.jobs.values()}
        number = next(number for number in range(self.limit) if number not in taken)
        index = self.waiting.popleft()
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        device = self.setting.devices[number % len(self.setting.devices)]
        arguments = (there, self.plan[index], device, self.setting.threads, self.setting.data_dir)
        process = context.Process(target=_work, args=arguments, daemon=True)
        with deaf():
            process.start()
        there.close()
        self.jobs[here] = _Job(number, process, here, index)
        self.on_event(Event("started", index, number))

    def _listen(self) -> None:
        for job in self._ready():
            try:
                kind, value = job.connection.recv()
            except (EOFError, OSError):
                self._died(job)
            else:
                self._heard(job, kind, value)

    def _ready(self) -> list[_Job]:
        """The jobs that have something to say or have died, once there is one."""
        ready = wait(list(self.jobs))
        return [job for connection, job in self.jobs.items() if connection in ready]

    def _heard(self, job: _Job, kind: str, value: Any) -> None:
        if kind == "epoch":
            self.on_event(Event("epoch", job.index, job.number, epoch=value))
            return
        if kind == "finished":
            self._end(Event("finished", job.index, job.number, result=value))
        else:
            message, trace = value
            self._fail(job, message, trace)
        broken = kind == "failed" and self.setting.devices[0].startswith("cuda")  # a GPU's errors may outlast a run
        if self.waiting and not broken:
            index = self.waiting.popleft()
            job.index = index
            with suppress(OSError):  # of a process that died; it is heard of next
                job.connection.send(self.plan[index])
            self.on_event(Event("started", index, job.number))
        else:
            with suppress(OSError):
                job.connection.send(None)
            self._let_go(job)

    def _died(self, job: _Job) -> None:
        self._let_go(job)
        code = job.process.exitcode or 0
        if code < 0:
            reason = f"was killed by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -9 else "")
        else:
            reason = f"ended with exit code {code}"
        self._fail(job, f"the run's process {reason}.", "")

    def _fail(self, job: _Job, message: str, trace: str | None) -> None:
        if trace is not None:
            with suppress(OSError):  # the disk may be what failed
                write_atomic(self.plan[job.index].folder / ERROR, f"{message}\n\n{trace}".strip() + "\n")
        self._end(Event("failed", job.index, job.number, message=message))

    def _end(self, event: Event) -> None:
        self.ends[event.index] = event
        self.on_event(event)

    def _let_go(self, job: _Job) -> None:
        job.process.join()
        del self.jobs[job.connection]
        job.connection.close()

    def _wind_down(self) -> None:
        """Asks every process to end after its present epoch and waits for it."""
        for connection in self.jobs:
            with suppress(OSError):
                connection.send(None)
        while self.jobs:
            for job in self._ready():
                try:
                    kind, value = job.connection.recv()
                except (EOFError, OSError):
                    self._let_go(job)
                else:
                    if kind == "finished":
                        self._end(Event("finished", job.index, job.number, result=value))


class _Reporter:
    """Tells the plan's process of epochs, and stops the run when that process says so or is gone."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.next = connection, 0.0

    def __call__(self, epoch: Epoch) -> None:
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + REPORT_SECONDS
        try:
            self.connection.send(("epoch", epoch))
            stop = self.connection.poll()
        except OSError:
            stop = True
        if stop:
            raise KeyboardInterrupt


def _work(connection: Connection, run: PlannedRun | None, device: str, threads: int, data_dir: str | None) -> None:
    """The life of a process: one run after the other, until there is no more or the plan's process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the plan's process, which then says what to do
    torch.set_num_threads(threads)
    with suppress(Interrupted, EOFError, OSError):
        while run is not None:
            connection.send(_outcome(run, device, data_dir, _Reporter(connection)))
            run = connection.recv()


def _outcome(run: PlannedRun, device: str, data_dir: str | None, observer: _Reporter) -> tuple[str, Any]:
    try:
        return "finished", train(run.experiment, run.folder, device=device, data_dir=data_dir, observer=observer)
    except Busy as error:
        return "failed", (str(error), None)  # the folder is another process's
    except Exception as error:
        return "failed", (str(error) or type(error).__name__, traceback.format_exc())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
