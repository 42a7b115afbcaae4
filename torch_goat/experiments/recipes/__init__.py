"""Recipes: the paper's result tables as files that can be run."""

from torch_goat.experiments.recipes.cell_runs import CellName, CellRun, choose, plan
from torch_goat.experiments.recipes.recipe import (
    RECIPES,
    OnDemand,
    Published,
    RandomSearch,
    Recipe,
    TableCell,
    TableColumn,
    TableRow,
    find_recipe,
    read_recipe,
)
from torch_goat.experiments.recipes.trials import Trial, finals, settle, trials, with_found

__all__ = [
    "RECIPES",
    "CellName",
    "CellRun",
    "OnDemand",
    "Published",
    "RandomSearch",
    "Recipe",
    "TableCell",
    "TableColumn",
    "TableRow",
    "Trial",
    "choose",
    "finals",
    "find_recipe",
    "plan",
    "read_recipe",
    "settle",
    "trials",
    "with_found",
]
