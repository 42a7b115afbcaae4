"""What the graph and the predictions on the test nodes look like, as numbers to draw."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch_geometric.data import Data

Z95: Final = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass(frozen=True)
class Bin:
    """Some test nodes that are alike.

    Args:
        low: The smallest of what they are alike in.
        high: The largest.
        center: The mean.
        value: The mean of what is measured.
        value_low: The lower end of its 95 % interval.
        value_high: The upper end.
        count: How many nodes there are.
    """

    low: float
    high: float
    center: float
    value: float
    value_low: float
    value_high: float
    count: int


def degrees(data: Data) -> torch.Tensor:
    """How many neighbours each node reads ``[N]``, itself not counted."""
    source, target = data.edge_index
    return torch.bincount(target[source != target], minlength=data.num_nodes)


def wilson(successes: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    Args:
        successes: How many were right.
        count: Of how many, at least one.
    """
    share, z2 = successes / count, Z95**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 / (1 + z2 / count) * np.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many nodes of each class were predicted as each ``[true class, predicted class]``."""
    return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)


def calibration(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> tuple[list[Bin], float]:
    """How often predictions of some confidence are right, and the expected calibration error.

    Args:
        confidence: The probability of the predicted class ``[n]``.
        right: Whether the prediction is right ``[n]``.
        bins: The number of bins of equal width between 0 and 1; empty ones are left out.

    Returns:
        The bins, and the mean distance between confidence and accuracy in them, weighted by their nodes.
    """
    number = np.minimum((confidence * bins).astype(int), bins - 1)
    found = [_share(confidence[number == one], right[number == one]) for one in range(bins) if (number == one).any()]
    error = sum(one.count * abs(one.value - one.center) for one in found) / max(len(confidence), 1)
    return found, float(error)


def share_by(size: np.ndarray, right: np.ndarray, bins: int = 6) -> list[Bin]:
    """How often predictions are right for nodes of a similar size.

    Args:
        size: What nodes are put together by ``[n]``; equal ones stay together.
        right: Whether the prediction is right ``[n]``.
        bins: The most bins; they have about equally many nodes.
    """
    return [_share(size[part], right[part]) for part in _parts(size, bins)]


def mean_by(size: np.ndarray, value: np.ndarray, bins: int = 6) -> list[Bin]:
    """The mean of a value for nodes of a similar size, with the 95 % interval of a normal distribution.

    Args:
        size: What nodes are put together by ``[n]``; equal ones stay together.
        value: The value ``[n]``.
        bins: The most bins; they have about equally many nodes.
    """
    found = []
    for part in _parts(size, bins):
        mean, few = float(value[part].mean()), part.sum() < 2
        half = float("nan") if few else Z95 * float(value[part].std(ddof=1)) / np.sqrt(part.sum())
        found.append(_bin(size[part], mean, mean - half, mean + half))
    return found


def _share(size: np.ndarray, right: np.ndarray) -> Bin:
    return _bin(size, float(right.mean()), *wilson(float(right.sum()), len(right)))


def _bin(size: np.ndarray, value: float, low: float, high: float) -> Bin:
    return Bin(float(size.min()), float(size.max()), float(size.mean()), value, low, high, len(size))


def _parts(size: np.ndarray, bins: int) -> list[np.ndarray]:
    """Masks of nodes with similar sizes, from small to large."""
    if len(size) == 0:
        return []
    edges = np.unique(np.quantile(size, np.linspace(0, 1, bins + 1)[1:-1], method="inverted_cdf"))
    number = np.searchsorted(edges, size)  # at most an edge: before it
    return [number == one for one in range(len(edges) + 1) if (number == one).any()]
