"""Training on one graph."""

from torch_goat.training.fit import FitResult, fit

__all__ = ["FitResult", "fit"]
