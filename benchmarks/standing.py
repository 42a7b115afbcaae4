"""Where GOAT stands: our numbers beside the paper's, the best baseline of the same runs and our targets.

    python benchmarks/standing.py

Reads the tables in ``results``, trains nothing, and prints what README.md and docs/results.md show.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from torch_goat import settings
from torch_goat.experiments.recipes import Recipe, plan, read_recipe
from torch_goat.experiments.tables import Ledger, ResultTable, tabulate
from torch_goat.experiments.tables.table import Entry, Heading

RESULTS = Path(__file__).parents[1] / "results"


class Goal(NamedTuple):
    """What is asked of a cell.

    Args:
        table: The table.
        column: The column.
        row: The row of GOAT.
        target: The mean that was aimed at, in the unit of the column, besides being ahead of every baseline.
        protocol: What tells it from another goal on the same data.
    """

    table: str
    column: str
    row: str
    target: float
    protocol: str = ""


GOALS = (
    Goal("table1", "top2", "goat-lstm", 97),
    Goal("table1", "betweenness-100", "goat-lstm", 0.0025),
    Goal("table1", "betweenness-1000", "goat-lstm", 0.0004),
    Goal("table1", "effective-size-100", "goat-lstm", 0.0005),
    Goal("table1", "effective-size-1000", "goat-lstm", 0.00004),
    Goal("table2", "cora", "goat-lstm", 85.5),
    Goal("table2", "citeseer", "goat-lstm", 71.5),
    Goal("table2", "computers", "goat-lstm", 92.5),
    Goal("table2", "photo", "goat-lstm", 95.5),
    Goal("table2", "cs", "goat-lstm", 95.5),
    Goal("table2", "physics", "goat-lstm", 97),
    Goal("heterophilous", "cornell", "goat", 78),
    Goal("heterophilous", "texas", "goat", 82),
    Goal("heterophilous", "wisconsin", "goat", 84),
    # The best classic network of each graph.
    Goal("tuned", "cora", "goat", 85.1, ", tuned"),
    Goal("tuned", "citeseer", "goat", 73.1, ", tuned"),
    Goal("tuned", "computers", "goat", 94.1, ", tuned"),
    Goal("tuned", "photo", "goat", 96.8, ", tuned"),
    Goal("tuned", "cs", "goat", 96.4, ", tuned"),
    Goal("tuned", "physics", "goat", 97.5, ", tuned"),
)
HEADER = ("task", "GOAT", "its exact form", "the paper's GOAT", "best baseline here", "target", "and ahead")


def recipe_of(table: str, folder: Path = RESULTS) -> Recipe:
    """The recipe that a table was run with: that of its search, if there was one."""
    found = folder / f"{table}.toml"
    return settings.read(Recipe, found) if found.exists() else read_recipe(table)


def read(table: str, folder: Path = RESULTS) -> ResultTable:
    """A table of the committed results."""
    recipe = recipe_of(table, folder)
    runs = plan(recipe)
    return tabulate(recipe, runs, Ledger(folder / table).collect(runs)[0])


def line(goal: Goal, table: ResultTable) -> list[str]:
    """What a goal came to: the cells of its line."""
    heading = table.headings[goal.column]
    entry = table.entries[goal.row, goal.column]
    found = {row: table.entries[row, goal.column] for row in table.baselines}
    complete = {row: one for row, one in found.items() if one.complete}
    best = max(complete, key=lambda row: heading.sign * complete[row].mean, default="")
    paper = entry.published.text if entry.published else "-"
    cells = [f"{heading.label}{goal.protocol}, {'MSE' if heading.metric == 'MSE' else '%'}", _number(entry, heading)]
    exact = table.entries.get(("goat-paper", goal.column))
    cells += ["-" if exact is None else _number(exact, heading), paper]
    cells.append(f"{table.baselines[best]} {_number(complete[best], heading)}" if best else "not run yet")
    if not entry.complete:
        return [*cells, f"{goal.target:.{heading.decimals}f}", "-"]
    met = heading.sign * entry.mean >= heading.sign * goal.target
    lead = (
        heading.sign * (round(entry.mean, heading.decimals) - round(complete[best].mean, heading.decimals))
        if best
        else 0
    )
    ahead = "yes" if lead > 0 else "**no**" if lead < 0 else "equal"
    return [*cells, f"{goal.target:.{heading.decimals}f}: {'met' if met else '**missed**'}", ahead]


def markdown(folder: Path = RESULTS) -> str:
    """All goals as a table."""
    tables = {table: read(table, folder) for table in {goal.table for goal in GOALS}}
    lines = [HEADER, ("---", *["---:"] * (len(HEADER) - 1))]
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in [*lines, *(line(goal, tables[goal.table]) for goal in GOALS)]
    )


def _number(entry: Entry, heading: Heading) -> str:
    summary = entry.summary
    if summary is None:
        return "not run yet"
    std = "" if summary.std is None else f" ± {summary.std:.{heading.decimals}f}"
    runs = "" if entry.complete else f" ({summary.n} of {entry.planned} runs)"
    return f"{summary.mean:.{heading.decimals}f}{std}{runs}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the tables")
    print(markdown(parser.parse_args().results))
