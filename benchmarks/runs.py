"""The runs of a benchmark, with a bar; what is done is kept, so that a benchmark goes on where it was stopped."""

import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from torch_goat.training import Event, PlannedRun, run_plan


def run_all(runs: Sequence[PlannedRun], *, seconds: float | None = None, **options: Any) -> None:
    """Does the runs that are missing, and says of those that fail why; stopped, it raises ``Interrupted``.

    Args:
        runs: The runs.
        seconds: Stop as Ctrl-C does after this time.
        **options: As :func:`torch_goat.training.run_plan` takes them.
    """
    if seconds:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    with tqdm(total=len(runs), unit="run", mininterval=1) as bar:

        def report(event: Event) -> None:
            if event.kind in ("finished", "skipped", "failed"):
                bar.update()
            if event.kind == "failed":
                bar.write(f"{runs[event.index].folder}: {event.message}")

        run_plan(runs, on_event=report, **options)
