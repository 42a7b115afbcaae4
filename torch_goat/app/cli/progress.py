"""Progress of runs on standard error: bars on a terminal, plain lines elsewhere."""

import math
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from torch_goat.app.cli.console import console
from torch_goat.experiments import Epoch, Event
from torch_goat.experiments.training.metrics import show

LINE_SECONDS = 30.0  # between two lines on the epochs of a run


class Display:
    """A bar for the run of each process; elsewhere a line on its epochs now and then."""

    def __init__(self, terminal: Console, *, transient: bool) -> None:
        fields = ("description", "fields[count]", "fields[note]")
        name, count, note = (TextColumn(f"{{task.{field}}}") for field in fields)
        columns = (name, BarColumn(), count, TimeElapsedColumn(), note)
        self._console = terminal
        self._bars = Progress(*columns, console=terminal, transient=transient) if terminal.is_interactive else None
        self._tasks: dict[int, TaskID] = {}  # the bar of each process
        self._next: dict[int, float] = {}  # when to print the next line on its run

    def start(self, job: int, name: str) -> None:
        """Process ``job`` starts a run."""
        self._next[job] = time.monotonic() + LINE_SECONDS
        if self._bars is not None:
            self._tasks[job] = self._bars.add_task(escape(name), total=None, count="", note="starting")

    def epoch(self, job: int, name: str, epoch: Epoch) -> None:
        """Process ``job`` finished an epoch."""
        note = f"loss {epoch.train_loss:.4f}, validation {epoch.metric} {show(epoch.metric, epoch.val_metric)}"
        if self._bars is not None:
            count = f"{epoch.number}/{epoch.total}"
            self._bars.update(self._tasks[job], total=epoch.total, completed=epoch.number, count=count, note=note)
        elif time.monotonic() >= self._next[job]:
            self._next[job] = time.monotonic() + LINE_SECONDS
            self.print(f"{name}: epoch {epoch.number} of {epoch.total}, {note}")

    def print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()


class RunProgress(Display):
    """Shows the epochs of one run: ``with RunProgress(name) as show: train(..., observer=show)``."""

    def __init__(self, name: str) -> None:
        super().__init__(console(stderr=True), transient=False)
        self._name = name
        self._last: Epoch | None = None
        self.start(0, name)

    def __call__(self, epoch: Epoch) -> None:
        self._last = epoch
        self.epoch(0, self._name, epoch)

    def __exit__(self, *error: object) -> None:
        if self._bars is None and self._last is not None:
            self._next[0] = 0.0  # always print the last epoch
            self.epoch(0, self._name, self._last)
        super().__exit__(*error)


class Board(Display):
    """The progress of several processes, with the estimated time left.

    On a terminal there is also a bar for all runs, and the bars disappear at the end. Elsewhere a line is printed when
    a run ends. ``what`` is what the runs are called, in the plural.
    """

    def __init__(self, total: int, what: str, terminal: Console) -> None:
        super().__init__(terminal, transient=True)
        self.total, self.done, self.skipped, self.note, self._start = total, 0, 0, "", time.monotonic()
        self._shares: dict[int, float] = {}  # the completed share of each process's current run
        if self._bars is not None:
            self._overall = self._bars.add_task(f"all {total} {what}", total=total, count="", note="")

    @property
    def running(self) -> int:
        return len(self._shares)

    def skip(self, count: int = 1) -> None:
        """Counts runs that were finished before or elsewhere."""
        self.done += count
        self.skipped += count
        self._refresh()

    def start(self, job: int, name: str) -> None:
        self._shares[job] = 0.0
        super().start(job, name)

    def epoch(self, job: int, name: str, epoch: Epoch) -> None:
        self._shares[job] = epoch.number / epoch.total
        super().epoch(job, name, epoch)
        self._refresh()

    def end(self, job: int, name: str, text: str, *, failed: bool = False) -> None:
        """The run of process ``job`` ended; ``text`` tells how."""
        self._shares.pop(job, None)
        self.done += 1
        if self._bars is None:
            self.print(f"{self.done}/{self.total} {name}: {', '.join(filter(None, (text, self.note, self.left())))}")
            return
        if job in self._tasks:
            self._bars.remove_task(self._tasks.pop(job))
        if failed:
            self._bars.console.print(f"{escape(name)}: {escape(text)}")
        self._refresh()

    def left(self) -> str:
        """The estimated time left; empty at the beginning and at the end."""
        progress = self.done - self.skipped + sum(self._shares.values())
        if progress < 0.01 or self.done >= self.total:
            return ""
        seconds = (time.monotonic() - self._start) * (self.total - self.skipped - progress) / progress
        return f"about {duration(seconds)} left"

    def _refresh(self) -> None:
        if self._bars is not None:
            note = ", ".join(filter(None, (self.left(), self.note)))
            completed = self.done + sum(self._shares.values())
            self._bars.update(self._overall, completed=completed, count=f"{self.done}/{self.total}", note=escape(note))


class PoolProgress:
    """Shows the events of a plan or of a search: ``with PoolProgress(...) as show: run_plan(..., on_event=show)``.

    ``name`` gives the name of a run or trial by its number, and ``metric`` is the metric of trials.
    """

    def __init__(self, total: int, name: Callable[[int], str], what: str = "runs", metric: str = "") -> None:
        self._name, self._metric, self.board = name, metric, Board(total, what, console(stderr=True))

    def __call__(self, event: Event) -> None:
        board = self.board
        board.total = max(board.total, event.done)  # an earlier search may have been longer
        if event.best is not None:
            board.note = f"best {self._metric} {show(self._metric, event.best)}"
        if event.kind == "skipped":
            board.skip()
        elif event.kind == "started":
            board.start(event.job, self._name(event.number))
        elif event.epoch is not None:
            board.epoch(event.job, self._name(event.number), event.epoch)
        elif event.kind != "opened":
            board.end(event.job, self._name(event.number), self._outcome(event), failed=event.kind == "failed")
        # Other trials were finished before or on other machines; those running here may have ended, too.
        if event.done > board.done + board.running:
            board.skip(event.done - board.done - board.running)

    def _outcome(self, event: Event) -> str:
        if event.kind == "failed":
            return f"failed: {event.message}"
        if event.result is not None:
            metrics = next(reversed(event.result.metrics.values()))  # of the test nodes, if there are any
            metric, value = next(iter(metrics.items()))
            return f"{metric} {show(metric, value)}, {event.result.epochs} epochs, {duration(event.result.seconds)}"
        value = math.nan if event.value is None else event.value
        return "pruned" if event.kind == "pruned" else f"{self._metric} {show(self._metric, value)}"

    def __enter__(self) -> Self:
        self.board.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.board.__exit__(*error)


def duration(seconds: float) -> str:
    """A readable time: ``"40 s"``, ``"12 min"``, ``"3.5 h"``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
