import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from torch_goat.app.cli.console import Aligned, console, say, write
from torch_goat.app.cli.options import check_known
from torch_goat.experiments import Run, RunError, find_runs
from torch_goat.experiments.comparison import compare_runs, deciding_metric, rank_key, score
from torch_goat.experiments.training.metrics import show
from torch_goat.experiments.training.options import data_of
from torch_goat.experiments.verdict import FEWEST
from torch_goat.files import csv_text
from torch_goat.settings import SettingsError

COMMON = ("dataset", "model", "seed", "index", "metric", "state")  # shown once above the table on a narrow terminal


@dataclass(frozen=True)
class Row:
    """A run in the list; ``note`` tells why it is failed or damaged, and metrics are ``None`` until it is done."""

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
    val: float | None = None
    test: float | None = None
    seconds: float | None = None


KEYS = [field.name for field in fields(Row)]


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder to search, at any depth.")] = Path("runs"),
    dataset: Annotated[str, typer.Option(help="Only runs on this dataset.")] = "",
    model: Annotated[str, typer.Option(help="Only runs of this model.")] = "",
    done: Annotated[bool | None, typer.Option("--done/--unfinished", help="Only finished or unfinished runs.")] = None,
    sort: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Sort by a column, such as val (best first) or seconds (smallest first)."),
    ] = "",
    style: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
    accept: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Record new digests for a run whose files you have edited.")
    ] = None,
) -> None:
    """List the settings, metrics and state of all runs in a folder.

    Example: goat runs --dataset cora --done --sort val
    """
    if accept is not None:
        files, changed = Run(accept).accept()
        what = f"changed since the last record: {', '.join(changed)}" if changed else "none had changed"
        say(f"Recorded the digests of {len(files)} files in {accept} ({what}).")
        return
    check_known("format", style, ("table", "csv", "json"))
    if sort:
        check_known("column", sort, KEYS)
    if not folder.is_dir() and folder != Path("runs"):
        raise SettingsError(f"there is no folder {folder}; name one that contains runs.")
    found = [
        row
        for row in map(_read, find_runs(folder))
        if dataset in ("", row.dataset) and model in ("", row.model) and done in (None, row.state == "done")
    ]
    if sort:
        found.sort(key=lambda row: _sort_key(row, sort))
    if style == "csv":
        write(csv_text([KEYS, *(asdict(row).values() for row in found)]))
    elif style == "json":
        write(json.dumps([asdict(row) for row in found], indent=1) + "\n")
    elif found:
        _print(found, folder)
        for sentence in _verdict([Run(row.folder) for row in found if row.state == "done"]):
            say(sentence)
    else:
        say(f"There are no such runs in {folder}.")


def _verdict(done: Sequence[Run]) -> tuple[str, ...]:
    """Which model is better, if all runs are on the same data and there are enough of them."""
    verdict = compare_runs(done).verdict if len({data_of(run.experiment) for run in done}) == 1 else None
    return () if verdict is None or verdict.pairs < FEWEST else verdict.sentences


def _read(run: Run) -> Row:
    try:
        one, state = run.experiment, run.state
        values: dict[str, Any] = {}
        if state == "done":
            metric = deciding_metric([run])
            values = {"metric": metric, "seconds": float(run.result.seconds)}
            scores = {split: float(score(run, split, metric)) for split in ("val", "test")}
            values |= {split: value for split, value in scores.items() if not math.isnan(value)}
        return Row(
            folder=str(run.folder),
            state=state,
            note=run.error if state == "failed" else "",
            dataset=one.dataset,
            model=one.model.name,
            split=one.split,
            index=one.index,
            seed=one.seed,
            epochs=run.epochs,
            **values,
        )
    except RunError as error:
        return Row(str(run.folder), "damaged", getattr(error, "what", str(error)))


def _sort_key(row: Row, key: str) -> Any:
    value = getattr(row, key)
    if value is None:
        return math.inf
    return rank_key(value, row.metric) if key in ("val", "test") else value


def _print(found: Sequence[Row], folder: Path) -> None:
    rows = []
    for row in found:
        name = os.path.relpath(row.folder, folder)
        state = row.state + (f" at epoch {row.epochs}" if row.state in ("running", "stopped") else "")
        state += f": {row.note}" if row.note else ""
        if row.state == "damaged":
            rows.append([name, *[""] * 9, state])
            continue
        numbers = ["" if value is None else show(row.metric, value) for value in (row.val, row.test)]
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        settled = [row.dataset, row.model, str(row.seed), str(row.index), str(row.epochs), row.metric]
        rows.append([name, *settled, *numbers, seconds, state])
    columns = ["run", "dataset", "model", "seed", "index", "epochs", "metric", "val", "test", "seconds", "state"]
    if len(rows) > 1 and Aligned(columns, rows).width() > console().width:
        columns, rows = _without_common(columns, rows)
    console().print(Aligned(columns, rows))


def _without_common(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without the settings that all runs have in common, which are printed once."""
    values = [{row[number] for row in rows} - {""} for number in range(len(columns))]  # empty for damaged runs
    common = [name in COMMON and len(found) == 1 for name, found in zip(columns, values, strict=True)]
    if any(common):
        shown = (f"{name} {min(found)}" for name, found, once in zip(columns, values, common, strict=True) if once)
        say(f"In common: {', '.join(shown)}.")
    columns, *rows = ([text for text, once in zip(row, common, strict=True) if not once] for row in (columns, *rows))
    return columns, rows
