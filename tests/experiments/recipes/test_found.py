from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import write
from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes import RECIPES, Recipe, read_recipe, with_found
from torch_goat.settings import SettingsError

FOUND = Experiment(
    "effective-size-100",
    index=3,
    seed=7,
    model=ModelOptions(name="gat", hidden_channels=32, heads=1, norm="layer"),
    training=TrainingOptions(epochs=50, weight_decay=0.0, precision="64-true"),
)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return read_recipe(write(tmp_path))


def test_found_settings_replace_those_of_the_cell_and_of_columns_and_rows_like_it(recipe: Recipe) -> None:
    changed = with_found(recipe, "gat", FOUND, "best.toml")
    training = replace(FOUND.training, precision="32-true")
    for column in recipe.columns:
        assert changed.options("gat", column) == (FOUND.model, training)
        assert changed.options("gat-relu", column)[0] == replace(FOUND.model, activation="relu")
        assert changed.options("gcn", column) == recipe.options("gcn", column)
    assert changed.published("gat", "size") == recipe.published("gat", "size")


def test_what_makes_a_row_stays(recipe: Recipe) -> None:
    changed = with_found(recipe, "gat-relu", FOUND, "best.toml")
    assert changed.options("gat-relu", "size")[0] == replace(FOUND.model, activation="relu")
    assert changed.options("gat", "size") == recipe.options("gat", "size")


def test_columns_that_share_settings_give_up_their_own() -> None:
    found = Experiment("cora-content", model=ModelOptions(heads=2))
    changed = with_found(read_recipe("table2"), "goat-lstm", found, "best.toml")
    assert changed.options("goat-lstm", "citeseer")[0] == found.model
    assert changed.published("goat-lstm", "citeseer").text == "69.5"


@pytest.mark.parametrize("name", [name for name in RECIPES if "goat-lstm" in read_recipe(name).rows])
def test_a_row_that_names_its_rnn_keeps_it(name: str) -> None:
    recipe = read_recipe(name)
    column = next(iter(recipe.columns.values()))
    found = Experiment(column.dataset, column.split, model=ModelOptions("goat", heads=2, rnn="gru"))
    changed = with_found(recipe, "goat-lstm", found, "best.toml")
    for row in (row for row in ("goat-lstm", "goat-gru", "goat-rnn") if row in recipe.rows):
        assert changed.rows[row].label == f"GOAT({row.removeprefix('goat-')})"
        for name in recipe.columns:
            assert changed.options(row, name)[0].rnn == row.removeprefix("goat-")


def test_settings_of_another_column_leave_the_first_alone(recipe: Recipe) -> None:
    changed = with_found(recipe, "gat", replace(FOUND, dataset="top2", split="paper"), "best.toml")
    assert changed.options("gat", "pooling")[0] == FOUND.model
    assert changed.options("gat", "size") == recipe.options("gat", "size")


@pytest.mark.parametrize(
    ("row", "found", "text"),
    [
        ("gatt", FOUND, "there is no row 'gatt'; did you mean 'gat'"),
        ("gcn", FOUND, "best.toml: the settings are of 'gat', but the row 'gcn' is of 'gcn'."),
        ("gat", replace(FOUND, dataset="cora"), "best.toml: the table has no column of 'cora'; it has effective-size"),
        ("gat", replace(FOUND, split="tuned"), "no column of 'effective-size-100' under the split 'tuned'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(row: str, found: Experiment, text: str, recipe: Recipe) -> None:
    with pytest.raises(SettingsError, match=text):
        with_found(recipe, row, found, "best.toml")
