"""95 % intervals of means."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from torch_goat.experiments.training.metrics import LOWER_IS_BETTER

Z95: Final = 1.959963984540054  # 97.5 % quantile of the normal distribution


def mean_interval(
    scores: Sequence[float], metric: str, test_nodes: int = 0, squared_errors: Callable[[], np.ndarray] | None = None
) -> tuple[float, float]:
    """Student's t interval of the mean of several runs; for a single one, the interval over its test nodes.

    Several runs with the same score are no more than one. The latter interval is known for the accuracy, and for the
    MSE and its root given the squared errors; else it is NaN.
    """
    from scipy import special  # not needed to train

    mean = float(np.mean(scores))
    low, high = math.nan, math.nan
    if varies(scores):
        half = special.stdtrit(len(scores) - 1, 0.975) * np.std(scores, ddof=1) / math.sqrt(len(scores))
        low, high = mean - float(half), mean + float(half)
    elif test_nodes and metric == "accuracy" and math.isfinite(mean):
        low, high = wilson_interval(mean * test_nodes, test_nodes)
    elif test_nodes > 1 and metric in ("mse", "rmse") and math.isfinite(mean) and squared_errors is not None:
        low, high = normal_interval(mean if metric == "mse" else mean**2, squared_errors())
        if metric == "rmse":
            low, high = (math.sqrt(max(end, 0.0)) for end in (low, high))
    if math.isfinite(low):  # the distributions are unbounded, the metrics are not
        low, high = max(low, 0.0), high if metric in LOWER_IS_BETTER else min(high, 1.0)
    return low, high


def varies(scores: Sequence[float]) -> bool:
    """Whether several runs have different scores."""
    return len(np.unique(np.round(scores, exact_decimals(scores)))) > 1


def exact_decimals(scores: Sequence[float] | np.ndarray) -> int:
    """The number of decimals to which scores and their differences are exact: 12 digits of the median score.

    Errors of a numeric target can have any magnitude. A run that diverged does not change the median.
    """
    sizes = np.abs(scores)
    typical = float(np.median(sizes[(sizes > 0) & np.isfinite(sizes)])) if np.any(sizes > 0) else 1.0
    return 12 - math.ceil(math.log10(min(max(typical, 1e-100), 1e100)))


def wilson_interval(successes: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion."""
    share, z2 = successes / count, Z95**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 / (1 + z2 / count) * np.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def normal_interval(mean: float, values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean of many values under a normal distribution; NaN for fewer than two."""
    half = Z95 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return mean - half, mean + half
