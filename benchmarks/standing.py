"""The summary of the results: GOAT, the paper's numbers, and the best baseline with the p-values of the difference.

    python benchmarks/standing.py --figure docs/images/standing.png > results/standing.md
    python benchmarks/standing.py --cost > results/cost.md

Reads the tables in ``results`` and trains nothing. Of the variants of GOAT in a table, the one with the best mean on
validation nodes is compared. The best baseline is that of the test nodes, which favours the baselines.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import Experiment
from torch_goat.experiments.comparison import Comparison, compare_runs, rank_key
from torch_goat.experiments.models import Network
from torch_goat.experiments.recipes import Recipe, plan, read_recipe
from torch_goat.experiments.tables import Ledger, ResultTable, tabulate
from torch_goat.experiments.tables.table import Entry, Heading

RESULTS = Path(__file__).parents[1] / "results"
LEVEL = 0.05  # of significance


class Cell(NamedTuple):
    """A cell of the summary.

    Args:
        table: The table.
        column: The column.
        protocol: Appended to the column's label where two tables use the same dataset.
    """

    table: str
    column: str
    protocol: str = ""


class Standing(NamedTuple):
    """GOAT compared with the best baseline of a cell."""

    row: str  # the variant of GOAT
    comparison: Comparison
    adjusted: float  # the p-value, adjusted by Holm's method for all cells
    ahead: float  # by how much GOAT is better: percentage points, or % of the baseline's error
    interval: tuple[float, float]  # its 95 % interval


COLUMNS = {
    "table1": ("top2", "betweenness-100", "betweenness-1000", "effective-size-100", "effective-size-1000"),
    "table2": ("cora", "citeseer", "computers", "photo", "cs", "physics"),
    "heterophilous": ("cornell", "texas", "wisconsin"),
    "tuned": ("cora", "citeseer", "computers", "photo", "cs", "physics"),
    "platonov": ("minesweeper", "tolokers", "squirrel", "chameleon"),
}
CELLS = [
    Cell(table, column, ", tuned" if table == "tuned" else "")
    for table, columns in COLUMNS.items()
    for column in columns
]
COST_HEADER = ("task", "GOAT", "parameters", "time", "best baseline", "parameters", "time", "device")
HEADER = ("task", "GOAT", "GOAT, exact form", "the paper's GOAT", "best baseline", "p", "p (Holm)")


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


def variant(table: ResultTable, column: str) -> str | None:
    """The complete row of GOAT with the best mean on the validation nodes; ``None`` if there is none."""
    groups = {
        row: entry.group
        for row in table.labels
        if row not in table.baselines and (entry := table.entries[row, column]).complete and entry.group
    }
    values = {row: rank_key(group.summary("val", group.metric).mean, group.metric) for row, group in groups.items()}
    return min(values, key=lambda row: values[row], default=None)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for several comparisons by Holm's method, in the same order."""
    order, adjusted, largest = sorted(range(len(p_values)), key=lambda one: p_values[one]), list(p_values), 0.0
    for place, one in enumerate(order):
        largest = adjusted[one] = max(largest, min(1.0, (len(order) - place) * p_values[one]))
    return adjusted


@cache
def standings(folder: Path = RESULTS) -> Mapping[Cell, Standing]:
    """The cells in which a row of GOAT and a baseline are complete, with their comparison."""
    rows = {cell: row for cell in CELLS if (row := variant(read(cell.table, folder), cell.column))}
    found = {}
    for cell, row in rows.items():
        table = read(cell.table, folder)
        entry = table.entries[row, cell.column]
        if entry.comparison is None:
            continue
        best = table.entries[entry.comparison.other, cell.column]
        assert entry.group is not None
        assert best.group is not None
        ranking = compare_runs(
            [*entry.group.runs, *best.group.runs], label=lambda one: one.run.row, metric=entry.group.metric
        )
        difference = ranking.difference(row, entry.comparison.other)
        scale = -100 / best.mean if is_error(table.headings[cell.column]) else 100.0
        low, high = sorted(scale * end for end in difference.interval)
        found[cell] = entry.comparison, scale * difference.difference, (low, high)
    adjusted = holm([comparison.p_value or 0.0 for comparison, *_ in found.values()])
    return {
        cell: Standing(rows[cell], comparison, p, ahead, interval)
        for (cell, (comparison, ahead, interval)), p in zip(found.items(), adjusted, strict=True)
    }


def is_error(heading: Heading) -> bool:
    return heading.metric == "MSE"


def label(cell: Cell, table: ResultTable) -> str:
    return f"{table.headings[cell.column].label}{cell.protocol}"


