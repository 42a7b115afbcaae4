"""Progress of runs on the standard error: bars on a terminal, plain lines elsewhere.

A board shows what several processes are at: :func:`board` makes the one that fits, :class:`PlanProgress` feeds it with
the events of :func:`run_plan`, and :class:`RunProgress` with the epochs of a single run.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from torch_goat.app.cli.console import console
from torch_goat.experiments import Epoch, Event
from torch_goat.experiments.training.metrics import show

LINE_SECONDS = 30.0  # between two lines on the epochs of a run


class Board(ABC):
    """What is being run, how far it is, and how long it will take.

    Args:
        total: How many runs there are.
        what: What they are called, in the plural.
    """

    def __init__(self, total: int, what: str = "runs") -> None:
        self.total, self.what = total, what
        self.done = self.skipped = 0
        self.note = ""
        self._start = time.monotonic()
        self._shares: dict[int, float] = {}  # how far each job is with its run

    @property
    def running(self) -> int:
        """How many runs were begun here and are not over."""
        return len(self._shares)

    def skip(self, count: int = 1) -> None:
        """Some runs were done before, or elsewhere."""
        self.done += count
        self.skipped += count
        self._show()

    def start(self, job: int, name: str) -> None:
        """A process begins a run."""
        self._shares[job] = 0.0
        self._started(job, name)

    def epoch(self, job: int, name: str, epoch: Epoch) -> None:
        """A process is past an epoch of its run."""
        self._shares[job] = epoch.number / epoch.total
        self._advanced(job, name, epoch)

    def end(self, job: int, name: str, text: str, *, failed: bool = False) -> None:
        """A run is over; the text says how."""
        self._shares.pop(job, None)
        self.done += 1
        self._ended(job, name, text, failed)

    def say(self, note: str) -> None:
        """Something that is worth knowing of all runs together."""
        self.note = note
        self._show()

    def left(self) -> str:
        """An estimate of the time left, once there is something to judge by."""
        progress = self.done - self.skipped + sum(self._shares.values())
        if progress < 0.01 or self.done >= self.total:
            return ""
        seconds = (time.monotonic() - self._start) * (self.total - self.skipped - progress) / progress
        return f"about {duration(seconds)} left"

    @abstractmethod
    def _started(self, job: int, name: str) -> None: ...

    @abstractmethod
    def _advanced(self, job: int, name: str, epoch: Epoch) -> None: ...

    @abstractmethod
    def _ended(self, job: int, name: str, text: str, failed: bool) -> None: ...

    @abstractmethod
    def _show(self) -> None: ...

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return


class Bars(Board):
    """A bar for each process and one for all runs together; they vanish in the end."""

    def __init__(self, total: int, what: str, terminal: Console) -> None:
        super().__init__(total, what)
        self._bars = _bars(terminal, transient=True)
        self._overall = self._bars.add_task(f"all {total} {what}", total=total, count="", note="")
        self._jobs: dict[int, TaskID] = {}

    def _started(self, job: int, name: str) -> None:
        self._jobs[job] = self._bars.add_task(escape(name), total=None, count="", note="starting")

    def _advanced(self, job: int, name: str, epoch: Epoch) -> None:
        _update(self._bars, self._jobs[job], epoch)
        self._show()

    def _ended(self, job: int, name: str, text: str, failed: bool) -> None:
        if job in self._jobs:
            self._bars.remove_task(self._jobs.pop(job))
        if failed:
            self._bars.console.print(f"{escape(name)}: {escape(text)}")
        self._show()

    def _show(self) -> None:
        note = ", ".join(filter(None, (self.left(), self.note)))
        completed = self.done + sum(self._shares.values())
        self._bars.update(self._overall, completed=completed, count=f"{self.done}/{self.total}", note=escape(note))

    def __enter__(self) -> "Bars":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()


class Lines(Board):
    """A line when a run ends, and now and then one on how far it is, without control characters."""

    def __init__(self, total: int, what: str, terminal: Console) -> None:
        super().__init__(total, what)
        self._console = terminal
        self._next: dict[int, float] = {}

    def _started(self, job: int, name: str) -> None:
        self._next[job] = time.monotonic() + LINE_SECONDS

    def _advanced(self, job: int, name: str, epoch: Epoch) -> None:
        if time.monotonic() >= self._next[job]:
            self._next[job] = time.monotonic() + LINE_SECONDS
            self._print(f"{name}: epoch {epoch.number} of {epoch.total}, {_note(epoch)}")

    def _ended(self, job: int, name: str, text: str, failed: bool) -> None:
        rest = ", ".join(filter(None, (text, self.note, self.left())))
        self._print(f"{self.done}/{self.total} {name}: {rest}")

    def _show(self) -> None:
        return

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def board(total: int, what: str = "runs") -> Board:
    """The board for where the standard error goes, used as a context."""
    terminal = console(stderr=True)
    return Bars(total, what, terminal) if terminal.is_interactive else Lines(total, what, terminal)


class PlanProgress:
    """Shows the events of :func:`run_plan`: ``with PlanProgress(names) as show: run_plan(..., on_event=show)``.

    Args:
        names: What each run of the plan is called.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self.board = names, board(len(names))

    def __call__(self, event: Event) -> None:
        name = self._names[event.number]
        if event.kind == "skipped":
            self.board.skip()
        elif event.kind == "started":
            self.board.start(event.job, name)
        elif event.epoch is not None:
            self.board.epoch(event.job, name, event.epoch)
        elif event.result is not None:
            metrics = next(reversed(event.result.metrics.values()))  # of the test nodes, where there are any
            metric, value = next(iter(metrics.items()))
            text = f"{metric} {show(metric, value)}, {event.result.epochs} epochs, {duration(event.result.seconds)}"
            self.board.end(event.job, name, text)
        else:
            self.board.end(event.job, name, f"failed: {event.message}", failed=True)

    def __enter__(self) -> "PlanProgress":
        self.board.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.board.__exit__(kind, error, at)


