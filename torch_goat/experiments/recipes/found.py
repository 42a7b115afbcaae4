"""Settings that a search found, in place of those of a recipe."""

from dataclasses import replace

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import Experiment
from torch_goat.experiments.recipes.plan import choose
from torch_goat.experiments.recipes.recipe import Cell, Recipe
from torch_goat.settings import SettingsError


def with_found(recipe: Recipe, row: str, found: Experiment, where: str) -> Recipe:
    """A copy of a recipe in which one row has found settings on the dataset that they were found on.

    Every setting of the model and of training is taken over, except what the row itself sets for all its cells, so that
    its label stays true, and except the precision. Columns like that of the dataset follow, as the paper has it; so do
    rows like this one.

    Args:
        recipe: The recipe.
        row: The row.
        found: The experiment that a search settled on.
        where: The file that it comes from, for errors.
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
            cells[column] = replace(cells.get(column, Cell()), model=model, training=training)
        elif options.like in columns and column in cells:
            cells[column] = Cell(paper=cells[column].paper)
    return replace(recipe, rows={**recipe.rows, row: replace(entry, cells=cells)})


def _same_data(recipe: Recipe, column: str, found: Experiment) -> bool:
    options = recipe.columns[column]
    default = DATASETS[options.dataset].default_split
    return options.dataset == found.dataset and (options.split or default) == (found.split or default)
