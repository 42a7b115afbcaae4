import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    roc_auc_score,
)

from tests.experiments.models.cases import N, graph, network
from torch_goat.experiments.training import metrics


@st.composite
def classified(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores with many ties, and classes of which some are absent."""
    classes, nodes = draw(st.integers(2, 5)), draw(st.integers(1, 30))
    scores = draw(st.lists(st.integers(-2, 2), min_size=classes * nodes, max_size=classes * nodes))
    y = draw(st.lists(st.integers(0, classes - 1), min_size=nodes, max_size=nodes))
    return torch.tensor(scores, dtype=torch.float).view(nodes, classes), torch.tensor(y)


@given(classified())
def test_accuracy_and_f1_are_those_of_scikit_learn(case: tuple[torch.Tensor, torch.Tensor]) -> None:
    out, y = case
    predicted = out.argmax(dim=-1)
    assert metrics.accuracy(out, y) == pytest.approx(accuracy_score(y, predicted), abs=1e-12)
    assert metrics.macro_f1(out, y) == pytest.approx(f1_score(y, predicted, average="macro"), abs=1e-12)


def test_f1_takes_no_memory_for_pairs_of_classes() -> None:
    out = torch.zeros(3, 10**6)
    out[0, 7] = out[1, 7] = out[2, 999_999] = 1
    # Class 7 has one hit, is predicted twice and true once; 8 is missed; 999,999 is met.
    assert metrics.macro_f1(out, torch.tensor([7, 8, 999_999])) == pytest.approx((2 / 3 + 0 + 1) / 3)


@given(classified())
def test_areas_under_curves_are_those_of_scikit_learn(case: tuple[torch.Tensor, torch.Tensor]) -> None:
    out, y = case
    probability = out.double().softmax(dim=-1).numpy().round(12)  # equal ones are equal whatever the order of the sum
    classes = [1] if out.size(1) == 2 else range(out.size(1))
    members = {c: (y == c).numpy() for c in classes}
    areas = [roc_auc_score(member, probability[:, c]) for c, member in members.items() if 0 < member.sum() < len(y)]
    if areas:
        assert metrics.roc_auc(out, y) == pytest.approx(float(np.mean(areas)), abs=1e-9)
    else:
        assert math.isnan(metrics.roc_auc(out, y))
    precisions = [average_precision_score(member, probability[:, c]) for c, member in members.items() if member.any()]
    expected = float(np.mean(precisions)) if precisions else math.nan
    assert metrics.pr_auc(out, y) == pytest.approx(expected, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_areas_of_nan_and_r2_of_one_node_are_not_defined(classes: int) -> None:
    out = torch.randn(6, classes)
    out[4] = math.nan
    assert math.isnan(metrics.roc_auc(out, torch.tensor([0, 1, 0, 1, 0, 1])))
    assert math.isnan(metrics.pr_auc(out, torch.tensor([0, 1, 0, 1, 0, 1])))
    assert math.isnan(metrics.r2(torch.ones(1, 1), torch.ones(1, 1)))


numbers = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=20)


@given(numbers, st.booleans())
def test_regression_metrics_are_those_of_scikit_learn(pairs: list[tuple[int, int]], constant: bool) -> None:
    out, y = torch.tensor(pairs, dtype=torch.float).t()
    y = torch.full_like(y, 2.0) if constant else y
    out, y = (torch.stack([value, value.flip(0) / 4], dim=1) for value in (out, y))  # two targets
    assert metrics.mse(out, y) == pytest.approx(mean_squared_error(y.double(), out.double()), abs=1e-9)
    assert metrics.rmse(out, y) == pytest.approx(mean_squared_error(y.double(), out.double()) ** 0.5, abs=1e-9)
    assert metrics.mae(out, y) == pytest.approx(mean_absolute_error(y.double(), out.double()), abs=1e-9)
    assert metrics.r2(out, y) == pytest.approx(r2_score(y.double(), out.double()), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("closed", [True, False])
def test_tau_is_that_of_scipy(closed: bool) -> None:
    torch.manual_seed(0)
    x, edge_index = graph()
    edge_index = edge_index.unique(dim=1)  # of equal neighbours, no order is the right one
    model = network("goat", heads=3, last="goat", add_self_loops=closed).eval()
    orderings = model(x, edge_index, return_orderings=True)[1]
    key, nodes = torch.randn(N), torch.tensor([9, 3, 0, 7, 5])  # the first has no neighbour
    heads = []
    for ordering, head in [*((orderings[0], head) for head in range(3)), (orderings[1], 0)]:
        read = [ordering.neighbors(node, head).tolist() for node in nodes.tolist()]
        taus = [kendalltau(range(len(one)), -key[one].numpy()).statistic for one in read if len(one) > 1]
        assert len(taus) == 4
        heads.append(abs(np.mean(taus)))
    assert metrics.tau(orderings, key, nodes) == pytest.approx(max(heads))
    assert metrics.tau(orderings[:1], key, nodes) == pytest.approx(max(heads[:3]))
