"""A table on disk, and ``python -m torch_goat.tables.worker table2 --search 20``, which runs it without ``goat``.

It needs only PyTorch, PyG and Lightning Fabric, so that a machine on which nothing else can be installed can run a
whole search: the trials of each rung and the runs with the settings found. The results are in ``OUT/TABLE.jsonl``,
which another machine shows with ``goat reproduce TABLE --search 20 --out OUT --collect``.
"""

import argparse
import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_goat import settings
from torch_goat.data.datasets import DATASETS, DataError
from torch_goat.data.datasets.raw import data_folder
from torch_goat.experiments import Event, PlannedRun, RunError
from torch_goat.experiments.plan import ENDS, add_arguments, run_logged, why_failed
from torch_goat.experiments.recipes import cell_runs
from torch_goat.experiments.recipes.cell_runs import CellName, CellRun, choose
from torch_goat.experiments.recipes.recipe import Recipe, find_recipe, read_recipe
from torch_goat.experiments.tables.ledger import Ledger, read_lines
from torch_goat.experiments.tables.render import FORMATS
from torch_goat.experiments.tables.table import tabulate
from torch_goat.experiments.training.interrupt import stopping_after
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

Runner = Callable[[Sequence[PlannedRun], Callable[[Event], None]], list[str]]
"""Runs a plan, calls a function with each event, which can add runs to the plan, and returns why runs failed."""


class TableFolder:
    """The folder of a table's runs; beside it are ``FOLDER.jsonl``, the results, and the files of the table.

    The cells of a recipe with a search are filled in as their searches finish. The options are those of :func:`plan`.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        *,
        quick: bool = False,
        precision: str | None = None,
        data_dir: Path | None = None,
    ) -> None:
        if quick:
            recipe = replace(recipe, title=f"{recipe.title} (tried out with --quick)")
        self.recipe, self.folder, self.data_dir = recipe, folder, data_dir
        self.how: dict[str, Any] = {"quick": quick, "precision": precision}
        self.ledger = Ledger(folder)
        self._drawn = cell_runs.trials(self.recipe, **self.how) if self.recipe.search.trials else []
        self._settle()

    @property
    def rungs(self) -> int:
        """The largest number of rounds of a search in any column."""
        return max(len(self.recipe.rungs(column)) for column in self.recipe.columns)

    def missing(self, cells: Set[CellName]) -> list[PlannedRun]:
        """The next missing runs of some cells: the trials of their searches and, where these are done, the runs."""
        return [PlannedRun(self.folder / run.folder, run.experiment) for run in self._missing(cells)]

    def _missing(self, cells: Set[CellName]) -> list[CellRun]:
        searched = {(row, self.recipe.search.column or column) for row, column in cells}
        return [
            run
            for planned, wanted in ((self.trials, searched), (self.runs, cells))
            for run in planned
            if (run.row, run.column) in wanted and self.ledger.is_missing(run)
        ]

    def run(self, cells: Set[CellName], do: Runner) -> list[str]:
        """Runs everything missing of some cells, each run once, and returns why runs failed.

        Once the last trial of a round ends, the next round of its cell is added. A failed run holds up only its own
        cell.
        """
        plan: list[PlannedRun] = []
        own: list[CellName] = []  # the cell of each run of the plan
        ended: set[int] = set()  # the numbers of runs

        def add() -> None:
            planned = {folder for folder, _ in plan}
            for run in self._missing(cells):
                if (folder := self.folder / run.folder) not in planned:
                    plan.append(PlannedRun(folder, run.experiment))
                    own.append((run.row, run.column))

        def watch(event: Event) -> None:
            if event.kind in ENDS and self._drawn:
                ended.add(event.number)
                if all(number in ended for number, cell in enumerate(own) if cell == own[event.number]):
                    self._settle()
                    add()

        add()
        try:
            return do(plan, watch) if plan else []
        finally:  # also after Ctrl-C
            self._settle()

    def lacking(self, cells: Set[CellName]) -> dict[str, str]:
        """The columns with missing runs whose data cannot be loaded, with the reason."""
        wanted = {column for _, column in cells if self.missing({cell for cell in cells if cell[1] == column})}
        reasons = {}
        for name, column in self.recipe.columns.items():
            if name in wanted and not DATASETS[column.dataset].available(self.data_dir):
                try:
                    DATASETS[column.dataset].load(column.split, data_dir=self.data_dir)
                except DataError as error:
                    reasons[name] = f"{column.label} is left empty: {error}"
        return reasons

    def problems(self) -> dict[CellName, str]:
        """Why the folders of some cells' trials or runs cannot be used."""
        return self.ledger.collect([*self.trials, *self.runs])[1]

    def keep(self) -> None:
        """Writes the results so far and, with a search, its recipe."""
        self.ledger.write([*self.trials, *self.runs])
        if self.trials:
            write_atomic(beside(self.folder, ".toml"), self.settled.to_toml())

    def write(self) -> None:
        """Writes the results and the table so far, in every format."""
        done = self.ledger.collect(self.runs)[0]
        columns = self.recipe.columns.items()
        lacking = [name for name, column in columns if not DATASETS[column.dataset].available(self.data_dir)]
        self.whole = tabulate(self.recipe, self.runs, done, lacking)
        self.keep()
        for ending, text in FORMATS.values():
            write_atomic(beside(self.folder, ending), text(self.whole))

    def _settle(self) -> None:
        settled = self.recipe
        trials = self._drawn
        if trials:
            results = self.ledger.results(trials)
            for _ in range(self.rungs - 1):
                trials = [*self._drawn, *cell_runs.finals(self.recipe, self._drawn, results)]
                results = self.ledger.results(trials)
            settled = cell_runs.settle(self.recipe, self._drawn, results)
            rank = {(trial.row, trial.column): number for number, trial in enumerate(self._drawn)}
            trials = sorted(trials, key=lambda trial: rank[trial.row, trial.column])  # all rounds of a cell together
        runs = cell_runs.plan(settled, **self.how)
        self.ledger.share(runs, trials)
        self.settled, self.trials, self.runs = settled, trials, runs  # together, whenever Ctrl-C is pressed


