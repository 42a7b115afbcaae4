"""The paper's experiments as files: one recipe for each of its tables."""

from torch_goat.experiments.recipes.found import with_found
from torch_goat.experiments.recipes.grids import paper_grid
from torch_goat.experiments.recipes.plan import Run, choose, plan
from torch_goat.experiments.recipes.recipe import (
    RECIPES,
    Cell,
    Column,
    OnDemand,
    Published,
    Recipe,
    Row,
    Search,
    find_recipe,
    read_recipe,
)
from torch_goat.experiments.recipes.trials import Trial, finals, settle, trials

__all__ = [
    "RECIPES",
    "Cell",
    "Column",
    "OnDemand",
    "Published",
    "Recipe",
    "Row",
    "Run",
    "Search",
    "Trial",
    "choose",
    "finals",
    "find_recipe",
    "paper_grid",
    "plan",
    "read_recipe",
    "settle",
    "trials",
    "with_found",
]
