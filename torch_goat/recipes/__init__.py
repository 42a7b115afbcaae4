"""The paper's experiments as files."""

from torch_goat.recipes.grids import paper_grid

__all__ = ["paper_grid"]
