from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

EXACT_PAIRS = 13  # up to so many pairs all assignments of signs are counted


class Summary(NamedTuple):
    """The mean of some runs and their sample standard deviation, which a single run does not have."""

    mean: float
    std: float | None
    runs: int


def summarize(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation (n - 1) of at least one value."""
    if not values:
        raise ValueError("there is no value to take the mean of.")
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def paired_p_value(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The two-sided p-value of the Wilcoxon signed-rank test on pairs of runs of the same graph or split.

    It looks at signs and ranks of the differences alone. A few graphs on which a model fails make the differences
    skewed, and ten of them are too few to lean on a normal distribution, as a paired t-test would. The price is that
    fewer than six pairs can never come below 0.05. Up to 13 pairs the distribution is exact, ties included. Splits of
    one graph overlap, so that their p-values are too small rather than too large. Several comparisons in one table are
    not adjusted for.

    Args:
        ours: The values of one model, by repetition.
        theirs: Those of the other, in the same order.

    Returns:
        The p-value; ``None`` for fewer than two pairs or if a value is not a number.
    """
    from scipy import stats  # which takes a while to import

    if len(ours) != len(theirs):
        raise ValueError(f"the runs must come in pairs, got {len(ours)} and {len(theirs)}.")
    differences = np.round(np.subtract(ours, theirs, dtype=float), 12)  # what is equal but for the last bits is equal
    if len(differences) < 2 or not np.isfinite(differences).all():
        return None
    differences = differences[differences != 0]  # equal runs speak for neither
    if len(differences) < 2:
        return 1.0  # a single sign is as extreme as the other
    if len(differences) > EXACT_PAIRS:
        return float(stats.wilcoxon(differences).pvalue)

    def rank_sum(signed: np.ndarray, axis: int) -> np.ndarray:
        return np.sum(stats.rankdata(np.abs(signed), axis=axis) * np.sign(signed), axis=axis)

    everything = 2**EXACT_PAIRS  # all signs are gone through if there are no more
    return float(
        stats.permutation_test(
            (differences,), rank_sum, permutation_type="samples", vectorized=True, n_resamples=everything
        ).pvalue
    )


def unpaired_p_value(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The two-sided p-value of the Wilcoxon rank-sum test (Mann and Whitney's) on runs that differ by their seed.

    Runs of two models with the same seed have nothing in common, so that there are no pairs. It looks at the ranks of
    all runs together alone, and is exact, ties included. It speaks of the one split that the runs share: how much the
    models would differ on another it cannot tell.

    Args:
        ours: The values of one model.
        theirs: Those of the other.

    Returns:
        The p-value; ``None`` for fewer than two runs of either or if a value is not a number.
    """
    from scipy import stats  # which takes a while to import

    values = np.round([*ours, *theirs], 12)  # what is equal but for the last bits is equal
    if min(len(ours), len(theirs)) < 2 or not np.isfinite(values).all():
        return None
    # SciPy's exact distribution knows no ties, and going through all permutations takes it a second.
    ranks = np.rint(2 * stats.rankdata(values)).astype(int)  # twice the ranks are whole, also of ties
    ways = np.zeros((len(ours) + 1, ranks.sum() + 1))  # of choosing so many runs whose ranks have that sum
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank]  # the right side is computed before any is added
    distance = np.abs(np.arange(ways.shape[1]) - len(ours) * ranks.mean())
    extreme = distance >= distance[ranks[: len(ours)].sum()] - 1e-9
    return float(ways[-1, extreme].sum() / ways[-1].sum())
