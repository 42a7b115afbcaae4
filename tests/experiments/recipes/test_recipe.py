import re
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import TINY, write
from torch_goat.experiments import TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes import RECIPES, Published, read_recipe
from torch_goat.settings import SettingsError

PAGE = (Path(__file__).parents[3] / "docs/experiments.md").read_text(encoding="utf-8")


def test_settings_come_together_from_recipe_row_and_cell(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path))
    assert recipe.options("gcn", "size") == (ModelOptions(name="gcn", hidden_channels=6), TrainingOptions(epochs=3))
    assert recipe.options("gcn", "pooling") == (
        ModelOptions(name="gcn", hidden_channels=6),
        TrainingOptions(epochs=3, learning_rate=0.01),
    )
    gat = {"name": "gat", "hidden_channels": 4, "heads": 2, "attention_dropout": 0.25}
    assert recipe.options("gat", "pooling")[0] == ModelOptions(**gat)
    assert recipe.options("gat-relu", "size")[0] == ModelOptions(**gat, activation="relu")


def test_numbers_keep_their_decimals() -> None:
    assert Published.parse("0.00380 ± 0.00120") == ("0.00380 ± 0.00120", 0.0038, 0.0012)
    assert Published.parse("0.0002 ± 0.000082").decimals == 6
    assert Published.parse("84.9+-1") == ("84.9 ± 1", 84.9, 1.0)
    assert Published.parse("84.9").decimals == 1
    assert Published.parse("84.9").std is None


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("hidden_channels = 4", "hiden_channels = 4", "[model]: unknown key 'hiden_channels'; did you mean 'hidden_ch"),
        ("heads = 2", "headz = 2", "[rows.gat.cells.size.model]: unknown key 'headz'; did you mean 'heads'?"),
        ("heads = 2", 'heads = "2"', "[rows.gat.cells.size.model]: heads must be a whole number, got '2'."),
        ("heads = 2", "heads = 0", "[rows.gat] on size: heads must be at least 1, got 0."),
        ('name = "gcn"', 'name = "gcnn"', "[rows.gcn] on size: name='gcnn' is unknown; did you mean 'gcn'?"),
        ("hidden_channels = 6", "heads = 6", "[rows.gcn] on size: heads=6 is read by no layer of this network"),
        ("epochs = 3", "epochs = 0", "[rows.gcn] on size: epochs must be at least 1, got 0"),
        ("epochs = 3", "epoch = 3", "[training]: unknown key 'epoch'; did you mean 'epochs'?"),
        ("ours = true", "our = true", "unknown key 'rows.gat.our'; did you mean 'ours'?"),
        ("cells.size", "cells.sise", "unknown key 'rows.gat.cells.sise'; did you mean 'size'?"),
        ('like = "gat"', 'like = "gta"', "rows.gat-relu.like = 'gta' is unknown; did you mean 'gat'?"),
        ('like = "gat"', 'like = "gat-relu"', "rows.gat-relu.like = 'gat-relu' is unknown"),
        ('name = "gat" }', 'name = "gat" }\nlike = "gcn"', "rows.gat-relu.like = 'gat' is itself like 'gcn'"),
        ('like = "size"', 'like = "sise"', "columns.pooling.like = 'sise' is unknown; did you mean 'size'?"),
        ('"top2"', '"top3"', "[columns.pooling] dataset = 'top3' is unknown; did you mean 'top2'?"),
        ('"top2"', '"top2", split = "papr"', "[columns.pooling] top2 has no split 'papr'; did you mean 'paper'?"),
        ('"top2"', '"top2", repetitions = -1', "repetitions must be at least 0 (the default), got -1."),
        ("repetitions = 2", "repetitions = 0", "repetitions must be at least 1, got 0."),
        ('"0.0382"', '"about 3"', "[rows.gat.cells.size] paper must be a number such as"),
        ("rows.gat-relu", 'rows."../x"', "rows.../x becomes the name of a folder"),
        ("title", "titel", "unknown key 'titel'; did you mean 'title'?"),
        ('label = "GCN"', "", "the key 'rows.gcn.label' is missing."),
        (
            "[training]",
            '[search]\ncolumn = "siz"\n[training]',
            "search.column = 'siz' is unknown; did you mean 'size'?",
        ),
        ("[training]", "[search]\nfirst = -1\n[training]", "search.first must be at least 0, got -1."),
        ("[training]", "[training", "not a TOML file"),
    ],
)
def test_bad_recipes_are_refused_by_file_and_key(old: str, new: str, text: str, tmp_path: Path) -> None:
    assert TINY.count(old) >= 1
    path = write(tmp_path, TINY.replace(old, new, 1))
    with pytest.raises(SettingsError) as error:
        read_recipe(path)
    assert str(error.value).startswith(f"{path}: ")
    assert text in str(error.value)


def test_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\[rows\] is empty"):
        read_recipe(write(tmp_path, TINY.partition("[rows.gcn]")[0] + "[rows]"))


@pytest.mark.parametrize("table", RECIPES)
def test_a_recipe_survives_being_written(table: str, tmp_path: Path) -> None:
    recipe = read_recipe(table)
    assert read_recipe(write(tmp_path, recipe.to_toml())) == recipe


def test_the_page_lists_every_recipe_with_its_size() -> None:
    listed = re.findall(r"^\| `(.+?)` \|.*\| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    recipes = {name: read_recipe(name) for name in RECIPES}
    sizes = [(name, str(len(recipe.rows)), str(len(recipe.columns))) for name, recipe in recipes.items()]
    assert sorted(listed) == sorted(sizes)


def test_the_row_of_the_page_can_be_added_to_a_recipe(tmp_path: Path) -> None:
    (row,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    recipe = read_recipe(write(tmp_path, f"{RECIPES['heterophilous'].read_text(encoding='utf-8')}\n{row}"))
    model, training = recipe.options("two-goat-layers", "texas")
    assert (model.kinds, model.hidden_channels, model.heads) == (("goat", "goat"), 32, 4)
    assert training.learning_rate == 0.01
    assert recipe.options("two-goat-layers", "cornell")[0].heads == 1
