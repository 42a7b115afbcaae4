"""Real numbers as a few symbols."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_goat.experiments.information.samples import as_array

ROUNDS = 100  # of k-means, at most


def quantile_bins(values: Any, bins: int) -> NDArray[np.int64]:
    """Cuts a variable at its quantiles into bins of about equal size; equal values share a bin.

    Args:
        values: One number for each sample ``[n]``.
        bins: How many bins; with many equal values there may be fewer. No more different values than bins are a bin
            each.
    """
    array = as_array(values).astype(float)
    _check(array, bins)
    if array.ndim != 1:
        raise ValueError(f"quantiles need one number per sample, got shape {list(array.shape)}.")
    different = np.unique(array)
    cuts = different[:-1] if len(different) <= bins else np.quantile(array, np.arange(1, bins) / bins)
    return np.unique(np.searchsorted(cuts, array, side="left"), return_inverse=True)[1].reshape(-1)


def cluster(values: Any, clusters: int, seed: int = 0) -> NDArray[np.int64]:
    """The cluster of each sample by k-means, started as k-means++ does.

    Args:
        values: A row of numbers for each sample ``[n, F]``.
        clusters: How many clusters.
        seed: The seed of the start.
    """
    rows = as_array(values)
    rows = rows if rows.dtype == np.float32 else rows.astype(float)
    _check(rows, clusters)
    if rows.ndim != 2:
        raise ValueError(f"clusters need a row of numbers per sample, got shape {list(rows.shape)}.")
    rows = rows - rows.mean(axis=0, dtype=float).astype(rows.dtype)  # distances are read off lengths, which stay small
    squares = np.einsum("nf,nf->n", rows, rows)
    centers = _first_centers(rows, squares, clusters, np.random.default_rng(seed))
    nearest = np.full(len(rows), -1)
    for _ in range(ROUNDS):
        before, nearest = nearest, _distances(rows, squares, centers).argmin(axis=1)
        if (before == nearest).all():
            break
        member = np.eye(len(centers), dtype=rows.dtype)[nearest]  # [n, K]
        size = member.sum(axis=0)[:, None]
        centers = np.where(size > 0, member.T @ rows / np.maximum(size, 1), centers)
    return np.unique(nearest, return_inverse=True)[1].reshape(-1)


def _first_centers(
    rows: NDArray[np.floating], squares: NDArray[np.floating], clusters: int, generator: np.random.Generator
) -> NDArray[np.floating]:
    chosen = [int(generator.integers(len(rows)))]
    distance = _distances(rows, squares, rows[chosen])[:, 0].astype(float)
    while len(chosen) < clusters and distance.max() > 0:
        chosen.append(int(generator.choice(len(rows), p=distance / distance.sum())))
        distance = np.minimum(distance, _distances(rows, squares, rows[chosen[-1:]])[:, 0])
    return rows[chosen]


def _distances(
    rows: NDArray[np.floating], squares: NDArray[np.floating], centers: NDArray[np.floating]
) -> NDArray[np.floating]:
    """The squared distances ``[n, K]``, from the rows and the squares of their lengths."""
    size = squares[:, None] + np.einsum("kf,kf->k", centers, centers)
    distances = size - 2 * rows @ centers.T
    rounding = 1e-6 if rows.dtype == np.float32 else 1e-12  # what it leaves of equal rows
    return np.where(distances > rounding * size, distances, 0)


def _check(array: NDArray[np.floating], bins: int) -> None:
    if bins < 2:
        raise ValueError(f"bins={bins} leaves nothing to tell apart; use 2 or more.")
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError("there must be samples, and none of them NaN or infinity.")
