"""A plan: a list of runs in a JSON file, ``{"runs": [{"folder": "cora/gat-0", "experiment": {...}}]}``."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torch_goat import settings
from torch_goat.experiments.training.options import Experiment
from torch_goat.files import write_atomic


class PlannedRun(NamedTuple):
    """An experiment and the run folder that it belongs in."""

    folder: Path
    experiment: Experiment


def write_plan(path: str | Path, runs: Iterable[PlannedRun]) -> None:
    """Writes a plan; its folders are relative to it, so that both can go to another machine together."""
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
    return [_run(path, number, entry) for number, entry in enumerate(plan["runs"])]


def _run(path: Path, number: int, entry: object) -> PlannedRun:
    where = f"{path}: runs[{number}]"
    if not isinstance(entry, dict) or set(entry) != {"folder", "experiment"} or not isinstance(entry["folder"], str):
        raise settings.SettingsError(f'{where} must be {{"folder": "...", "experiment": {{...}}}}.')
    return PlannedRun(path.parent / entry["folder"], settings.parse(Experiment, entry["experiment"], where))
