"""Variables as symbols: binning, clustering, and counting combinations of symbols."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist
from torch import Tensor

SAMPLES_PER_CELL = 5  # a smaller sample triggers a warning
ITERATIONS = 100  # of k-means, at most


class SmallSampleWarning(UserWarning):
    """The sample is small for the number of symbol combinations; information is likely to be overestimated."""


def as_array(values: Any) -> NDArray[Any]:
    """A tensor or array-like as a NumPy array."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def symbols(values: Any, name: str, remedy: str = "with quantile_bins") -> NDArray[np.int64]:
    """Numbers the distinct values of a discrete variable from 0 ``[n]``; errors show its name and a remedy."""
    array = as_array(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one value per sample, got shape {list(array.shape)}.")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError(f"{name} contains NaN or infinity; remove these samples.")
        fractional = array[array != np.floor(array)]
        if fractional.size:
            raise ValueError(f"{name} is continuous (for example {fractional[0]}); bin it first, {remedy}.")
    elif array.dtype.kind not in "iub":
        raise TypeError(f"{name} must contain integers, got {array.dtype}.")
    return np.unique(array, return_inverse=True)[1].reshape(-1)


def count(variables: Sequence[NDArray[np.int64]], weights: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """Counts (or sums the weights of) each combination of symbols, with one axis per variable."""
    shape = tuple(int(variable.max()) + 1 for variable in variables)
    code = np.ravel_multi_index(tuple(variables), shape)
    return np.bincount(code, weights, minlength=int(np.prod(shape))).reshape(shape).astype(float)


def check_size(samples: int, shape: Sequence[int]) -> str:
    """Raises an error if there are fewer samples than cells; returns a warning if there are few, else ``""``."""
    cells = int(np.prod(shape))
    alphabet = " x ".join(map(str, shape))
    if cells > samples:
        raise ValueError(
            f"the alphabet is too large for the sample: {alphabet} symbols make {cells} combinations, but there are "
            f"only {samples} samples; use fewer bins or a target with fewer classes."
        )
    if SAMPLES_PER_CELL * cells > samples:
        return (
            f"the sample is small for its alphabet: {samples} samples for {alphabet} symbols, {cells} combinations "
            f"(at least {SAMPLES_PER_CELL} samples each are advised); use fewer bins or a target with fewer classes."
        )
    return ""


def supported_bins(samples: int, target_symbols: int) -> int:
    """The largest number of bins, from 2 to 8, for which two sources do not trigger a :class:`SmallSampleWarning`."""
    # Each source has one more symbol, for groups without neighbours.
    fitting = [bins for bins in range(2, 9) if SAMPLES_PER_CELL * (bins + 1) ** 2 * target_symbols <= samples]
    return max(fitting, default=2)


def quantile_bins(values: Any, bins: int) -> NDArray[np.int64]:
    """Splits numbers ``[n]`` at their quantiles into bins of roughly equal size ``[n]``; equal values share a bin.

    There may be fewer bins if many values are equal; if there are at most ``bins`` distinct values, each has its own.
    """
    array = as_array(values).astype(float)
    _check(array, bins)
    if array.ndim != 1:
        raise ValueError(f"quantile_bins needs one number per sample, got shape {list(array.shape)}.")
    distinct = np.unique(array)
    cuts = distinct[:-1] if len(distinct) <= bins else np.quantile(array, np.arange(1, bins) / bins)
    return np.unique(np.searchsorted(cuts, array, side="left"), return_inverse=True)[1].reshape(-1)


def cluster(values: Any, clusters: int, seed: int = 0) -> NDArray[np.int64]:
    """Assigns each row of features ``[n, F]`` to a k-means cluster ``[n]``, initialized with k-means++ from the seed;
    there are fewer clusters if there are fewer distinct rows."""
    rows = as_array(values)
    rows = rows if rows.dtype == np.float32 else rows.astype(float)
    _check(rows, clusters)
    if rows.ndim != 2:
        raise ValueError(f"cluster needs one row of features per sample, got shape {list(rows.shape)}.")
    rows = rows - rows.mean(axis=0, dtype=float).astype(rows.dtype)  # k-means loses digits far from the origin
    generator = np.random.default_rng(seed)
    chosen = [int(generator.integers(len(rows)))]
    distance = cdist(rows, rows[chosen], "sqeuclidean")[:, 0]
    while len(chosen) < clusters and distance.max() > 0:
        chosen.append(int(generator.choice(len(rows), p=distance / distance.sum())))
        distance = np.minimum(distance, cdist(rows, rows[chosen[-1:]], "sqeuclidean")[:, 0])
    centers, label = rows[chosen], np.full(len(rows), -1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")
        for _ in range(ITERATIONS):
            before = label
            centers, label = kmeans2(rows, centers, iter=1, minit="matrix")
            if (before == label).all():
                break
    return np.unique(label, return_inverse=True)[1].reshape(-1)


def _check(array: NDArray[np.floating], bins: int) -> None:
    if bins < 2:
        raise ValueError(f"bins must be at least 2, got {bins}.")
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError("values must not be empty, and must not contain NaN or infinity.")
