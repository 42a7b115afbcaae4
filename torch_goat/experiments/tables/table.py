"""A table of results: our numbers beside the paper's, ranked and tested."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from torch_goat.data.datasets import DATASETS
from torch_goat.experiments.recipes import Published, Recipe, Run, Search
from torch_goat.experiments.recipes.plan import CellName
from torch_goat.experiments.tables.statistics import Summary, paired_p_value, summarize, unpaired_p_value

DECIMALS = {"accuracy (%)": 2, "MSE": 5}  # where the paper has no number


@dataclass(frozen=True)
class Heading:
    """A column of a table.

    Args:
        label: Its dataset, as the table calls it.
        dataset: Its dataset, as the registry calls it.
        split: The split protocol.
        metric: What its numbers are; accuracies are percentages.
        decimals: How many decimals they are shown with: as many as the paper has.
        paired: Whether runs of the same repetition are of the same graph or split; else they differ by their seed.
        finals: On how many graphs, splits or seeds the best trials of a search were repeated.
        finalists: How many trials these are.
    """

    label: str
    dataset: str
    split: str
    metric: str
    decimals: int
    paired: bool = True
    finals: int = 0
    finalists: int = 0

    @property
    def unit(self) -> int:
        """What a metric is multiplied by."""
        return 1 if self.metric == "MSE" else 100

    @property
    def sign(self) -> int:
        """1 if larger numbers are better, else -1."""
        return -1 if self.metric == "MSE" else 1


@dataclass(frozen=True)
class Comparison:
    """A cell beside the best baseline of its column.

    Args:
        baseline: The row of the baseline.
        difference: Our mean less the baseline's.
        p_value: Of the test, paired or not as the column is, where there are enough runs for one.
    """

    baseline: str
    difference: float
    p_value: float | None


@dataclass(frozen=True)
class Entry:
    """A cell of a table.

    Args:
        values: The numbers of the runs that are done, by repetition.
        planned: How many runs there are when it is complete.
        published: The paper's number.
        place: 1 for the best complete cell of its column, 2 for the second best, else 0; equal ones share a place.
        comparison: With the best baseline, if it is not one itself and both are complete.
    """

    values: Mapping[int, float]
    planned: int
    published: Published | None = None
    place: int = 0
    comparison: Comparison | None = None

    @property
    def summary(self) -> Summary | None:
        """Mean and standard deviation of the runs that are done."""
        return summarize(list(self.values.values())) if self.values else None

    @property
    def mean(self) -> float:
        """The mean of the runs that are done; not a number if there are none."""
        return math.nan if self.summary is None else self.summary.mean

    @property
    def complete(self) -> bool:
        """Whether all runs are done and have a number."""
        return len(self.values) == self.planned and math.isfinite(self.mean)

    @property
    def difference(self) -> float | None:
        """Our mean less the paper's."""
        return self.mean - self.published.mean if self.published and math.isfinite(self.mean) else None


@dataclass(frozen=True)
class ResultTable:
    """A table of results.

    Args:
        title: What it shows.
        headings: Its columns by name.
        labels: How its rows are called, by name.
        baselines: How the rows are called that others are tested against, by name.
        entries: Its cells by row and column.
        lacking: The columns that have empty cells because their data are not here.
        waiting: The cells that are not complete because they are run on demand.
        search: How the settings of the cells were found.
        devices: How many runs were done on which device.
        reference: Whose the published numbers are.
    """

    title: str
    headings: Mapping[str, Heading]
    labels: Mapping[str, str]
    baselines: Mapping[str, str]
    entries: Mapping[CellName, Entry]
    lacking: Set[str] = frozenset()
    waiting: Set[CellName] = frozenset()
    search: Search = field(default_factory=Search)
    devices: Mapping[str, int] = field(default_factory=dict)
    reference: str = "paper"

    def part(self, rows: Iterable[str], columns: Iterable[str]) -> "ResultTable":
        """Some rows and columns, with the places and tests that they have in the whole table."""
        rows, columns = set(rows), set(columns)
        return replace(
            self,
            headings={name: heading for name, heading in self.headings.items() if name in columns},
            labels={name: label for name, label in self.labels.items() if name in rows},
        )


