"""The search of a table's settings: as many random trials for every cell, judged by the validation nodes alone.

What a trial tries depends on its cell and its number and on nothing else, so that all trials of a table are one plan of
runs, on any number of machines, and whoever repeats the search comes to the same choice. Where few nodes judge, the
best trials are repeated on further graphs, splits or seeds before one of them is chosen: the finals, a second plan.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from statistics import fmean
from typing import Final, NamedTuple

from torch_goat import settings
from torch_goat.experiments import Experiment, Result, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes.plan import CellName, changed, choose, experiment
from torch_goat.experiments.recipes.recipe import Cell, Recipe, Row, Table, without_defaults
from torch_goat.settings import SettingsError

ATTEMPTS: Final = 100  # to draw settings that no earlier trial has


class Trial(NamedTuple):
    """Some settings for a cell, on one graph or split.

    Its folder is ``search/cora/goat-lstm/7/0``: the column, the row, the number of the trial and the repetition.
    """

    row: str
    column: str
    number: int
    repetition: int
    experiment: Experiment

    @property
    def folder(self) -> PurePosixPath:
        """Where the run belongs below the folder of its table."""
        return PurePosixPath("search", self.column, self.row, str(self.number), str(self.repetition))


def trials(
    recipe: Recipe,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    *,
    quick: bool = False,
    precision: str | None = None,
) -> list[Trial]:
    """The trials of a table, ``recipe.search.trials`` for each cell; the first of them has the recipe's own settings.

    A cell that has had as many has none.

    Args:
        recipe: The table.
        rows: Names of rows; all of them if there are none.
        columns: Names of columns; all of them if there are none.
        quick: Whether to try the whole path out, with a few epochs.
        precision: The precision to train in, instead of the recipe's.
    """
    rows, columns = choose("row", rows, recipe.rows), choose("column", columns, recipe.columns)
    found = []
    for column in columns:
        drawn = {row: _drawn(recipe, row, column) for row in rows if not recipe.settled(row, column)}
        for number in range(recipe.search.trials):
            for row, options in drawn.items():
                for model, training in options[number : number + 1]:  # none where the space has no more
                    training = changed(training, quick, precision)
                    for repetition in range(recipe.search.repetitions):
                        run = experiment(recipe, column, repetition, model, training)
                        found.append(Trial(row, column, number, repetition, run))
    return found


def finals(recipe: Recipe, tried: Iterable[Trial], results: Mapping[PurePosixPath, Result]) -> list[Trial]:
    """The further repetitions of the best trials of every cell whose trials are all done.

    Args:
        recipe: The recipe that is searched.
        tried: Its trials.
        results: Their results, by the folders of the trials.
    """
    found = []
    for (_, column), by_number in _by_cell(tried).items():
        if all(trial.folder in results for runs in by_number.values() for trial in runs):
            # Equal ones in the order of their numbers: which are repeated is the same for whoever searches again.
            best = sorted(by_number.values(), key=lambda runs: -_value(runs, results))[: recipe.finalists(column)]
            for repetition in range(recipe.search.repetitions, recipe.columns[column].finals):
                for first, *_ in best:
                    run = experiment(recipe, column, repetition, first.experiment.model, first.experiment.training)
                    found.append(first._replace(repetition=repetition, experiment=run))
    return found


def settle(recipe: Recipe, tried: Iterable[Trial], results: Mapping[PurePosixPath, Result]) -> Recipe:
    """The recipe with the best settings of every cell whose search is over, and no settings for the others.

    Args:
        recipe: The recipe that was searched.
        tried: All its trials.
        results: Their results and those of the finals, by the folders of the trials.
    """
    tried = list(tried)
    by_cell, repeated = _by_cell(tried), _by_cell(finals(recipe, tried, results))
    rows = {}
    for name, row in recipe.rows.items():
        makes = _merged(recipe, row)
        cells = {}
        for column in recipe.columns:
            cell = row.cells.get(column, Cell())
            by_number, last = by_cell.get((name, column), {}), repeated.get((name, column), {})
            both = [*by_number.values(), *last.values()]
            if both and all(trial.folder in results for runs in both for trial in runs):
                candidates = [by_number[number] + runs for number, runs in last.items()] or by_number.values()
                found = max(candidates, key=lambda runs: _value(runs, results))[0].experiment
                cells[column] = _cell(found, makes, cell.paper, recipe.search.trials)
            elif recipe.settled(name, column):
                cells[column] = cell
            elif cell.paper:
                cells[column] = Cell(paper=cell.paper)
        rows[name] = replace(makes, cells=cells)
    columns = {
        name: replace(column, like="", space=recipe.column_space(name)) for name, column in recipe.columns.items()
    }
    return replace(recipe, rows=rows, columns=columns, model={}, training={})


def _drawn(recipe: Recipe, row: str, column: str) -> list[tuple[ModelOptions, TrainingOptions]]:
    """The settings of a cell's trials, no two alike; fewer than asked for if the space has no more."""
    space = recipe.space(row, column)
    if not space:
        raise SettingsError("the recipe has no [search.space] to draw from; add one, or leave the search out.")
    found = [recipe.options(row, column)]
    for number in range(1, recipe.search.trials):
        source = random.Random(f"{recipe.columns[column].dataset} {row} {number}")
        for _ in range(ATTEMPTS):
            point = {key: source.choice(values) for key, values in space.items()}
            try:
                options = recipe.options(row, column, point)
            except ValueError as error:
                raise SettingsError(
                    f"the search of {recipe.title!r} draws what is impossible: {error} Change its space."
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


def _value(runs: Iterable[Trial], results: Mapping[PurePosixPath, Result]) -> float:
    """How well some settings did on the validation nodes: the mean over their repetitions, more is better."""
    metrics = [results[run.folder].metrics["val"] for run in runs]
    mean = fmean(one["accuracy"] if "accuracy" in one else -one["mse"] for one in metrics)
    return round(mean, 12)  # as many nodes in another order of the sum are equal


def _cell(found: Experiment, row: Row, paper: str, count: int) -> Cell:
    def own(options: ModelOptions | TrainingOptions, of_row: Table) -> Table:
        changes = settings.to_table(without_defaults(options))
        return {key: value for key, value in changes.items() if key not in of_row}

    return Cell(paper, own(found.model, row.model), own(found.training, row.training), count)


def _merged(recipe: Recipe, row: Row) -> Row:
    """A row with what it has from the row that it is like."""
    other = recipe.rows[row.like] if row.like else Row("")
    return replace(row, like="", model=other.model | row.model, training=other.training | row.training)
