"""Result tables: our numbers next to the paper's, ranked and tested."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from torch_goat.data.datasets import DATASETS
from torch_goat.experiments.comparison import Comparison, RunGroup, Summary, compare_runs, summarize
from torch_goat.experiments.recipes import CellName, CellRun, Published, RandomSearch, Recipe, Rung
from torch_goat.experiments.tables.ledger import RecordedRun
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER

SHOWN = {"accuracy": "accuracy (%)", "roc_auc": "ROC AUC (%)", "mse": "MSE"}  # by the metric of a dataset


@dataclass(frozen=True)
class Heading:
    label: str
    dataset: str
    split: str
    metric: str  # as shown; accuracies and areas are percentages
    decimals: int  # as many as the paper has
    paired: bool = True  # whether repetitions share a graph or split; otherwise they differ only in their seed
    rungs: tuple[Rung, ...] = ()  # the rounds of the search


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    group: RunGroup[RecordedRun] | None  # its finished runs, if any, compared with those of the column
    planned: int  # number of runs of the complete cell
    published: Published | None = None
    place: int = 0  # 1 for the best complete cell of its column, 2 for the second best; equal ones share a place

    @property
    def values(self) -> dict[int, float]:
        return self.group.values if self.group else {}

    @property
    def summary(self) -> Summary | None:
        """Of the finished runs."""
        return summarize(self.group.scores) if self.group else None

    @property
    def comparison(self) -> Comparison | None:
        """Comparison with the best baseline, if this is not a baseline and both are complete."""
        return self.group.comparison if self.group else None

    @property
    def mean(self) -> float:
        """Mean of the finished runs; NaN if there are none."""
        return self.group.mean if self.group else math.nan

    @property
    def tau(self) -> float | None:
        """Mean agreement of the best heads with the hidden key, if the finished runs have measured it."""
        measured = self.group is not None and all("tau" in one.result.metrics["test"] for one in self.group.runs)
        return self.group.summary("test", "tau").mean if self.group and measured else None

    @property
    def complete(self) -> bool:
        """Whether all runs are finished and their mean is finite."""
        return len(self.values) == self.planned and math.isfinite(self.mean)

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return self.mean - self.published.mean if self.published and math.isfinite(self.mean) else None


@dataclass(frozen=True)
class ResultTable:
    """A result table; its rows and columns are keyed by their names in the recipe."""

    title: str
    headings: Mapping[str, Heading]
    labels: Mapping[str, str]  # of the rows
    baselines: Mapping[str, str]  # labels of the rows that the others are tested against
    entries: Mapping[CellName, Entry]
    lacking: Set[str] = frozenset()  # columns with empty cells because their data are not available
    waiting: Set[CellName] = frozenset()  # incomplete cells that are run only on request
    search: RandomSearch = field(default_factory=RandomSearch)
    devices: Mapping[str, int] = field(default_factory=dict)  # number of runs by device
    reference: str = "paper"  # source of the published numbers

    def part(self, rows: Iterable[str], columns: Iterable[str]) -> "ResultTable":
        """Some rows and columns, with their places and tests in the whole table."""
        rows, columns = set(rows), set(columns)
        return replace(
            self,
            headings={name: heading for name, heading in self.headings.items() if name in columns},
            labels={name: label for name, label in self.labels.items() if name in rows},
        )


def tabulate(
    recipe: Recipe, runs: Iterable[CellRun], done: Iterable[RecordedRun], lacking: Iterable[str] = ()
) -> ResultTable:
    """Makes the table of a recipe from all its runs and the finished ones (see :meth:`Ledger.collect`).

    ``lacking`` names the columns whose data are not available.
    """
    done = sorted(done, key=lambda one: one.run.row)  # the first of equal baselines by name is the best one
    planned = Counter((run.row, run.column) for run in runs)
    headings = {column: _heading(recipe, column) for column in recipe.columns}
    labels = {name: row.label for name, row in recipe.rows.items()}
    baselines = {name: label for name, label in labels.items() if not recipe.rows[name].ours}
    entries: dict[CellName, Entry] = {}
    for column, heading in headings.items():
        metric = DATASETS[heading.dataset].metric
        ranking = compare_runs(
            (one for one in done if one.run.column == column),
            label=lambda one: one.run.row,
            repetition=lambda one: one.run.repetition,
            metric=metric,
            rank_by="test",
            baselines=baselines,
            paired=heading.paired,
            planned={row: planned[row, column] for row in recipe.rows},
            scale=1 if metric in LOWER_IS_BETTER else 100,
            decimals=heading.decimals,
        )
        groups = {group.label: group for group in ranking.groups}
        ranked = sum(group.place > 0 for group in ranking.groups) > 1
        for row in recipe.rows:
            group = groups.get(row)
            place = group.place if group and ranked and group.place <= 2 else 0
            entries[row, column] = Entry(group, planned[row, column], recipe.published(row, column), place)
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
        devices=Counter(one.result.device for one in done),
        reference=recipe.reference,
    )


def _heading(recipe: Recipe, column: str) -> Heading:
    options = recipe.columns[column]
    metric = DATASETS[options.dataset].metric
    published = [number for row in recipe.rows if (number := recipe.published(row, column))]
    decimals = max((number.decimals for number in published), default=5 if metric in LOWER_IS_BETTER else 2)
    paired = DATASETS[options.dataset].splits[options.protocol] > 1
    rungs = recipe.rungs(column)
    return Heading(options.label, options.dataset, options.protocol, SHOWN[metric], decimals, paired, rungs)
