"""The process pool that plans, tables and searches share.

Importing this module is fast, so that a new process watches its parent before it imports PyTorch.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final, Literal

from torch_goat.experiments.training.interrupt import Interrupted, handling

if TYPE_CHECKING:
    from torch_goat.experiments import Epoch, Result

REPORT_SECONDS: Final = 0.1  # between two epoch events of a process, and between two checks whether it should stop
ORPHAN_SECONDS: Final = 1.0  # that a process has to write a checkpoint after its parent was killed


@dataclass(frozen=True)
class Event:
    """Something that happened to a run of a plan or to a trial of a search.

    A study is ``"opened"`` before its trials; a run that was finished earlier is ``"skipped"``; ``"epoch"`` is sent a
    few times a second, not for every epoch.
    """

    kind: Literal["opened", "skipped", "started", "epoch", "finished", "pruned", "failed"]
    number: int  # of the run in its plan, or of the trial
    job: int = 0  # number of the process
    epoch: "Epoch | None" = None
    result: "Result | None" = None  # of a run that is finished or skipped
    value: float | None = None  # of a finished trial
    message: str = ""  # why it failed
    done: int = 0  # number of finished trials of the study, including this one
    best: float | None = None  # value so far


class Reporter:
    """Sends the events of a task, and stops it if ``stops()``."""

    def __init__(self, job: int, send: Callable[[Event], None], stops: Callable[[], bool]) -> None:
        self.job, self.send, self.stops = job, send, stops
        self._next = 0.0

    def epoch(self, number: int, epoch: "Epoch") -> None:
        """Reports an epoch unless the last report is recent; raises ``KeyboardInterrupt`` to stop the training."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REPORT_SECONDS
            self.send(Event("epoch", number, self.job, epoch))
            if self.stops():
                raise KeyboardInterrupt


@dataclass
class _Worker:
    job: int
    process: BaseProcess
    connection: Connection
    task: Any
    last: Event | None = None


class Pool:
    """Runs tasks in spawned processes, several at a time and one after the other in each.

    Every process has its own pipe and nothing is shared, so a killed process does not block the others. Ctrl-C asks all
    processes to stop after their current epoch with a checkpoint; a second one kills them. If the pool's process is
    killed, they stop in the same way, but after one second at the latest.

    Args:
        work: Module-level function that runs a task in a worker process, called with the task, the device and a
            :class:`Reporter`; returns whether the process can run another task. An error that it raises ends the pool.
        jobs: Maximum number of processes.
        devices: Devices of the processes, in turn.
        threads: CPU threads of each process.
        on_event: Called with each event, in this process.
        on_death: Called with the task, the last event of its process and the reason if the process was killed or exited
            early; returns whether to run the task again.
    """

    def __init__(
        self,
        work: Callable[[Any, str, Reporter], bool],
        *,
        jobs: int,
        devices: list[str],
        threads: int = 1,
        on_event: Callable[[Event], None],
        on_death: Callable[[Any, Event | None, str], bool],
    ) -> None:
        self.work, self.jobs, self.devices, self.threads = work, jobs, devices, threads
        self.on_event, self.on_death = on_event, on_death
        self._waiting: deque[Any] = deque()
        self._workers: dict[Connection, _Worker] = {}

    def add(self, tasks: Sequence[Any]) -> None:
        """Puts tasks before those that wait; also from a callback, while others run."""
        self._waiting.extendleft(reversed(tasks))

    def run(self) -> None:
        """Runs all tasks; raises :class:`Interrupted` after Ctrl-C."""
        try:
            while self._waiting or self._workers:
                while self._waiting and len(self._workers) < self.jobs:
                    self._start()
                for worker, message in self._messages():
                    self._handle(worker, message)
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # the second one
                self._wind_down()
            raise Interrupted("stopped.") from None
        finally:
            for worker in self._workers.values():
                worker.process.kill()
                worker.process.join()

    def _start(self) -> None:
        taken = {worker.job for worker in self._workers.values()}
        job = next(number for number in range(self.jobs) if number not in taken)
        task = self._waiting.popleft()
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        arguments = (there, job, self.devices[job % len(self.devices)], self.threads)
        process = context.Process(target=_work, args=arguments, daemon=True)
        with handling(signal.SIG_IGN):
            process.start()
        there.close()
        self._workers[here] = _Worker(job, process, here, task)
        with suppress(OSError):  # as below
            here.send((self.work, task))

    def _messages(self) -> Iterator[tuple[_Worker, Any]]:
        """Waits until processes have sent something or ended, for which the message is ``None``."""
        ready = wait(list(self._workers))
        for worker in [worker for connection, worker in self._workers.items() if connection in ready]:
            try:
                yield worker, worker.connection.recv()
            except (EOFError, OSError):
                self._release(worker)
                yield worker, None

    def _handle(self, worker: _Worker, message: Any) -> None:
        if message is None:
            if self.on_death(worker.task, worker.last, _reason(worker.process.exitcode or 0)):
                self._waiting.appendleft(worker.task)
        elif isinstance(message, Event):
            worker.last = message
            self.on_event(message)
        elif isinstance(message, str):
            from torch_goat.experiments import RunError

            raise RunError(message)
        else:  # the task is done; whether another may follow
            worker.task = self._waiting.popleft() if message and self._waiting else None
            worker.last = None
            with suppress(OSError):  # a process that has just died is noticed by its closed pipe
                worker.connection.send(worker.task)
            if worker.task is None:
                self._release(worker)

    def _release(self, worker: _Worker) -> None:
        worker.process.join()
        del self._workers[worker.connection]
        worker.connection.close()

    def _wind_down(self) -> None:
        """Asks all processes to stop after their current epoch and waits for them."""
        for connection in self._workers:
            with suppress(OSError):
                connection.send(None)
        while self._workers:
            for _, message in self._messages():
                if isinstance(message, Event) and message.kind == "finished":
                    self.on_event(message)


def devices_of(device: str) -> list[str]:
    """The devices of a pool's processes: all GPUs for ``"auto"`` and ``"cuda"``, if there are any."""
    import torch

    gpus = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    return [f"cuda:{number}" for number in range(gpus)] or [device]


def _reason(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -signal.SIGKILL else "")


def _watch_parent() -> None:
    """Ends this process, whatever it is doing, some time after its parent."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        time.sleep(ORPHAN_SECONDS)
        os._exit(1)


def _work(connection: Connection, job: int, device: str, threads: int) -> None:
    """Runs in a worker process until there are no more tasks or the pool's process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool's process, which then asks to stop
    threading.Thread(target=_watch_parent, daemon=True).start()

    def send(message: Event | str) -> None:
        with suppress(OSError):  # the pool's process may be gone
            connection.send(message)

    def stops() -> bool:
        try:
            return connection.poll()
        except OSError:
            return True

    with suppress(Interrupted, EOFError, OSError):
        work, task = connection.recv()  # imports what they need

        import torch

        torch.set_num_threads(threads)
        while task is not None:
            try:
                reusable = work(task, device, Reporter(job, send, stops))
            except Exception as error:
                send(str(error) or type(error).__name__)
                return
            connection.send(reusable)
            task = connection.recv()
