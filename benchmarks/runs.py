"""The runs of a benchmark, with a progress bar; finished runs are kept, so that a benchmark can be resumed."""

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from torch_goat.experiments import Event, PlannedRun, run_plan
from torch_goat.experiments.training.interrupt import stopping_after


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
