"""Symbols and tables: what samples must be before information can be counted in them."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

ENOUGH = 5  # samples for every combination of symbols, below which an estimate is said to be poor
MOST_BINS = 8  # that are chosen for a source, however large the sample


class SmallSampleWarning(UserWarning):
    """There are few samples for so many combinations of symbols; the numbers lean towards too much information."""


def symbols(values: Any, name: str, remedy: str = "with quantile_bins") -> NDArray[np.int64]:
    """Numbers the different values of a discrete variable from 0; real numbers are refused.

    Args:
        values: One value for each sample ``[n]``.
        name: What an error calls the variable.
        remedy: How to bin it, for the error.
    """
    array = as_array(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one value per sample, got shape {list(array.shape)}.")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has a missing value (NaN or infinity); leave these samples out.")
        if (array != np.floor(array)).any():
            raise ValueError(
                f"{name} is continuous ({array[array != np.floor(array)][0]} for instance); bin it first, {remedy}."
            )
    elif array.dtype.kind not in "iub":
        raise TypeError(f"{name} must hold whole numbers, got {array.dtype}.")
    return np.unique(array, return_inverse=True)[1].reshape(-1)


def as_array(values: Any) -> NDArray[Any]:
    """A tensor or anything like an array as a NumPy array."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def count(variables: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """How often each combination of symbols occurs, an axis for each variable."""
    shape = tuple(int(variable.max()) + 1 for variable in variables)
    code = np.ravel_multi_index(tuple(variables), shape)
    return np.bincount(code, minlength=int(np.prod(shape))).reshape(shape).astype(float)


def check_size(samples: int, shape: Sequence[int]) -> None:
    """Refuses more combinations of symbols than samples; warns where there are few samples for each."""
    cells = int(np.prod(shape))
    alphabet = " x ".join(map(str, shape))
    if cells > samples:
        raise ValueError(
            f"the alphabet is too large for the sample: {alphabet} symbols make {cells} combinations, but there are "
            f"{samples} samples; use fewer bins, or a target of fewer classes."
        )
    if ENOUGH * cells > samples:
        warnings.warn(
            f"the sample is small for its alphabet: {samples} samples for {alphabet} symbols, {cells} combinations "
            f"({ENOUGH} samples for each are advised); use fewer bins, or a target of fewer classes.",
            SmallSampleWarning,
            stacklevel=3,
        )


def supported_bins(samples: int, target_symbols: int) -> int:
    """The most bins of two sources for which a sample is not small, 2 at least and 8 at most.

    Args:
        samples: The number of samples.
        target_symbols: The number of symbols of the target.
    """
    # A source has one symbol more, that of a group without neighbours.
    fitting = [bins for bins in range(2, MOST_BINS + 1) if ENOUGH * (bins + 1) ** 2 * target_symbols <= samples]
    return max(fitting, default=2)
