from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from torch_goat.experiments.tables import paired_p_value, summarize, unpaired_p_value


def test_mean_and_sample_standard_deviation_by_hand() -> None:
    # mean (2 + 4 + 9) / 3 = 5; deviations 9 + 1 + 16 = 26, over n - 1 = 2
    assert summarize([2.0, 4.0, 9.0]) == (5.0, pytest.approx(13**0.5), 3)
    assert summarize([7.0]) == (7.0, None, 1)
    with pytest.raises(ValueError, match="no value"):
        summarize([])


def test_p_value_by_hand() -> None:
    # Differences 1, 2, -3: rank sums of all 8 signs are 0, 1, 2, 3, 3, 4, 5, 6; ours is 3, as far from the mean as all.
    assert paired_p_value([1.0, 2.0, 0.0], [0.0, 0.0, 3.0]) == 1.0
    # All ten in favour: only two of 1024 assignments of signs are as extreme.
    assert paired_p_value(list(range(1, 11)), [0.0] * 10) == pytest.approx(2 / 1024)
    assert paired_p_value([0.0] * 10, list(range(1, 11))) == pytest.approx(2 / 1024)


def test_equal_differences_share_ranks_also_if_rounding_tore_them_apart() -> None:
    # 0.83 - 0.82, 0.81 - 0.80 and 0.47 - 0.46 differ in their last bits. Ranks 2, 2, 2 and 4; three of four in favour.
    ours, theirs = [0.83, 0.81, 0.47, 0.50], [0.82, 0.80, 0.46, 0.53]
    assert len(set(np.subtract(ours, theirs)[:3])) > 1
    ranks = [2, 2, 2, 4]
    sums = [sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign) for signs in product([0, 1], repeat=4)]
    expected = np.mean([abs(total - 5) >= abs(6 - 5) for total in sums])
    assert paired_p_value(ours, theirs) == pytest.approx(expected)


@pytest.mark.parametrize("pairs", [6, 9, 13, 20])
def test_p_value_is_scipys_exact_one_without_ties(pairs: int) -> None:
    generator = np.random.default_rng(pairs)
    ours, theirs = generator.normal(0.3, 1, pairs), generator.normal(0, 1, pairs)
    assert paired_p_value(ours, theirs) == pytest.approx(stats.wilcoxon(ours, theirs, method="exact").pvalue)


def test_pairs_that_say_nothing() -> None:
    assert paired_p_value([1.0], [2.0]) is None
    assert paired_p_value([1.0, float("nan")], [2.0, 1.0]) is None
    assert paired_p_value([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert paired_p_value([1.0, 2.0, 3.0], [1.0, 2.0, 9.0]) == 1.0
    with pytest.raises(ValueError, match="in pairs, got 1 and 2"):
        paired_p_value([1.0], [1.0, 2.0])


def test_unpaired_p_value_by_hand() -> None:
    # Ranks 1, 2 and 3, 4, 5: of the ten ways to choose two of five ranks, those with sums 3 and 9 are as extreme.
    assert unpaired_p_value([1.0, 2.0], [3.0, 4.0, 5.0]) == pytest.approx(2 / 10)
    assert unpaired_p_value([3.0, 4.0, 5.0], [1.0, 2.0]) == pytest.approx(2 / 10)
    # All five above all five: two of the 252 ways.
    assert unpaired_p_value([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == pytest.approx(2 / 252)


@pytest.mark.parametrize(("ours", "theirs"), [(3, 5), (10, 10), (5, 5)])
def test_unpaired_p_value_is_scipys_exact_one_without_ties(ours: int, theirs: int) -> None:
    generator = np.random.default_rng(ours)
    samples = generator.normal(0.8, 1, ours), generator.normal(0, 1, theirs)
    assert unpaired_p_value(*samples) == pytest.approx(stats.mannwhitneyu(*samples, method="exact").pvalue)


def test_equal_runs_share_ranks_also_if_rounding_tore_them_apart() -> None:
    ours, theirs = [0.1 + 0.2, 0.5, 0.5], [0.3, 0.2, 0.1, 0.5]
    assert ours[0] != theirs[0]
    ranks = [3.5, 6.0, 6.0, 3.5, 2.0, 1.0, 6.0]
    sums = np.array([sum(chosen) for chosen in combinations(ranks, 3)])
    expected = np.mean(np.abs(sums - 12) >= abs(15.5 - 12))  # the mean sum is 3 / 7 of all ranks, 28
    assert unpaired_p_value(ours, theirs) == pytest.approx(expected)


def test_runs_that_say_nothing() -> None:
    assert unpaired_p_value([1.0], [2.0, 3.0]) is None
    assert unpaired_p_value([1.0, 2.0], [float("nan"), 1.0]) is None
    assert unpaired_p_value([1.0, 1.0], [1.0, 1.0]) == 1.0
