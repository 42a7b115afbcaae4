"""The runs of a table, and the random search for its settings: as many trials for every cell, judged by validation.

The settings of a trial depend only on its cell and number, so all trials form one plan that any number of machines can
run, and repeating the search gives the same choice. A search may have several rounds, the rungs of successive halving:
the best trials of one enter the next, with more epochs or on more graphs, splits or seeds, and the last one decides.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import Experiment, Result, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes.recipe import Recipe, Rung, TableCell, TableRow, without_defaults
from torch_goat.experiments.search.search import best_first, trial_value
from torch_goat.settings import SettingsError, check_known

CellName = tuple[str, str]  # row and column
Options = tuple[ModelOptions, TrainingOptions]
QUICK_REPETITIONS: Final = 2
QUICK_EPOCHS: Final = 5
ATTEMPTS: Final = 100  # to draw settings that no earlier trial has


class CellRun(NamedTuple):
    """A run of a table: one repetition of a cell, with the settings of the recipe or of a trial of the search."""

    row: str
    column: str
    repetition: int
    experiment: Experiment
    number: int = -1  # of the trial; -1 for the settings of the recipe
    whole: int = 0  # the number of epochs of the trial's settings, where its rung has fewer

    @property
    def folder(self) -> PurePosixPath:
        """The run folder, relative to the folder of the table: ``cora/goat-lstm/0`` (column, row, repetition), or
        ``search/cora/goat-lstm/7/0`` for trial 7, with fewer epochs ``search/cora/goat-lstm/7/50-epochs/0``."""
        if self.number < 0:
            return PurePosixPath(self.column, self.row, str(self.repetition))
        short = [f"{self.experiment.training.epochs}-epochs"] if self.whole else []
        return PurePosixPath("search", self.column, self.row, str(self.number), *short, str(self.repetition))

    @property
    def options(self) -> Options:
        """The settings, with all their epochs."""
        model, training = self.experiment.model, self.experiment.training
        return model, replace(training, epochs=self.whole or training.epochs)


def plan(
    recipe: Recipe,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    *,
    quick: bool = False,
    precision: str | None = None,
) -> list[CellRun]:
    """The runs of a table; cells whose settings are still to be searched have none.

    Repetition r has seed r and graph or split r. If there are fewer of them, they are reused in turn, so the
    repetitions on Cora's single split differ only in their seed. All rows of one graph or split follow each other, so
    that a partial table can be compared and a process loads each graph once. ``quick`` runs only 2 repetitions of a few
    epochs, to try out everything; ``precision`` replaces the recipe's.
    """
    rows, columns = choose("row", rows, recipe.rows), choose("column", columns, recipe.columns)
    runs = []
    for column in columns:
        repetitions = min(recipe.runs(column), QUICK_REPETITIONS) if quick else recipe.runs(column)
        options = {row: recipe.options(row, column) for row in rows if recipe.settled(row, column)}
        options = {row: _changed(own, quick, precision) for row, own in options.items()}
        for repetition in range(repetitions):
            runs += [_run(recipe, row, column, repetition, own) for row, own in options.items()]
    return runs


def trials(
    recipe: Recipe,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    *,
    quick: bool = False,
    precision: str | None = None,
) -> list[CellRun]:
    """The first rung of the trials of a table, ``recipe.search.trials`` for each cell that has not had them.

    The first trial of a cell has the settings of the recipe; those that its column tries first follow. If one column is
    searched for all, it has all trials. Cells follow each other, so that some are complete if the search
    is stopped. The options are those of :func:`plan`.
    """
    rows, columns = choose("row", rows, recipe.rows), choose("column", columns, recipe.columns)
    found = []
    for column in [recipe.search.column] if recipe.search.column else columns:
        for row in (row for row in rows if not recipe.settled(row, column)):
            for number, options in enumerate(_drawn(recipe, row, column)):
                options = _changed(options, quick, precision)
                found += _entered(recipe, recipe.rungs(column)[0], row, column, number, options)
    return found


def finals(recipe: Recipe, tried: Iterable[CellRun], results: Mapping[PurePosixPath, Result]) -> list[CellRun]:
    """The runs of the later rungs, up to the first one of each cell without all results (by folder) before it."""
    tried = list(tried)
    known = {trial.folder for trial in tried}
    found: dict[PurePosixPath, CellRun] = {}
    for by_number in _by_cell(tried).values():
        for rung in _climbed(recipe, by_number, results)[1:]:
            runs = sorted((run for entered in rung.values() for run in entered), key=lambda run: run.repetition)
            found |= {run.folder: run for run in runs if run.folder not in known}
    return list(found.values())


def settle(recipe: Recipe, tried: Iterable[CellRun], results: Mapping[PurePosixPath, Result]) -> Recipe:
    """The recipe with the best settings of every cell whose search is finished, and no settings for other cells.

    ``results`` has the results of the trials and of the finals, by folder.
    """
    by_cell, rows = _by_cell(tried), {}
    for name, row in recipe.rows.items():
        other = recipe.rows[row.like] if row.like else TableRow("")
        merged = replace(row, like="", model=other.model | row.model, training=other.training | row.training)
        cells = {}
        for column in recipe.columns:
            cell = row.cells.get(column, TableCell())
            place = name, recipe.search.column or column
            climbed = _climbed(recipe, by_cell[place], results) if place in by_cell else []
            if climbed and len(climbed) == len(recipe.rungs(place[1])) and _is_done(climbed[-1], results):
                best = climbed[-1][_best_first(climbed[-1], results)[0]][0]
                model, training = (settings.to_table(without_defaults(own)) for own in best.options)
                model = {key: value for key, value in model.items() if key not in merged.model}
                training = {key: value for key, value in training.items() if key not in merged.training}
                cells[column] = TableCell(cell.paper, model, training, recipe.search.trials)
            elif recipe.settled(name, column):
                cells[column] = cell
            elif cell.paper:
                cells[column] = TableCell(paper=cell.paper)
        rows[name] = replace(merged, cells=cells)
    columns = {
        name: replace(column, like="", space=recipe.column_space(name), training={})
        for name, column in recipe.columns.items()
    }
    return replace(recipe, rows=rows, columns=columns, model={}, training={})


def with_found(recipe: Recipe, row: str, found: Experiment, where: str) -> Recipe:
    """The recipe with settings that ``goat tune`` found for a row on a dataset.

    All settings of the model and of training are taken, except the precision and those that the row sets for all its
    cells, so that its label stays true. Columns and rows that are like this one follow. ``where`` names the file of the
    settings in errors.
    """
    choose("row", [row], recipe.rows)
    same = {name: column for name, column in recipe.columns.items() if column.dataset == found.dataset}
    columns = [
        name
        for name, column in same.items()
        if column.protocol == (found.split or DATASETS[found.dataset].default_split)
    ]
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


def choose(what: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names in the order of the known ones, all of those if there are none; unknown names raise an error."""
    names, known = list(names), list(known)
    for name in names:
        check_known(what, name, known)
    return [name for name in known if name in names or not names]


