from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes.recipe import Recipe
from torch_goat.settings import SettingsError, nearest

CellName = tuple[str, str]  # of a row and a column
QUICK_REPETITIONS: Final = 2
QUICK_EPOCHS: Final = 5


class Run(NamedTuple):
    """One repetition of a cell.

    Its folder is ``cora/goat-lstm/0``: the column, the row and the number of the repetition.
    """

    row: str
    column: str
    repetition: int
    experiment: Experiment

    @property
    def folder(self) -> PurePosixPath:
        """Where the run belongs below the folder of its table."""
        return PurePosixPath(self.column, self.row, str(self.repetition))


def plan(
    recipe: Recipe,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    *,
    quick: bool = False,
    precision: str | None = None,
) -> list[Run]:
    """The runs of a table.

    Repetition r has the seed r and is of graph or split r; where there are fewer of them they come in turn, so that the
    repetitions of Cora's one split differ by their seed alone. Rows of one graph or split follow each other: what is
    done of a table can be compared at any time, and a process loads a graph once for all rows. Cells whose settings are
    still to be searched have no runs.

    Args:
        recipe: The table.
        rows: Names of rows; all of them if there are none.
        columns: Names of columns; all of them if there are none.
        quick: Whether to try the whole path out: 2 repetitions of a few epochs.
        precision: The precision to train in, instead of the recipe's.
    """
    rows, columns = choose("row", rows, recipe.rows), choose("column", columns, recipe.columns)
    runs = []
    for column in columns:
        repetitions = min(recipe.runs(column), QUICK_REPETITIONS) if quick else recipe.runs(column)
        options = {row: recipe.options(row, column) for row in rows if recipe.settled(row, column)}
        for repetition in range(repetitions):
            for row, (model, training) in options.items():
                training = changed(training, quick, precision)
                runs.append(Run(row, column, repetition, experiment(recipe, column, repetition, model, training)))
    return runs


def experiment(
    recipe: Recipe, column: str, repetition: int, model: ModelOptions, training: TrainingOptions
) -> Experiment:
    """Some settings on a column's graph or split of this repetition; where there are fewer, they come in turn."""
    dataset, split = recipe.columns[column].dataset, recipe.columns[column].split
    count = DATASETS[dataset].splits[split or DATASETS[dataset].default_split]
    try:
        return Experiment(dataset, split, repetition % count, repetition, model, training)
    except ValueError as error:
        raise SettingsError(f"{recipe.title!r} has an impossible run of {model.name} on {column}: {error}") from None


def choose(what: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names in the order of the known ones, or all of those if there are none; an unknown name is refused.

    Args:
        what: What is named, for the error.
        names: The names.
        known: The names that exist.
    """
    names, known = list(names), list(known)
    for name in names:
        if name not in known:
            raise SettingsError(f"there is no {what} {name!r}{nearest(name, known)}")
    return [name for name in known if name in names or not names]


def changed(training: TrainingOptions, quick: bool, precision: str | None) -> TrainingOptions:
    """How a run trains that is quick, or in another precision."""
    changes: dict[str, Any] = {} if precision is None else {"precision": precision}
    if quick:
        epochs = min(training.epochs, QUICK_EPOCHS)
        recorded = tuple(epoch for epoch in training.record_orderings if epoch <= epochs)
        fixed = min(training.fixed_ordering, epochs)
        changes |= {"epochs": epochs, "record_orderings": recorded, "fixed_ordering": fixed}
    return replace(training, **changes)