class RunProgress:
    """Shows the epochs of one run: ``with RunProgress(name) as show: train(..., observer=show)``.

    Args:
        name: What the run is called.
    """

    def __init__(self, name: str) -> None:
        self._name, self._console = name, console(stderr=True)
        self._bars = _bars(self._console, transient=False) if self._console.is_interactive else None
        self._bar = self._bars.add_task(escape(name), total=None, count="", note="starting") if self._bars else None
        self._next = time.monotonic() + LINE_SECONDS
        self._last: Epoch | None = None

    def __call__(self, epoch: Epoch) -> None:
        self._last = epoch
        if self._bars is not None and self._bar is not None:
            _update(self._bars, self._bar, epoch)
        elif time.monotonic() >= self._next:
            self._line()

    def _line(self) -> None:
        self._next = time.monotonic() + LINE_SECONDS
        if self._last is not None:
            text = f"{self._name}: epoch {self._last.number} of {self._last.total}, {_note(self._last)}"
            self._console.print(text, markup=False, soft_wrap=True)

    def __enter__(self) -> "RunProgress":
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()
        else:
            self._line()


def duration(seconds: float) -> str:
    """A time that a person can read: ``"40 s"``, ``"12 min"``, ``"3.5 h"``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _bars(terminal: Console, transient: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, console=terminal, transient=transient)


def _update(bars: Progress, bar: TaskID, epoch: Epoch) -> None:
    count = f"{epoch.number}/{epoch.total}"
    bars.update(bar, total=epoch.total, completed=epoch.number, count=count, note=_note(epoch))


def _note(epoch: Epoch) -> str:
    return f"loss {epoch.train_loss:.4f}, validation {epoch.metric} {show(epoch.metric, epoch.val_metric)}"
