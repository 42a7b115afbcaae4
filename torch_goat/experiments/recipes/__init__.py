"""Recipes: the paper's result tables as files that can be run."""

from torch_goat.experiments.recipes.cell_runs import CellName as CellName
from torch_goat.experiments.recipes.cell_runs import CellRun as CellRun
from torch_goat.experiments.recipes.cell_runs import choose as choose
from torch_goat.experiments.recipes.cell_runs import finals as finals
from torch_goat.experiments.recipes.cell_runs import plan as plan
from torch_goat.experiments.recipes.cell_runs import settle as settle
from torch_goat.experiments.recipes.cell_runs import trials as trials
from torch_goat.experiments.recipes.cell_runs import with_found as with_found
from torch_goat.experiments.recipes.recipe import RECIPES as RECIPES
from torch_goat.experiments.recipes.recipe import OnDemand as OnDemand
from torch_goat.experiments.recipes.recipe import Published as Published
from torch_goat.experiments.recipes.recipe import RandomSearch as RandomSearch
from torch_goat.experiments.recipes.recipe import Recipe as Recipe
from torch_goat.experiments.recipes.recipe import Rung as Rung
from torch_goat.experiments.recipes.recipe import TableCell as TableCell
from torch_goat.experiments.recipes.recipe import TableColumn as TableColumn
from torch_goat.experiments.recipes.recipe import TableRow as TableRow
from torch_goat.experiments.recipes.recipe import find_recipe as find_recipe
from torch_goat.experiments.recipes.recipe import read_recipe as read_recipe
