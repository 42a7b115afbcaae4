"""The runs of a benchmark, with a progress bar; finished runs are kept, so that a benchmark can be resumed."""

import argparse
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from torch_goat.experiments import Event, Interrupted, PlannedRun, run_plan
from torch_goat.experiments.training.interrupt import stopping_after

OPTIONS = ("seconds", "jobs", "device", "threads", "data_dir")  # of run_all, by their names in the arguments


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of :func:`run_until_stopped`."""
    parser.add_argument("--data-dir", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=0, help="runs at a time")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each run")
    parser.add_argument("--seconds", type=float, help="stop as Ctrl-C does after this time")


def run_until_stopped(runs: Sequence[PlannedRun], arguments: argparse.Namespace) -> None:
    """Does the runs that are missing as :func:`add_options` says; one that is stopped says what is done."""
    try:
        run_all(runs, **{name: getattr(arguments, name) for name in OPTIONS})
    except Interrupted as error:
        print(error)


def run_all(runs: Sequence[PlannedRun], *, seconds: float | None = None, **options: Any) -> None:
    """Does the runs that are missing, and says of those that fail why; stopped, it raises ``Interrupted``.

    Args:
        runs: The runs.
        seconds: Stop as Ctrl-C does after this time.
        **options: As :func:`torch_goat.experiments.run_plan` takes them.
    """
    with stopping_after(seconds), tqdm(total=len(runs), unit="run", mininterval=1) as bar:

        def report(event: Event) -> None:
            if event.kind in ("finished", "skipped", "failed"):
                bar.update()
            if event.kind == "failed":
                bar.write(f"{runs[event.number].folder}: {event.message}")

        run_plan(runs, on_event=report, **options)
