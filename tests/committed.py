"""The committed results, read for tests of the pages that state them."""

from functools import cache
from statistics import fmean
from typing import Any

from standing import RESULTS, read, recipe_of

from torch_goat.data.datasets import DATASETS
from torch_goat.experiments.tables.ledger import read_lines


@cache
def lines(table: str) -> dict[str, Any]:
    """The results by their folders; none of a table that was not run."""
    path = RESULTS / f"{table}.jsonl"
    return {folder: line["result"] for folder, line in read_lines(path).items()} if path.exists() else {}


def values(table: str, row: str, column: str, split: str = "test", folder: str = "{column}/{row}") -> list[float]:
    """The metric of a cell's runs, or of others in folders of this form, accuracies and areas in percent."""
    metric = DATASETS[recipe_of(table).columns[column].dataset].metric
    folders = [f"{folder.format(row=row, column=column)}/{number}" for number in range(10)]
    metrics = [lines(table)[name]["metrics"][split] for name in folders if name in lines(table)]
    return [one["mse"] if metric == "mse" else round(100 * one[metric], 6) for one in metrics]


def average(table: str, row: str, column: str) -> float:
    return fmean(values(table, row, column))


def rows_run(table: str, column: str) -> list[str]:
    """The rows of a table that were run as often as planned on a dataset."""
    recipe = recipe_of(table)
    return [row for row in recipe.rows if len(values(table, row, column)) == recipe.runs(column)]


def compared(table: str, row: str, column: str, baseline: str | None = None) -> tuple[float, float]:
    """The difference from the best baseline and its p-value. The baseline is checked if it is named."""
    found = read(table).entries[row, column].comparison
    assert found is not None
    assert found.p_value is not None
    assert baseline in (None, found.other)
    return found.difference, found.p_value


def p(table: str, row: str, column: str, baseline: str | None = None) -> str:
    value = compared(table, row, column, baseline)[1]
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
