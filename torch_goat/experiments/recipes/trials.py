"""The random search for a table's settings: the same number of trials for every cell, judged by the validation nodes.

The settings of a trial depend only on its cell and number, so all trials form one plan that any number of machines can
run, and repeating the search gives the same choice. Where few nodes decide, the best trials are repeated on further
graphs, splits or seeds before one is chosen: the finals, a second plan.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import Experiment, Result, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes.cell_runs import CellName, changed, choose, experiment
from torch_goat.experiments.recipes.recipe import Recipe, Table, TableCell, TableRow, without_defaults
from torch_goat.experiments.search.space import best_first, draw, trial_value
from torch_goat.settings import SettingsError

ATTEMPTS: Final = 100  # to draw settings that no earlier trial has


class Trial(NamedTuple):
    """Settings for a cell on one graph or split, in the folder ``search/cora/goat-lstm/7/0``: column, row, number of
    the trial and repetition."""

    row: str
    column: str
    number: int
    repetition: int
    experiment: Experiment

    @property
    def folder(self) -> PurePosixPath:
        """The run folder, relative to the folder of the table."""
        return PurePosixPath("search", self.column, self.row, str(self.number), str(self.repetition))


def trials(
    recipe: Recipe,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    *,
    quick: bool = False,
    precision: str | None = None,
) -> list[Trial]:
    """The trials of a table, ``recipe.search.trials`` for each cell that has not had them.

    The first trial of a cell has the settings of the recipe. The options are those of :func:`plan`.
    """
    rows, columns = choose("row", rows, recipe.rows), choose("column", columns, recipe.columns)
    found = []
    for column in columns:
        drawn = {row: _drawn(recipe, row, column) for row in rows if not recipe.settled(row, column)}
        for number in range(recipe.search.trials):
            for row, options in drawn.items():
                for model, training in options[number : number + 1]:  # none if the space has no more points
                    training = changed(training, quick, precision)
                    for repetition in range(recipe.search.repetitions):
                        run = experiment(recipe, column, repetition, model, training)
                        found.append(Trial(row, column, number, repetition, run))
    return found


def finals(recipe: Recipe, tried: Iterable[Trial], results: Mapping[PurePosixPath, Result]) -> list[Trial]:
    """The further repetitions of the best trials of every cell whose trials all have a result, by folder."""
    found = []
    for (_, column), by_number in _by_cell(tried).items():
        if all(trial.folder in results for runs in by_number.values() for trial in runs):
            best = _best_first(by_number, results)[: recipe.finalists(column)]
            for repetition in range(recipe.search.repetitions, recipe.columns[column].finals):
                for first in (by_number[number][0] for number in best):
                    run = experiment(recipe, column, repetition, first.experiment.model, first.experiment.training)
                    found.append(first._replace(repetition=repetition, experiment=run))
    return found


def settle(recipe: Recipe, tried: Iterable[Trial], results: Mapping[PurePosixPath, Result]) -> Recipe:
    """The recipe with the best settings of every cell whose search is finished, and no settings for other cells.

    ``results`` has the results of the trials and of the finals, by folder.
    """
    tried = list(tried)
    by_cell, repeated = _by_cell(tried), _by_cell(finals(recipe, tried, results))
    rows = {}
    for name, row in recipe.rows.items():
        other = recipe.rows[row.like] if row.like else TableRow("")
        merged = replace(row, like="", model=other.model | row.model, training=other.training | row.training)
        cells = {}
        for column in recipe.columns:
            cell = row.cells.get(column, TableCell())
            by_number, last = by_cell.get((name, column), {}), repeated.get((name, column), {})
            both = [*by_number.values(), *last.values()]
            if both and all(trial.folder in results for runs in both for trial in runs):
                candidates = {number: by_number[number] + runs for number, runs in last.items()} or by_number
                found = candidates[_best_first(candidates, results)[0]][0].experiment
                cells[column] = _cell(found, merged, cell.paper, recipe.search.trials)
            elif recipe.settled(name, column):
                cells[column] = cell
            elif cell.paper:
                cells[column] = TableCell(paper=cell.paper)
        rows[name] = replace(merged, cells=cells)
    columns = {
        name: replace(column, like="", space=recipe.column_space(name)) for name, column in recipe.columns.items()
    }
    return replace(recipe, rows=rows, columns=columns, model={}, training={})


def with_found(recipe: Recipe, row: str, found: Experiment, where: str) -> Recipe:
    """The recipe with settings that ``goat tune`` found for a row on a dataset.

    All settings of the model and of training are taken, except the precision and those that the row sets for all its
    cells, so that its label stays true. Columns and rows that are like this one follow. ``where`` names the file of the
    settings in errors.
    """
    choose("row", [row], recipe.rows)
    columns = [name for name in recipe.columns if _same_data(recipe, name, found)]
    if not columns:
        known = ", ".join(dict.fromkeys(column.dataset for column in recipe.columns.values()))
        split = f" under the split {found.split!r}" if found.split else ""
        raise SettingsError(f"{where}: the table has no column of {found.dataset!r}{split}; it has {known}.")
    name = recipe.options(row, columns[0])[0].name
    if found.model.name != name:
        raise SettingsError(f"{where}: the settings are of {found.model.name!r}, but the row {row!r} is of {name!r}.")
    entry = recipe.rows[row]
    reads = found.model.reads() - entry.model.keys() - {"name"}
    model = {key: value for key, value in settings.to_table(found.model).items() if key in reads}
    fixed = entry.training.keys() | {"precision"}
    training = {key: value for key, value in settings.to_table(found.training).items() if key not in fixed}
    cells = dict(entry.cells)
    for column, options in recipe.columns.items():
        if column in columns:
            cells[column] = replace(cells.get(column, TableCell()), model=model, training=training)
        elif options.like in columns and column in cells:
            cells[column] = TableCell(paper=cells[column].paper)
    return replace(recipe, rows={**recipe.rows, row: replace(entry, cells=cells)})


def _drawn(recipe: Recipe, row: str, column: str) -> list[tuple[ModelOptions, TrainingOptions]]:
    """The distinct settings of a cell's trials; fewer than asked for if the space has no more."""
    space = recipe.space(row, column)
    if not space:
        raise SettingsError("the recipe has no [search.space] to draw from; add one, or leave out the search.")
    found = [recipe.options(row, column)]
    for number in range(1, recipe.search.trials):
        source = random.Random(f"{recipe.columns[column].dataset} {row} {number}")
        for _ in range(ATTEMPTS):
            try:
                options = recipe.options(row, column, draw(space, source))
            except ValueError as error:
                raise SettingsError(
                    f"the search of {recipe.title!r} draws invalid settings: {error} Change its space."
                ) from None
            if options not in found:
                found.append(options)
                break
    return found


