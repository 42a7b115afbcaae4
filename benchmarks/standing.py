"""The summary of the results: our numbers, the paper's, and the best baseline's with the p-value of the difference.

    python benchmarks/standing.py > results/standing.md

Reads the tables in ``results`` and trains nothing.
"""

import argparse
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torch_goat import settings
from torch_goat.experiments.recipes import Recipe, plan, read_recipe
from torch_goat.experiments.tables import Ledger, ResultTable, tabulate
from torch_goat.experiments.tables.table import Entry, Heading

RESULTS = Path(__file__).parents[1] / "results"


class Cell(NamedTuple):
    """A cell of the summary.

    Args:
        table: The table.
        column: The column.
        row: The row of GOAT.
        protocol: Appended to the column's label where two tables use the same dataset.
    """

    table: str
    column: str
    row: str
    protocol: str = ""


CELLS = (
    *(
        Cell("table1", column, "goat-lstm")
        for column in ("top2", "betweenness-100", "betweenness-1000", "effective-size-100", "effective-size-1000")
    ),
    *(Cell("table2", column, "goat-lstm") for column in ("cora", "citeseer", "computers", "photo", "cs", "physics")),
    *(Cell("heterophilous", column, "goat") for column in ("cornell", "texas", "wisconsin")),
    *(
        Cell("tuned", column, "goat", ", tuned")
        for column in ("cora", "citeseer", "computers", "photo", "cs", "physics")
    ),
)
HEADER = ("task", "GOAT", "GOAT, exact form", "the paper's GOAT", "best baseline", "p")


def recipe_of(table: str, folder: Path = RESULTS) -> Recipe:
    """The recipe that a table was run with: with the settings of its search, if there was one."""
    found = folder / f"{table}.toml"
    return settings.read(Recipe, found) if found.exists() else read_recipe(table)


@cache
def read(table: str, folder: Path = RESULTS) -> ResultTable:
    """One table of the committed results."""
    recipe = recipe_of(table, folder)
    runs = plan(recipe)
    return tabulate(recipe, runs, Ledger(folder / table).collect(runs)[0])


def line(cell: Cell, table: ResultTable) -> list[str]:
    """The cells of one line of the summary."""
    heading = table.headings[cell.column]
    entry = table.entries[cell.row, cell.column]
    exact = table.entries.get(("goat-paper", cell.column))
    comparison = entry.comparison
    best = table.entries[comparison.other, cell.column] if comparison else None
    p_value = comparison.p_value if comparison else None
    return [
        f"{heading.label}{cell.protocol}, {'MSE' if heading.metric == 'MSE' else '%'}",
        _number(entry, heading),
        "-" if exact is None else _number(exact, heading),
        entry.published.text if entry.published else "-",
        f"{table.baselines[comparison.other]} {_number(best, heading)}" if comparison and best else "-",
        "-" if p_value is None else "< 0.001" if p_value < 0.001 else f"{p_value:.3f}",
    ]


def markdown(folder: Path = RESULTS) -> str:
    """The summary as a table."""
    tables = {table: read(table, folder) for table in {cell.table for cell in CELLS}}
    lines = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *(line(cell, tables[cell.table]) for cell in CELLS)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _number(entry: Entry, heading: Heading) -> str:
    summary = entry.summary
    if summary is None:
        return "not run"
    std = "" if summary.std is None else f" ± {summary.std:.{heading.decimals}f}"
    runs = "" if entry.complete else f" ({summary.n} of {entry.planned} runs)"
    return f"{summary.mean:.{heading.decimals}f}{std}{runs}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the tables")
    print(markdown(parser.parse_args().results), end="")
