"""Progress of runs on standard error: bars on a terminal, plain lines elsewhere."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from torch_goat.app.cli.console import console, say
from torch_goat.experiments import Event, Experiment, Result
from torch_goat.experiments.training.metrics import duration, show
from torch_goat.experiments.verdict import shown

if TYPE_CHECKING:
    from torch_goat.experiments import Epoch
    from torch_goat.experiments.leaderboard import Plan

LINE_SECONDS = 30.0  # between two lines on the epochs of a run


class Display:
    """A bar for the run of each process on a terminal; elsewhere a line on its epochs now and then."""

    def __init__(self, *, transient: bool) -> None:
        fields = ("description", "fields[count]", "fields[note]")
        name, count, note = (TextColumn(f"{{task.{field}}}") for field in fields)
        columns = (name, BarColumn(), count, TimeElapsedColumn(), note)
        self._console = console(stderr=True)
        self._bars = Progress(*columns, console=self._console, transient=transient)
        self._tasks: dict[int, TaskID] = {}  # the bar of each process
        self._next: dict[int, float] = {}  # when to print the next line on its run

    def start(self, job: int, name: str) -> None:
        """Process ``job`` starts a run."""
        self._next[job] = time.monotonic() + LINE_SECONDS
        self._tasks[job] = self._bars.add_task(escape(name), total=None, count="", note="starting")

    def epoch(self, job: int, name: str, epoch: "Epoch") -> None:
        """Process ``job`` finished an epoch."""
        note = f"loss {epoch.train_loss:.4f}, validation {epoch.metric} {show(epoch.metric, epoch.val_metric)}"
        count = f"{epoch.number}/{epoch.total}"
        self._bars.update(self._tasks[job], total=epoch.total, completed=epoch.number, count=count, note=note)
        if not self._console.is_interactive and time.monotonic() >= self._next[job]:
            self._next[job] = time.monotonic() + LINE_SECONDS
            self.print(f"{name}: epoch {epoch.number} of {epoch.total}, {note}")

    def print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._console.is_interactive:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_interactive:
            self._bars.stop()


class RunProgress(Display):
    """Shows the epochs of one run: ``with RunProgress(name) as show: train(..., observer=show)``.

    Elsewhere than on a terminal, the last epoch always has a line, unless ``summed_up``: the caller prints the result.
    """

    def __init__(self, name: str, *, summed_up: bool = False) -> None:
        super().__init__(transient=False)
        self._name, self._summed_up = name, summed_up
        self._last: Epoch | None = None
        self.start(0, name)

    def __call__(self, epoch: "Epoch") -> None:
        self._last = epoch
        self.epoch(0, self._name, epoch)

    def __exit__(self, *error: object) -> None:
        if self._last is not None:
            self._next[0] = math.inf if self._summed_up else 0.0
            self.epoch(0, self._name, self._last)
        super().__exit__(*error)


class PoolProgress(Display):
    """Shows the events of a plan or of a search: ``with PoolProgress(...) as show: run_plan(..., on_event=show)``.

    On a terminal there is also a bar for all runs with the estimated time left, and the bars disappear at the end.
    Elsewhere a line is printed when a run ends. ``name`` gives the name of a run or trial by its number, ``what`` is
    what they are called, in the plural, and ``metric`` is the metric of trials.
    """

    def __init__(self, total: int, name: Callable[[int], str], what: str = "runs", metric: str = "") -> None:
        super().__init__(transient=True)
        self._name, self._metric, self._best, self._start = name, metric, "", time.monotonic()
        self._total, self._done, self._skipped = total, 0, 0
        self._shares: dict[int, float] = {}  # the completed share of each process's current run
        self._what = what
        self._overall = self._bars.add_task(f"all {total} {what}", total=total, count="", note="")

    def grow(self, total: int) -> None:
        """Changes the number of all runs, if it was smaller."""
        if total > self._total:
            self._total = total
            self._bars.update(self._overall, total=total, description=f"all {total} {self._what}")

    def __call__(self, event: Event) -> None:
        self.grow(event.done)  # an earlier search may have been longer
        if event.best is not None:
            self._best = f"best {self._metric} {show(self._metric, event.best)}"
        if event.kind == "started":
            self._shares[event.job] = 0.0
            self.start(event.job, self._name(event.number))
        elif event.epoch is not None:
            self._shares[event.job] = event.epoch.number / event.epoch.total
            self.epoch(event.job, self._name(event.number), event.epoch)
        elif event.kind not in ("opened", "skipped"):
            self._end(event)
        # Other trials were finished before or on other machines; those running here may have ended, too.
        skipped = max(event.done - self._done - len(self._shares), event.kind == "skipped")
        self._done += skipped
        self._skipped += skipped
        note = escape(", ".join(filter(None, (self._left(), self._best))))
        completed = self._done + sum(self._shares.values())
        self._bars.update(self._overall, completed=completed, count=f"{self._done}/{self._total}", note=note)

    def _end(self, event: Event) -> None:
        """A run ended."""
        self._shares.pop(event.job, None)
        self._done += 1
        if event.job in self._tasks:
            self._bars.remove_task(self._tasks.pop(event.job))
        name, text = self._name(event.number), self._outcome(event)
        if not self._console.is_interactive:
            text = ", ".join(filter(None, (text, self._best, self._left())))
            self.print(f"{self._done}/{self._total} {name}: {text}")
        elif event.kind == "failed":
            self.print(f"{name}: {text}")

    def _left(self) -> str:
        """The estimated time left; empty at the beginning and at the end."""
        progress = self._done - self._skipped + sum(self._shares.values())
        if progress < 0.01 or self._done >= self._total:
            return ""
        seconds = (time.monotonic() - self._start) * (self._total - self._skipped - progress) / progress
        return f"about {duration(seconds)} left"

    def _outcome(self, event: Event) -> str:
        if event.kind == "failed":
            return f"failed: {event.message}"
        if event.result is not None:
            metrics = next(reversed(event.result.metrics.values()))  # of the test nodes, if there are any
            metric, value = next(iter(metrics.items()))
            return f"{metric} {show(metric, value)}, {event.result.epochs} epochs, {duration(event.result.seconds)}"
        value = math.nan if event.value is None else event.value
        return "pruned" if event.kind == "pruned" else f"{self._metric} {show(self._metric, value)}"


class LeaderboardProgress:
    """Announces the trials and the plan of a comparison, and counts its runs and the time that is left.

    ``run`` trains one run with a name and returns its result and whether it was finished before; this is called in its
    place. ``metric`` is the deciding one.
    """

    def __init__(self, run: Callable[..., tuple[Result, bool]], metric: str) -> None:
        self._run, self._metric = run, metric
        self._expected: list[float] = []  # seconds of each run of the plan
        self._number, self._spent, self._planned = 0, 0.0, 0.0

    def trying(self, model: str, number: int, total: int) -> None:
        """Says which model is tried."""
        if number == 1:
            say("Trying each model for a few epochs, the simplest first ...", stderr=True)
        say(f"trial {number} of {total}: {shown(model, self._metric)}", stderr=True)

    def announce(self, plan: "Plan") -> None:
        """Says what will be trained, and what will not."""
        self._expected = [plan.models[model].seconds for model, _, _ in plan]
        say(
            f"Plan: {plan.runs} runs of {len(plan.models)} models, about {duration(plan.seconds)} (at most "
            f"{duration(plan.most)}) and {plan.memory / 2**30:.1f} GiB of memory."
        )
        if batched := [name for name, one in plan.models.items() if one.experiment.training.batch_size]:
            say(f"Trained on mini-batches: {', '.join(shown(name, self._metric) for name in batched)}.")
        if plan.skipped:
            whole = {name: len(plan.repetitions) * seconds for name, seconds in plan.skipped.items()}
            times = (
                (name, f"about {duration(seconds)}" if seconds else "not tried") for name, seconds in whole.items()
            )
            names = (f"{shown(name, self._metric)} ({text})" for name, text in times)
            needed = math.ceil(1.2 * (plan.seconds + sum(whole.values())) / 60)
            known = f"set --minutes {needed}" if all(whole.values()) else "set a larger --minutes, or 0 for no limit"
            say(f"Skipped for lack of time: {', '.join(names)}. To include all, {known}.")

    def __call__(self, experiment: Experiment, folder: Path, **more: Any) -> tuple[Result, bool]:
        expected, begun = self._expected[self._number], time.monotonic()
        self._number += 1
        name = f"run {self._number} of {len(self._expected)}: {shown(experiment.model.name, self._metric)}"
        result, done = self._run(experiment, folder, name=name, **more)
        if not done:
            self._spent, self._planned = self._spent + time.monotonic() - begun, self._planned + expected
        left = sum(self._expected[self._number :]) * (self._spent / self._planned if self._planned else 1.0)
        values = result.metrics["val"]
        metric = self._metric if self._metric in values else next(iter(values))  # of an earlier version
        notes = [f"validation {metric} {show(metric, values[metric])}", *(["finished before"] if done else [])]
        notes += [f"about {duration(left)} left"] if left else []
        say(f"{name}: {', '.join(notes)}", stderr=True)
        return result, done
