"""Statistics of the graph and of the predictions on the test nodes."""

from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from torch_goat.experiments.intervals import normal_interval, wilson_interval
from torch_goat.experiments.training.decisions import BINS, calibration_error


class Bin(NamedTuple):
    """Test nodes with similar keys, such as degrees or confidences, and the mean of a value over them."""

    low: float  # smallest key
    high: float  # largest key
    center: float  # mean key
    value: float  # mean value
    interval: tuple[float, float]  # 95 % interval of the mean value
    nodes: int


class Calibrated(NamedTuple):
    """The accuracy by confidence and the expected calibration error."""

    bins: list[Bin]
    error: float


def degrees(data: Data) -> torch.Tensor:
    """The number of neighbours of each node ``[N]``, without self loops."""
    source, target = data.edge_index
    return torch.bincount(target[source != target], minlength=data.num_nodes)


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """The number of nodes by true and predicted class ``[C, C]``."""
    return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)


def calibration(confidence: np.ndarray, correct: np.ndarray) -> Calibrated:
    """The calibration in bins of equal width, without empty bins."""
    number = np.minimum((confidence * BINS).astype(int), BINS - 1)
    found = [_bin(confidence[number == one], correct[number == one]) for one in np.unique(number)]
    return Calibrated(found, calibration_error(torch.from_numpy(confidence), torch.from_numpy(correct)))


def mean_by(key: np.ndarray, value: np.ndarray, bins: int = 6) -> list[Bin]:
    """The mean of numbers, or share of booleans, over nodes with similar keys, in bins of about equal size."""
    if len(key) == 0:
        return []
    edges = np.unique(np.quantile(key, np.linspace(0, 1, bins + 1)[1:-1], method="inverted_cdf"))
    number = np.searchsorted(edges, key)
    return [_bin(key[number == one], value[number == one]) for one in np.unique(number)]


def _bin(key: np.ndarray, value: np.ndarray) -> Bin:
    mean = float(value.mean())
    share = value.dtype == bool
    interval = wilson_interval(float(value.sum()), len(value)) if share else normal_interval(mean, value)
    return Bin(float(key.min()), float(key.max()), float(key.mean()), mean, interval, len(key))