def beside(folder: Path, ending: str) -> Path:
    """A file of a table beside the folder of its runs, such as ``results/table2.md``."""
    return folder.with_name(folder.name + ending)


def begun_recipe(path: Path, folder: Path, search: int) -> Recipe:
    """The recipe with ``search`` trials for each cell; 0 for the number of an earlier search or of the recipe."""
    recipe, kept = read_recipe(path), beside(folder, ".toml")
    begun = settings.read(Recipe, kept).search.trials if kept.exists() else recipe.search.trials
    if search < 0:
        raise SettingsError(f"--search must be at least 1, got {search}.")
    if search and begun and search != begun:
        raise SettingsError(f"{folder} has a search with {begun} trials for each cell; choose another --out.")
    lines = beside(folder, ".jsonl")
    if not begun and lines.exists():
        searched = any(name.startswith("search/") for name in read_lines(lines))
        if search and not searched:
            raise SettingsError(f"{folder} has runs whose settings were not searched; choose another --out.")
        if searched and not search:
            raise SettingsError(
                f"{lines} has trials of a search, but {kept} is missing; repeat --search with its number of trials."
            )
    if (search or begun) and kept.exists() and kept.samefile(path):
        raise SettingsError(f"the search would overwrite the recipe {path} with its settings; choose another --out.")
    return replace(recipe, search=replace(recipe.search, trials=search or begun))


def asked_cells(recipe: Recipe, rows: str, columns: str) -> tuple[list[str], list[str], set[CellName]]:
    """The requested rows and columns and the cells to run: cells on demand only if their row is named."""

    def names(text: str) -> list[str]:
        return [name.strip() for name in text.split(",") if name.strip()]

    named = names(rows)
    found = choose("row", named, recipe.rows), choose("column", names(columns), recipe.columns)
    cells = {(row, column) for row in found[0] for column in found[1]}
    return *found, {cell for cell in cells if cell[0] in named or not recipe.is_on_demand(*cell)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing; exit code 0 if all is done, 1 if something failed, 2 for wrong usage, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_goat.tables.worker", description="Run what is missing of a table, several runs at a time."
    )
    parser.add_argument("table", metavar="TABLE", help="a table of the paper, or a recipe such as my.toml")
    parser.add_argument("--only", default="", metavar="ROWS", help="rows to run, separated by commas")
    parser.add_argument("--datasets", default="", metavar="COLUMNS", help="columns to run, separated by commas")
    parser.add_argument("--search", type=int, default=0, metavar="TRIALS", help="search the settings of every cell")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the tables (default: results)")
    add_arguments(parser)
    options = parser.parse_args(arguments)

    def do(runs: Sequence[PlannedRun], on_event: Callable[[Event], None]) -> list[str]:
        return why_failed(runs, run_logged(runs, options, on_event))

    try:
        path = find_recipe(options.table)
        recipe = begun_recipe(path, options.out / path.stem, options.search)
        _, _, cells = asked_cells(recipe, options.only, options.datasets)
        place = None if options.data_dir is None else data_folder(options.data_dir)
        table = TableFolder(recipe, options.out / path.stem, data_dir=place)
        lacking = table.lacking(cells)
        cells = {cell for cell in cells if cell[1] not in lacking}
        try:
            with stopping_after(options.seconds):
                failures = table.run(cells, do)
        finally:  # also after Ctrl-C
            table.keep()
    except (ValueError, OSError, RunError) as error:
        parser.error(settings.printable(str(error)))
    except KeyboardInterrupt as error:
        print(f"worker: {str(error) or 'stopped.'}", file=sys.stderr)
        return 130
    failures += [problem for cell, problem in table.problems().items() if cell in cells]
    for sentence in [*lacking.values(), *failures]:
        print(settings.printable(f"worker: {sentence}"), file=sys.stderr)
    where = settings.printable(str(beside(table.folder, ".jsonl")))
    print(f"The results are in {where}; {len(table.missing(cells))} runs are missing.")
    return 1 if failures else 0