def _run(
    recipe: Recipe, row: str, column: str, repetition: int, options: Options, number: int = -1, whole: int = 0
) -> CellRun:
    data = recipe.columns[column]
    index = repetition % DATASETS[data.dataset].splits[data.protocol]
    try:
        experiment = Experiment(data.dataset, data.split, index, repetition, *options)
    except ValueError as error:
        raise SettingsError(f"{recipe.title!r} has an invalid run of {options[0].name} on {column}: {error}") from None
    return CellRun(row, column, repetition, experiment, number, whole)


def _changed(options: Options, quick: bool, precision: str | None) -> Options:
    """The settings of a quick run, or in another precision."""
    model, training = options
    changes: dict[str, Any] = {} if precision is None else {"precision": precision}
    training = _shortened(training, QUICK_EPOCHS) if quick else training
    return model, replace(training, **changes)


def _shortened(training: TrainingOptions, most: int) -> TrainingOptions:
    """Training for at most so many epochs."""
    epochs = min(training.epochs, most)
    recorded = tuple(epoch for epoch in training.record_orderings if epoch <= epochs)
    fixed = min(training.fixed_ordering, epochs)
    return replace(training, epochs=epochs, record_orderings=recorded, fixed_ordering=fixed)


def _entered(recipe: Recipe, rung: Rung, row: str, column: str, number: int, options: Options) -> list[CellRun]:
    """The runs of a trial that enters a rung."""
    model, training = options
    short = _shortened(training, rung.epochs) if rung.epochs else training
    whole = training.epochs if short.epochs < training.epochs else 0
    repetitions = range(recipe.search.first, recipe.search.first + rung.repetitions)
    return [_run(recipe, row, column, one, (model, short), number, whole) for one in repetitions]


def _climbed(
    recipe: Recipe, by_number: dict[int, list[CellRun]], results: Mapping[PurePosixPath, Result]
) -> list[dict[int, list[CellRun]]]:
    """The trials of each rung of a cell with all their runs, up to the first rung that is not done."""
    found = [by_number]
    row, column, *_ = next(iter(by_number.values()))[0]
    for rung in recipe.rungs(column)[1:]:
        if not _is_done(found[-1], results):
            break
        best = _best_first(found[-1], results)[: rung.trials]
        found.append({one: _entered(recipe, rung, row, column, one, by_number[one][0].options) for one in best})
    return found


def _is_done(rung: Mapping[int, list[CellRun]], results: Mapping[PurePosixPath, Result]) -> bool:
    return all(run.folder in results for runs in rung.values() for run in runs)


def _drawn(recipe: Recipe, row: str, column: str) -> list[Options]:
    """The distinct settings of a cell's trials; fewer than asked for if the space has no more."""
    space = recipe.space(row, column)
    if not space:
        raise SettingsError("the recipe has no [search.space] to draw from; add one, or leave out the search.")
    first = [None, *recipe.columns[column].tried_first]
    found = list(dict.fromkeys(recipe.options(row, column, point) for point in first))[: recipe.search.trials]
    for number in range(len(found), recipe.search.trials):
        source = random.Random(f"{recipe.columns[column].dataset} {row} {number}")
        for _ in range(ATTEMPTS):
            try:
                options = recipe.options(row, column, {key: source.choice(values) for key, values in space.items()})
            except ValueError as error:
                raise SettingsError(
                    f"the search of {recipe.title!r} draws invalid settings: {error} Change its space."
                ) from None
            if options not in found:
                found.append(options)
                break
    return found


def _by_cell(tried: Iterable[CellRun]) -> dict[CellName, dict[int, list[CellRun]]]:
    """The repetitions of every trial, by cell and number."""
    found: dict[CellName, dict[int, list[CellRun]]] = {}
    for trial in tried:
        found.setdefault((trial.row, trial.column), {}).setdefault(trial.number, []).append(trial)
    return found


def _best_first(by_number: Mapping[int, list[CellRun]], results: Mapping[PurePosixPath, Result]) -> list[int]:
    """The numbers of a cell's trials from the best to the worst."""
    found = {number: [results[run.folder] for run in runs] for number, runs in by_number.items()}
    metric = DATASETS[next(iter(by_number.values()))[0].experiment.dataset].metric
    return best_first({number: trial_value(runs, metric) for number, runs in found.items()}, metric)
