"""Pooled columns of the neighbours, compared with scikit-learn's information and SciPy's test."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from sklearn.metrics import mutual_info_score
from torch_geometric.data import Data

from torch_goat.experiments.information import pooled_columns


def graph(seed: int) -> Data:
    draw = np.random.default_rng(seed)
    source, target = draw.integers(150, size=(2, 900))
    x = torch.from_numpy(draw.normal(size=(150, 2)))
    return Data(
        x=x, edge_index=torch.from_numpy(np.stack([source, target])), y=torch.from_numpy(draw.integers(2, size=150))
    )


@pytest.mark.parametrize("pool", ["mean", "maximum", "minimum", "sum"])
def test_the_pool_that_makes_the_label_is_found_with_its_bits(pool: str) -> None:
    data = graph(0)
    way = {"mean": np.mean, "maximum": np.max, "minimum": np.min, "sum": np.sum}[pool]
    source, target = data.edge_index[:, data.edge_index[0] != data.edge_index[1]].numpy()
    column = data.x[:, 1].numpy() + 3  # so that the sum grows with the number of neighbours
    value = np.array([way(column[source[target == node]]) if (target == node).any() else 0 for node in range(150)])
    data.y = torch.from_numpy((value > np.median(value)).astype(int))
    data.x[:, 1] += 3
    first, *others = pooled_columns(data, ["noise", "x"])
    assert (first.column, first.pool) == ("x", pool)
    assert first.p_value < min(one.p_value for one in others)
    known = np.isin(np.arange(150), target)
    bins = np.searchsorted(np.quantile(value[known], np.arange(1, 8) / 8), value[known])
    label = data.y.numpy()[known]
    table = np.zeros((8, 2))
    np.add.at(table, (bins, label), 1)
    bias = 7 / (2 * known.sum() * np.log(2))  # of Miller and Madow
    assert first.bits == pytest.approx(mutual_info_score(label, bins) / np.log(2) - bias)
    test = chi2_contingency(table, correction=False, lambda_="log-likelihood")
    assert first.p_value == pytest.approx(min(1, 9 * test.pvalue))  # four pools of two columns, and the degree


def test_noise_is_rarely_significant() -> None:
    found = [pooled_columns(graph(seed), ["a", "b"])[0].p_value <= 0.05 for seed in range(100)]
    assert sum(found) <= 12  # 5 expected at most; more than 12 with a probability of 0.2 %
