"""Runs a plan without the command line: ``python -m torch_goat.training.worker PLAN.json``.

Needs PyTorch, PyG and Lightning Fabric alone, so that a machine where nothing can be installed can do what another one
planned and will collect. Runs that are done are skipped, stopped ones go on; progress is plain lines.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from torch_goat.experiments.run import ERROR
from torch_goat.experiments.training.interrupt import stopping_after
from torch_goat.experiments.training.jobs import Event, run_plan
from torch_goat.experiments.training.metrics import show
from torch_goat.experiments.training.plan import PlannedRun, read_plan

LINE_SECONDS = 30.0  # between two lines on the epochs of a run


class Lines:
    """Writes what happens to the runs of a plan, a line each."""

    def __init__(self, plan: Sequence[PlannedRun]) -> None:
        self.plan, self.ended = plan, 0
        self.next: dict[int, float] = {}

    def __call__(self, event: Event) -> None:
        text = self._text(event)
        if text:
            print(f"{self.plan[event.index].folder}: {text}", flush=True)

    def _text(self, event: Event) -> str:
        now = time.monotonic()
        if event.kind == "started":
            self.next[event.index] = now + LINE_SECONDS
            return "started"
        if event.epoch is not None:
            if now < self.next[event.index]:
                return ""
            self.next[event.index] = now + LINE_SECONDS
            epoch = event.epoch
            shown = show(epoch.metric, epoch.val_metric)
            return f"epoch {epoch.number} of {epoch.total}, validation {epoch.metric} {shown}"
        self.ended += 1
        count = f"({self.ended} of {len(self.plan)})"
        if event.result is None:
            return f"failed {count}: {event.message}"
        metrics = next(reversed(event.result.metrics.values()))  # of the test nodes, where there are any
        name, value = next(iter(metrics.items()))
        how = f", {event.result.epochs} epochs, {event.result.seconds:.1f} s" if event.kind == "finished" else ""
        return f"{event.kind} {count}: {name} {show(name, value)}{how}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What says how runs are done."""
    parser.add_argument(
        "--jobs", type=int, default=0, help="runs at a time (default: one per core, on a GPU at most 8)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1 (default: auto)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each run (default: 1)")
    parser.add_argument("--data-dir", help="the folder of the datasets (default: TORCH_GOAT_DATA)")
    parser.add_argument("--seconds", type=float, help="stop as Ctrl-C does after this time")


def run(plan: Sequence[PlannedRun], options: argparse.Namespace) -> list[Event]:
    """Does the runs as :func:`add_arguments` has it, and returns how each ended."""
    how = {"jobs": options.jobs, "device": options.device, "threads": options.threads, "data_dir": options.data_dir}
    return run_plan(plan, on_event=Lines(plan), **how)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the plan; 0 if all runs are done, 1 if one failed, 2 for wrong usage, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_goat.training.worker", description="Run the experiments of a plan, several at a time."
    )
    parser.add_argument("plan", metavar="PLAN.json", help="the runs, with folders relative to this file")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        plan = read_plan(options.plan)
        with stopping_after(options.seconds):
            ends = run(plan, options)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt as error:
        print(f"worker: {str(error) or 'stopped.'}", file=sys.stderr)
        return 130
    failed = sum(event.kind == "failed" for event in ends)
    if failed:
        print(
            f"worker: {failed} of {len(plan)} runs failed; the lines above and {ERROR} in their folders say why.",
            file=sys.stderr,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
