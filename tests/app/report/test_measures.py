import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix
from torch_geometric.data import Data

from torch_goat.app.report.measures import calibration, confusion, degrees, mean_by, share_by, wilson
from torch_goat.app.report.words import data_table
from torch_goat.experiments import NamedGraph


@pytest.mark.parametrize(("successes", "count"), [(0, 5), (5, 5), (3, 10), (800, 1000)])
def test_wilson_is_scipys(successes: int, count: int) -> None:
    expected = binomtest(successes, count).proportion_ci(method="wilson")
    assert wilson(successes, count) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_confusion_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(4, size=(2, 100))
    assert (confusion(truth, predicted, 5) == confusion_matrix(truth, predicted, labels=range(5))).all()


def test_calibration_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(500)
    right = rng.random(500) < confidence**2
    bins, error = calibration(confidence, right)
    share, center = calibration_curve(right, confidence, n_bins=10)
    assert [one.value for one in bins] == pytest.approx(share)
    assert [one.center for one in bins] == pytest.approx(center)
    assert sum(one.count for one in bins) == 500
    assert error == pytest.approx(sum(one.count * abs(one.value - one.center) for one in bins) / 500)
    assert calibration(np.array([1.0, 1.0]), np.array([True, True]))[1] == 0


def test_bins_by_size_hold_everybody_once_and_keep_equals_together() -> None:
    size = np.array([1, 1, 1, 1, 1, 1, 2, 3, 4, 50])
    right = np.array([1, 1, 1, 0, 0, 0, 1, 1, 0, 1], dtype=bool)
    bins = share_by(size, right, bins=3)
    assert [(one.low, one.high, one.count, one.value) for one in bins] == [
        (1, 1, 6, 0.5),
        (2, 2, 1, 1.0),
        (3, 50, 3, pytest.approx(2 / 3)),
    ]
    assert share_by(size[:0], right[:0]) == []


def test_means_have_the_normal_interval() -> None:
    size, value = np.arange(8), np.array([1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0])
    first, second = mean_by(size, value, bins=2)
    assert (first.value, second.value) == (2.5, 25.0)
    half = 1.959964 * np.std([1, 2, 3, 4], ddof=1) / 2
    assert (first.value_low, first.value_high) == pytest.approx((2.5 - half, 2.5 + half), abs=1e-5)


def test_a_node_is_no_neighbour_of_its_own() -> None:
    """0 - 1 - 2 in both directions, with loops at 1 and 2, and 3 alone."""
    edge_index = torch.tensor([[0, 1, 1, 2, 1, 2], [1, 0, 2, 1, 1, 2]])
    data = Data(x=torch.zeros(4, 1), edge_index=edge_index)
    assert degrees(data).tolist() == [1, 2, 1, 0]
    rows = dict(data_table(NamedGraph(data, tuple("abcd"), ("x", "y"))).rows)
    assert rows["edges"] == "4 in both directions"
    assert rows["neighbours of a node"] == "0 to 2, median 1"
