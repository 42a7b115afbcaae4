import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from torch_goat.experiments.information import cluster, quantile_bins


def test_quantiles_are_of_equal_size_and_in_order() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    found = quantile_bins(values, 4)
    assert np.bincount(found).tolist() == [250, 250, 250, 250]
    assert (np.diff(found[np.argsort(values)]) >= 0).all()


def test_equal_values_share_a_bin() -> None:
    assert quantile_bins([0, 0, 0, 0, 0, 0, 1, 2], 2).tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert quantile_bins([0, 0, 0, 0, 0, 0, 1, 2, 3, 4], 4).tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 2, 2]
    assert quantile_bins([0, 0, 0, 0, 0, 0, 1, 2], 4).tolist() == [0, 0, 0, 0, 0, 0, 1, 2]  # a bin for each


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clusters_are_found(dtype: type) -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(4, size=400)
    rows = (10 * np.eye(4)[truth] + generator.normal(size=(400, 4))).astype(dtype)
    assert adjusted_rand_score(truth, cluster(rows, 4)) == 1
    assert (cluster(rows, 4, seed=3) == cluster(rows, 4, seed=3)).all()


@pytest.mark.parametrize("places", [(0, 1, 2), (2000, 2001, 2002), (1e6, 1e6 + 1, 1e6 + 2), (0, 10_000, 10_001)])
def test_clusters_far_from_the_origin_and_from_each_other(places: tuple[float, ...]) -> None:
    truth = np.repeat(places, 50).astype(float)
    for second in (truth, np.zeros(150)):
        assert adjusted_rand_score(truth, cluster(np.stack([truth, second], axis=1), 3)) == 1


def test_no_more_clusters_than_distinct_rows() -> None:
    assert set(cluster(np.array([[0.0, 1], [2, 3]] * 5), 4).tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantile_bins([1.0, 2.0], 1), "bins must be at least 2, got 1"),
        (lambda: quantile_bins([1.0, np.nan], 2), "must not contain NaN"),
        (lambda: quantile_bins([], 2), "must not be empty"),
        (lambda: quantile_bins([[1.0]], 2), "one number per sample"),
        (lambda: cluster([1.0, 2.0], 2), "one row of features per sample"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
