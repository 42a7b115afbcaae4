import csv
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.experiments import Result, Run, find_runs
from torch_goat.experiments.run import Damaged
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER, decisive, show
from torch_goat.settings import SettingsError, nearest

FORMATS = ("table", "csv", "json")
DONE = "done"
COMMON = ("dataset", "model", "seed", "index", "metric", "state")  # said once where a terminal is narrow


@dataclass(frozen=True)
class Row:
    """What a run folder says of itself.

    Args:
        folder: The folder.
        state: ``"done"``, ``"running"``, ``"stopped"``, ``"failed"`` or ``"damaged"``.
        note: Why, of the last two.
        dataset: The dataset.
        model: The model.
        split: The split protocol.
        index: Which graph or split.
        seed: The seed.
        epochs: How many epochs are known to be over.
        metric: What is measured.
        val: The metric of the validation nodes, once the run is done.
        test: That of the test nodes.
        seconds: The time of all epochs.
    """

    folder: str
    state: str
    note: str = ""
    dataset: str = ""
    model: str = ""
    split: str = ""
    index: int = 0
    seed: int = 0
    epochs: int = 0
    metric: str = ""
    val: float = math.nan
    test: float = math.nan
    seconds: float = math.nan


KEYS = [field.name for field in fields(Row)]


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look, at any depth.")] = Path("runs"),
    dataset: Annotated[str, typer.Option("--dataset", help="Only runs on this dataset.")] = "",
    model: Annotated[str, typer.Option("--model", help="Only runs of this model.")] = "",
    done: Annotated[bool | None, typer.Option("--done/--unfinished", help="Only runs that are done, or not.")] = None,
    sort: Annotated[str, typer.Option("--sort", metavar="COLUMN", help="Best or smallest first: test, val, ...")] = "",
    style: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """List what was run: settings, metrics and state of every run folder.

    Example: goat runs --dataset cora --done --sort val
    """
    if style not in FORMATS:
        raise SettingsError(f"there is no format {style!r}{nearest(style, FORMATS)}")
    if sort and sort not in KEYS:
        raise SettingsError(f"there is no column {sort!r}{nearest(sort, KEYS)}")
    if not folder.is_dir() and folder != Path("runs"):
        raise SettingsError(f"there is no folder {folder}; name one that holds runs.")
    found = [
        run
        for run in map(summary, find_runs(folder))
        if dataset in ("", run.dataset) and model in ("", run.model) and done in (None, run.state == DONE)
    ]
    if sort:
        found.sort(key=lambda run: _rank(run, sort))
    if style == "csv":
        typer.echo(_csv(found), nl=False)
    elif style == "json":
        rows = [{key: None if value != value else value for key, value in asdict(run).items()} for run in found]
        typer.echo(json.dumps(rows, indent=1))
    elif found:
        _print(found, folder)
    else:
        typer.echo(f"There are no such runs in {folder}.")


def summary(run: Run) -> Row:
    """What a run folder holds; one that cannot be read is damaged."""
    blank = Row(str(run.folder), "damaged")
    try:
        experiment = run.experiment
        row = replace(
            blank,
            state=run.state,
            note=run.error if run.state == "failed" else "",
            dataset=experiment.dataset,
            model=experiment.model.name,
            split=experiment.split,
            index=experiment.index,
            seed=experiment.seed,
            epochs=run.epochs,
        )
        return _with_result(row, run.result, experiment.training.class_weights) if row.state == DONE else row
    except Damaged as error:
        return replace(blank, note=f"{run.folder}/{error.what}")


def _with_result(run: Row, result: Result, weighted: bool) -> Row:
    metric = decisive(next(iter(result.metrics["val"])), weighted)
    test = result.metrics.get("test", {}).get(metric, math.nan)
    val, seconds = result.metrics["val"][metric], float(result.seconds)
    return replace(
        run, state=DONE, epochs=result.epochs, metric=metric, val=float(val), test=float(test), seconds=seconds
    )


def _rank(run: Row, key: str) -> tuple[bool, Any]:
    value = getattr(run, key)
    if isinstance(value, float) and math.isnan(value):
        return True, 0.0
    return False, -value if key in ("val", "test") and run.metric not in LOWER_IS_BETTER else value


def _csv(found: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(KEYS)
    for run in found:
        writer.writerow("" if value != value else value for value in asdict(run).values())
    return text.getvalue()


def _print(found: Sequence[Row], folder: Path) -> None:
    rows = []
    for run in found:
        name = os.path.relpath(run.folder, folder)
        state = run.state + (f" at epoch {run.epochs}" if run.state in ("running", "stopped") else "")
        state += f": {run.note}" if run.note else ""
        if run.state == "damaged":
            rows.append([name, *[""] * 9, state])
            continue
        numbers = ["" if value != value else show(run.metric, value) for value in (run.val, run.test)]
        seconds = "" if math.isnan(run.seconds) else f"{run.seconds:.1f}"
        settled = [run.dataset, run.model, str(run.seed), str(run.index), str(run.epochs), run.metric]
        rows.append([name, *settled, *numbers, seconds, state])
    columns = ["run", "dataset", "model", "seed", "index", "epochs", "metric", "val", "test", "seconds", "state"]
    if len(rows) > 1 and Aligned(columns, rows).width() > console().width:
        columns, rows = _without_common(columns, rows)
    console().print(Aligned(columns, rows))


def _without_common(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without the settings that all runs have in common, which are said above it once."""
    values = [{row[number] for row in rows} - {""} for number in range(len(columns))]  # damaged runs have none
    common = [name in COMMON and len(found) == 1 for name, found in zip(columns, values, strict=True)]
    if any(common):
        shown = (f"{name} {min(found)}" for name, found, once in zip(columns, values, common, strict=True) if once)
        say(f"In common: {', '.join(shown)}.")
    columns, *rows = ([text for text, once in zip(row, common, strict=True) if not once] for row in (columns, *rows))
    return columns, rows