def tabulate(
    recipe: Recipe,
    runs: Iterable[Run],
    scores: Mapping[CellName, Mapping[int, float]],
    lacking: Iterable[str] = (),
    devices: Mapping[str, int] | None = None,
) -> ResultTable:
    """The table of a recipe from the results of its runs.

    Args:
        recipe: The recipe.
        runs: All runs of it.
        scores: Their results, as :func:`collect` finds them.
        lacking: The columns whose data are not here.
        devices: How many of the runs were done on which device.
    """
    planned = Counter((run.row, run.column) for run in runs)
    headings = {column: _heading(recipe, column) for column in recipe.columns}
    entries: dict[CellName, Entry] = {}
    for column, heading in headings.items():
        cells = {}
        for row in recipe.rows:
            values = {number: heading.unit * score for number, score in scores.get((row, column), {}).items()}
            cells[row] = Entry(values, planned[row, column], recipe.published(row, column))
        cells = _compared(_ranked(cells, heading), heading, {row for row in cells if recipe.rows[row].ours})
        entries |= {(row, column): entry for row, entry in cells.items()}
    labels = {name: row.label for name, row in recipe.rows.items()}
    baselines = {name: label for name, label in labels.items() if not recipe.rows[name].ours}
    short = {cell for cell, entry in entries.items() if len(entry.values) < max(1, entry.planned)}
    waiting = {cell for cell in short if recipe.is_on_demand(*cell)}
    open_columns = {column for _, column in short - waiting}
    return ResultTable(
        recipe.title,
        headings,
        labels,
        baselines,
        entries,
        lacking=open_columns.intersection(lacking),
        waiting=waiting,
        search=recipe.search,
        devices=devices or {},
        reference=recipe.reference,
    )


def _heading(recipe: Recipe, column: str) -> Heading:
    options = recipe.columns[column]
    metric = "accuracy (%)" if DATASETS[options.dataset].task == "classification" else "MSE"
    published = [number for row in recipe.rows if (number := recipe.published(row, column))]
    decimals = max((number.decimals for number in published), default=DECIMALS[metric])
    split = options.split or DATASETS[options.dataset].default_split
    paired = DATASETS[options.dataset].splits[split] > 1
    finals, finalists = options.finals, recipe.finalists(column)
    return Heading(options.label, options.dataset, split, metric, decimals, paired, finals, finalists)


def _ranked(cells: Mapping[str, Entry], heading: Heading) -> dict[str, Entry]:
    """The complete cells of a column with their places, if there are two; cells that are shown as equal share one."""
    shown = {row: round(entry.mean, heading.decimals) for row, entry in cells.items() if entry.complete}
    best = sorted(set(shown.values()), reverse=heading.sign > 0)[:2] if len(shown) > 1 else []
    return {
        row: replace(entry, place=best.index(shown[row]) + 1 if shown.get(row) in best else 0)
        for row, entry in cells.items()
    }


def _compared(cells: Mapping[str, Entry], heading: Heading, ours: set[str]) -> dict[str, Entry]:
    """The complete cells of our rows with the test against the baseline of the best mean."""
    complete = {row: entry for row, entry in cells.items() if entry.complete}
    baselines = complete.keys() - ours
    if not baselines:
        return dict(cells)
    best = max(sorted(baselines), key=lambda row: heading.sign * complete[row].mean)
    theirs = complete[best]
    compared = dict(cells)
    for row in complete.keys() & ours:
        mine = complete[row]
        test = paired_p_value if heading.paired else unpaired_p_value
        p_value = test([mine.values[r] for r in theirs.values], list(theirs.values.values()))
        compared[row] = replace(mine, comparison=Comparison(best, mine.mean - theirs.mean, p_value))
    return compared
