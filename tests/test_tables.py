"""The committed tables are what the committed runs come to, and what the pages show."""

from dataclasses import replace
from pathlib import Path

import pytest
import standing

from torch_goat import settings
from torch_goat.datasets import DATASETS
from torch_goat.recipes import Recipe, plan, read_recipe, settle, trials
from torch_goat.tables import Ledger, collect, tabulate, to_markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TABLES = sorted(path.stem for path in RESULTS.glob("*.jsonl"))
NOT_TO_BE_HAD = {"disease-nc", "lastfm-asia", "ogbn-arxiv", "pubmed"}


def recipe_of(table: str) -> Recipe:
    """The recipe that a table was run with: that of its search, if there was one."""
    found = RESULTS / f"{table}.toml"
    return settings.read(Recipe, found) if found.exists() else read_recipe(table)


def test_there_are_tables() -> None:
    assert {"table1", "table2", "heterophilous"} <= set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_the_runs_give_the_table(table: str) -> None:
    recipe = recipe_of(table)
    runs = plan(recipe)
    collected = collect(runs, Ledger(RESULTS / table))
    lacking = [name for name, column in recipe.columns.items() if column.dataset in NOT_TO_BE_HAD]
    whole = tabulate(recipe, runs, collected.scores, lacking, collected.devices)
    assert (RESULTS / f"{table}.md").read_text(encoding="utf-8") == to_markdown(whole)
    assert not collected.problems


@pytest.mark.parametrize("table", [name for name in TABLES if (RESULTS / f"{name}.toml").exists()])
def test_the_search_comes_to_the_same_choice(table: str) -> None:
    found, recipe = recipe_of(table), read_recipe(table)
    recipe = replace(recipe, search=replace(recipe.search, trials=found.search.trials))
    assert recipe.search.trials >= 20
    ledger, tried = Ledger(RESULTS / table), trials(recipe)
    results = {trial.folder: result for trial in tried if (result := ledger.result(trial)) is not None}
    assert settle(recipe, tried, results).to_toml() == found.to_toml()


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_page_says_where_goat_stands(page: str) -> None:
    assert standing.markdown() in (ROOT / page).read_text(encoding="utf-8")


def test_a_goal_names_what_there_is() -> None:
    for goal in standing.GOALS:
        recipe = read_recipe(goal.table)
        assert goal.row in recipe.rows
        assert recipe.columns[goal.column].dataset in DATASETS
