import re
from pathlib import Path

from tests.experiments.recipes.recipes import write
from torch_goat.experiments.recipes import RECIPES, read_recipe

PAGE = (Path(__file__).parents[3] / "docs/experiments.md").read_text(encoding="utf-8")


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
