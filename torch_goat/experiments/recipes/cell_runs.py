from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes.recipe import Recipe
from torch_goat.settings import SettingsError, nearest

CellName = tuple[str, str]  # row and column
QUICK_REPETITIONS: Final = 2
QUICK_EPOCHS: Final = 5


class CellRun(NamedTuple):
    """A run of a table: one repetition of a cell, in the folder ``cora/goat-lstm/0`` (column, row, repetition)."""

    row: str
    column: str
    repetition: int
    experiment: Experiment

    @property
    def folder(self) -> PurePosixPath:
        """The run folder, relative to the folder of the table."""
        return PurePosixPath(self.column, self.row, str(self.repetition))


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
        for repetition in range(repetitions):
            for row, (model, training) in options.items():
                training = changed(training, quick, precision)
                runs.append(CellRun(row, column, repetition, experiment(recipe, column, repetition, model, training)))
    return runs


def experiment(
    recipe: Recipe, column: str, repetition: int, model: ModelOptions, training: TrainingOptions
) -> Experiment:
    dataset, split = recipe.columns[column].dataset, recipe.columns[column].split
    count = DATASETS[dataset].splits[split or DATASETS[dataset].default_split]
    try:
        return Experiment(dataset, split, repetition % count, repetition, model, training)
    except ValueError as error:
        raise SettingsError(f"{recipe.title!r} has an invalid run of {model.name} on {column}: {error}") from None


def choose(what: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names in the order of the known ones, all of those if there are none; unknown names raise an error."""
    names, known = list(names), list(known)
    for name in names:
        if name not in known:
            raise SettingsError(f"there is no {what} {name!r}{nearest(name, known)}")
    return [name for name in known if name in names or not names]


def changed(training: TrainingOptions, quick: bool, precision: str | None) -> TrainingOptions:
    """The training options of a quick run, or in another precision."""
    changes: dict[str, Any] = {} if precision is None else {"precision": precision}
    if quick:
        epochs = min(training.epochs, QUICK_EPOCHS)
        recorded = tuple(epoch for epoch in training.record_orderings if epoch <= epochs)
        fixed = min(training.fixed_ordering, epochs)
        changes |= {"epochs": epochs, "record_orderings": recorded, "fixed_ordering": fixed}
    return replace(training, **changes)
