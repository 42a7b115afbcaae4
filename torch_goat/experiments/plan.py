"""Plans: lists of runs in a JSON file, ``{"runs": [{"folder": "cora/gat-0", "experiment": {...}}]}``.

``python -m torch_goat.training.worker PLAN.json`` runs one without the command line. It needs only PyTorch, PyG and
Lightning Fabric, for machines on which nothing else can be installed; another machine makes the plan and collects the
results.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torch_goat import settings
from torch_goat.experiments import Experiment, Interrupted, RunError, finished
from torch_goat.experiments.pool import Event, Pool, Reporter, devices_of
from torch_goat.experiments.run import ERROR, write_error
from torch_goat.experiments.training.interrupt import stopping_after
from torch_goat.experiments.training.metrics import show
from torch_goat.experiments.training.processes import check_device
from torch_goat.files import Busy, write_atomic

GPU_JOBS = 8  # default number of runs at a time on one GPU
LINE_SECONDS = 30.0  # between two lines about the epochs of a run
ENDS = ("skipped", "finished", "failed")  # the kinds of the last event of a run


class PlannedRun(NamedTuple):
    """An experiment and its run folder."""

    folder: Path
    experiment: Experiment


def write_plan(path: str | Path, runs: Iterable[PlannedRun]) -> None:
    """Writes a plan; its folders are relative to it, so that both can move to another machine."""
    path = Path(path)
    table = []
    for folder, experiment in runs:
        relative = Path(os.path.relpath(folder, path.parent)).as_posix()
        table.append({"folder": relative, "experiment": settings.to_table(experiment)})
    write_atomic(path, json.dumps({"runs": table}, indent=1) + "\n")


def read_plan(path: str | Path) -> list[PlannedRun]:
    """Reads a plan and checks every run in it."""
    path = Path(path)
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise settings.SettingsError(f"{path}: not a JSON file: {error}.") from None
    if not isinstance(plan, dict) or set(plan) != {"runs"} or not isinstance(plan["runs"], list):
        raise settings.SettingsError(f'{path}: a plan must be {{"runs": [...]}}.')
    runs = []
    for number, entry in enumerate(plan["runs"]):
        where = f"{path}: runs[{number}]"
        keys = set(entry) if isinstance(entry, dict) else set()
        if keys != {"folder", "experiment"} or not isinstance(entry["folder"], str):
            raise settings.SettingsError(f'{where} must be {{"folder": "...", "experiment": {{...}}}}.')
        runs.append(PlannedRun(path.parent / entry["folder"], settings.parse(Experiment, entry["experiment"], where)))
    return runs


def run_plan(
    plan: Sequence[PlannedRun],
    *,
    jobs: int = 0,
    device: str = "auto",
    threads: int = 1,
    data_dir: str | Path | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> list[Event]:
    """Runs the unfinished runs of a plan, several at a time.

    A run that fails or whose process is killed leaves ``error.txt`` in its folder; the others continue. Ctrl-C stops
    every run after its current epoch with a checkpoint and raises :class:`Interrupted`; pressed twice, it kills them.
    The processes are new interpreters, so scripts must call this under ``if __name__ == "__main__":``.

    Args:
        plan: The runs. ``on_event`` can append further ones, in folders of their own, which are run next.
        jobs: Number of runs at a time. By default as many as there are cores for, at most 8 on a GPU.
        device: As in :func:`train`; ``"cuda"`` uses all GPUs in turn.
        threads: CPU threads of each run.
        data_dir: Folder of the datasets.
        on_event: Called with each event, in this process.

    Returns:
        The last event of each run: skipped, finished or failed.
    """
    if jobs < 0 or threads < 1:
        raise ValueError(f"jobs must be at least 0 and threads at least 1, got {jobs} and {threads}.")
    folder, count = Counter(run.folder.resolve() for run in plan).most_common(1)[0] if plan else (None, 0)
    if count > 1:
        raise ValueError(f"the plan has {count} runs for the folder {folder}; give each its own.")
    check_device(device)
    devices = devices_of(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jobs == 0:
        jobs = max(1, cores // threads)
        jobs = min(jobs, GPU_JOBS * len(devices)) if devices[0].startswith("cuda") else jobs
    ends: dict[int, Event] = {}

    def tell(event: Event) -> None:
        if event.kind in ENDS:
            ends[event.number] = event
        on_event(event)

    def watch(event: Event) -> None:
        tell(event)
        enter()

    def dead(task: tuple[int, PlannedRun, str | Path | None], last: Event | None, reason: str) -> bool:
        message = f"the run's process {reason}."
        _explain(task[1].folder, message)
        watch(Event("failed", task[0], last.job if last else 0, message=message))
        return False

    pool = Pool(_run, jobs=jobs, devices=devices, threads=threads, on_event=watch, on_death=dead)
    entered = 0

    def enter() -> None:
        """Gives the pool what the plan has had since the last call."""
        nonlocal entered
        tasks = []
        while entered < len(plan):
            number, run, entered = entered, plan[entered], entered + 1
            try:
                result = finished(run.experiment, run.folder)
            except RunError as error:
                tell(Event("failed", number, message=str(error)))
                continue
            if result is not None:
                tell(Event("skipped", number, result=result))
            else:
                tasks.append((number, run, data_dir))
        pool.add(tasks)

    try:
        enter()
        pool.run()
    except KeyboardInterrupt:
        done = sum(event.kind != "failed" for event in ends.values())
        raise Interrupted(
            f"stopped; {done} of {len(plan)} runs are done, run the same plan again to continue."
        ) from None
    return [ends[number] for number in range(len(plan))]


def why_failed(plan: Sequence[PlannedRun], ends: Iterable[Event]) -> list[str]:
    """One sentence for each failed run, with its folder."""
    failed = [(str(plan[end.number].folder), end.message) for end in ends if end.kind == "failed"]
    return [message if folder in message else f"{folder}: {message}" for folder, message in failed]


def _run(task: tuple[int, PlannedRun, str | Path | None], device: str, report: Reporter) -> bool:
    number, (folder, experiment), data_dir = task
    from torch_goat.experiments import train

    report.send(Event("started", number, report.job))
    try:
        result = train(
            experiment, folder, device=device, data_dir=data_dir, observer=lambda epoch: report.epoch(number, epoch)
        )
    except Exception as error:
        message = str(error) or type(error).__name__
        if not isinstance(error, Busy):  # then another process uses the folder
            _explain(folder, f"{message}\n\n{traceback.format_exc()}")
        report.send(Event("failed", number, report.job, message=message))
        return not device.startswith("cuda")  # errors of a GPU may affect later runs of the process
    report.send(Event("finished", number, report.job, result=result))
    return True


def _explain(folder: Path, text: str) -> None:
    with suppress(OSError):  # the disk may be what failed
        write_error(folder, text)


class PlanLog:
    """Prints the events of a plan, a line each."""

    def __init__(self, plan: Sequence[PlannedRun]) -> None:
        self.plan, self.ended = plan, 0
        self.next: dict[int, float] = {}

    def __call__(self, event: Event) -> None:
        if text := self._text(event):
            print(settings.printable(f"{self.plan[event.number].folder}: {text}"), flush=True)

    def _text(self, event: Event) -> str:
        now = time.monotonic()
        if event.kind in ("started", "epoch"):
            if now < self.next.get(event.number, now):
                return ""
            self.next[event.number] = now + LINE_SECONDS
            if (epoch := event.epoch) is None:
                return "started"
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
    parser.add_argument(
        "--jobs", type=int, default=0, help="runs at a time (default: one per core, on a GPU at most 8)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1 (default: auto)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each run (default: 1)")
    parser.add_argument("--data-dir", help="folder of the datasets (default: TORCH_GOAT_DATA)")
    parser.add_argument("--seconds", type=float, help="stop after this time, as Ctrl-C does")


def run_logged(
    plan: Sequence[PlannedRun], options: argparse.Namespace, on_event: Callable[[Event], None] = lambda event: None
) -> list[Event]:
    """Runs a plan as the command-line options say, with a line for each event."""
    log = PlanLog(plan)

    def watch(event: Event) -> None:
        on_event(event)
        log(event)

    how = {"jobs": options.jobs, "device": options.device, "threads": options.threads, "data_dir": options.data_dir}
    return run_plan(plan, on_event=watch, **how)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a plan; exit code 0 if all runs are done, 1 if one failed, 2 for wrong usage, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_goat.training.worker", description="Run the experiments of a plan, several at a time."
    )
    parser.add_argument("plan", metavar="PLAN.json", help="the runs, with folders relative to this file")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        plan = read_plan(options.plan)
        with stopping_after(options.seconds):
            ends = run_logged(plan, options)
    except (ValueError, OSError) as error:
        parser.error(settings.printable(str(error)))
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