def _by_cell(tried: Iterable[Trial]) -> dict[CellName, dict[int, list[Trial]]]:
    """The repetitions of every trial, by cell and number."""
    found: dict[CellName, dict[int, list[Trial]]] = {}
    for trial in tried:
        found.setdefault((trial.row, trial.column), {}).setdefault(trial.number, []).append(trial)
    return found


def _best_first(by_number: Mapping[int, list[Trial]], results: Mapping[PurePosixPath, Result]) -> list[int]:
    """The numbers of a cell's trials from the best to the worst."""
    found = {number: [results[run.folder] for run in runs] for number, runs in by_number.items()}
    metric = "accuracy" if "accuracy" in next(iter(found.values()))[0].metrics["val"] else "mse"
    return best_first({number: trial_value(runs, metric) for number, runs in found.items()}, metric)


def _cell(found: Experiment, row: TableRow, paper: str, count: int) -> TableCell:
    def own(options: ModelOptions | TrainingOptions, of_row: Table) -> Table:
        changes = settings.to_table(without_defaults(options))
        return {key: value for key, value in changes.items() if key not in of_row}

    return TableCell(paper, own(found.model, row.model), own(found.training, row.training), count)


def _same_data(recipe: Recipe, column: str, found: Experiment) -> bool:
    options = recipe.columns[column]
    default = DATASETS[options.dataset].default_split
    return options.dataset == found.dataset and (options.split or default) == (found.split or default)