def line(cell: Cell, table: ResultTable, standing: Standing | None) -> list[str]:
    """The cells of one line of the summary."""
    heading = table.headings[cell.column]
    ours = [row for row in table.labels if row not in table.baselines]
    exact = table.entries.get(("goat-paper", cell.column))
    published = next((table.entries[row, cell.column].published for row in ours if row != "goat-paper"), None)
    goat, compared = "not run", ["-", "-", "-"]
    if row := variant(table, cell.column):
        goat = f"{table.labels[row]} {_number(table.entries[row, cell.column], heading)}"
        compared[0] = "not run"
    if standing is not None:
        best = standing.comparison.other
        compared = [f"{table.baselines[best]} {_number(table.entries[best, cell.column], heading)}"]
        compared += [_p(standing.comparison.p_value), _p(standing.adjusted)]
    return [
        f"{label(cell, table)}, {heading.metric.replace(' (%)', ' %').replace('accuracy ', '')}",
        goat,
        "-" if exact is None else _number(exact, heading),
        published.text if published else "-",
        *compared,
    ]


def markdown(folder: Path = RESULTS) -> str:
    """The summary as a table."""
    found = standings(folder)
    lines = [
        HEADER,
        ("---", *["---:"] * (len(HEADER) - 1)),
        *(line(cell, read(cell.table, folder), found.get(cell)) for cell in CELLS),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def cost(folder: Path = RESULTS) -> str:
    """The number of parameters and the median training time of GOAT and the best baseline as a table."""
    lines = [COST_HEADER, ("---", "---", "---:", "---:", "---", "---:", "---:", "---")]
    for cell, standing in standings(folder).items():
        table, cells, devices = read(cell.table, folder), [], []
        for row in (standing.row, standing.comparison.other):
            group = table.entries[row, cell.column].group
            assert group is not None
            count, seconds = num_parameters(group.runs[0].experiment), median(run.result.seconds for run in group.runs)
            cells += [table.labels[row], f"{count:,}", f"{seconds:.1f} s"]
            devices.append(" and ".join(dict.fromkeys(_device(run.result.device) for run in group.runs)))
        lines.append((label(cell, table), *cells, " / ".join(dict.fromkeys(devices))))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def num_parameters(experiment: Experiment) -> int:
    """The number of trainable parameters of an experiment's network."""
    data = DATASETS[experiment.dataset]
    degree = torch.ones(2)  # read by PNA's scalers, which have no parameters
    network = Network(experiment.model, data.features, max(1, data.classes), degree=degree)
    return sum(parameter.numel() for parameter in network.parameters())


def figure(path: Path, folder: Path = RESULTS) -> None:
    """Draws GOAT minus the best baseline in every cell with its 95 % interval, the best cells on top."""
    from matplotlib.figure import Figure

    found, tables = standings(folder), {cell: read(cell.table, folder) for cell in CELLS}
    panels = [
        [cell for cell in found if is_error(tables[cell].headings[cell.column]) == error] for error in (False, True)
    ]
    drawing = Figure(figsize=(9, 7.5), layout="constrained")
    axes = drawing.subplots(2, 1, height_ratios=[len(cells) + 1 for cells in panels])
    for panel, cells in zip(axes, panels, strict=True):
        cells.sort(key=lambda cell: found[cell].ahead)
        for place, cell in enumerate(cells):
            standing = found[cell]
            p_value = standing.comparison.p_value or 0.0
            color = "tab:gray" if p_value >= LEVEL else "tab:blue" if standing.ahead > 0 else "tab:orange"
            panel.hlines(place, *standing.interval, color=color)
            filled = color if standing.adjusted < LEVEL else "white"
            panel.plot(standing.ahead, place, "o", color=color, markerfacecolor=filled)
        names = [f"{label(cell, tables[cell])}: {_rivals(tables[cell], found[cell])}" for cell in cells]
        panel.set_yticks(range(len(cells)), names, fontsize=8)
        panel.set_ylim(-0.6, len(cells) - 0.4)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.grid(axis="x", linewidth=0.3)
    axes[0].set_xscale("symlog", linthresh=1)  # most differences are below one point
    ticks = (-10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 5, 10)
    axes[0].set_xticks(ticks, map(str, ticks))
    axes[0].margins(x=0.02)
    axes[0].set_xlabel("difference on the test nodes, percentage points", fontsize=9)
    axes[1].set_xlabel("reduction of the squared error, % of the baseline's", fontsize=9)
    title = f"95 % intervals; right of 0 GOAT is better. Coloured: p < {LEVEL}, filled: also after Holm's adjustment"
    drawing.suptitle(title, fontsize=9)
    drawing.savefig(path, dpi=110, metadata={"Software": None})


def _rivals(table: ResultTable, standing: Standing) -> str:
    return f"{table.labels[standing.row]} − {table.baselines[standing.comparison.other]}"


def _device(name: str) -> str:
    return "H200" if "H200" in name else "CPU" if "CPU" in name else name


def _p(value: float | None) -> str:
    return "-" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


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
    parser.add_argument("--figure", type=Path, help="where to draw the differences")
    parser.add_argument("--cost", action="store_true", help="print parameters and training times instead")
    options = parser.parse_args()
    if options.figure:
        figure(options.figure, options.results)
    print((cost if options.cost else markdown)(options.results), end="")
