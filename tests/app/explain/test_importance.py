import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.inspection import permutation_importance
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.app.explain import features, importance
from torch_goat.data.tables import Column, Schema
from torch_goat.experiments import NamedGraph

WEIGHTS = torch.tensor([2.0, -0.7, 0.0])


class Linear(ClassifierMixin, BaseEstimator):
    """The same fixed model for scikit-learn."""

    classes_ = np.array([0, 1])

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Linear":
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return (x @ WEIGHTS.numpy() > 0).astype(int)


def linear(data: Data) -> Tensor:
    score = data.x @ WEIGHTS
    return torch.stack([torch.zeros_like(score), score], dim=1)


def graph(nodes: int = 400) -> NamedGraph:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, 3, generator=generator)
    y = (x @ WEIGHTS + torch.randn(nodes, generator=generator) > 0).long()
    return NamedGraph(Data(x=x, y=y, edge_index=torch.zeros(2, 0).long()), tuple(map(str, range(nodes))), ("a", "b"))


def test_importance_is_that_of_scikit_learn() -> None:
    """All nodes are evaluated and there are no edges, so that both permute the same values."""
    named = graph()
    found = importance(linear, named, features(named.data, None), "accuracy", torch.arange(400))
    x, y = named.data.x.numpy(), named.data.y.numpy()
    expected = permutation_importance(Linear(), x, y, n_repeats=50, random_state=0).importances_mean
    assert [one.feature.name for one in found] == ["feature 0", "feature 1", "feature 2"]
    assert [one.drop for one in found] == pytest.approx(expected.tolist(), abs=0.06)
    for one, value in zip(found, expected, strict=True):
        assert one.interval[0] <= value <= one.interval[1]
    assert found[2].drop == 0
    assert found[2].interval == (0, 0)  # the model does not read it
    right = (linear(named.data).argmax(1) == named.data.y).double()
    half = (found[0].interval[1] - found[0].interval[0]) / 2
    # Without the column, predictions are about independent of the truth: the drop is a difference of two shares.
    assert half == pytest.approx(1.96 * float((right.var() + 0.25) / 400) ** 0.5, rel=0.5)


def test_an_error_that_grows_is_a_positive_importance_in_units_of_the_target() -> None:
    named = graph()
    truth = named.data.x @ WEIGHTS
    named = named._replace(classes=(), target_mean=5.0, target_scale=10.0)
    named.data.y = truth
    found = importance(
        lambda data: (data.x @ WEIGHTS).view(-1, 1), named, features(named.data, None), "mse", torch.arange(400)
    )
    # Permuting a column with weight w adds a difference of two independent values: its mean square is 2 w² var(x).
    for one, weight in zip(found, WEIGHTS.tolist(), strict=True):
        assert one.drop == pytest.approx(100 * 2 * weight**2, rel=0.25)


def test_a_column_that_is_not_read_has_no_importance_in_any_unit() -> None:
    named = graph()
    named.data.y = named.data.y.double()
    for scale in (1e-6, 3.0, 1e6):
        number = named._replace(classes=(), target_mean=5.0, target_scale=scale)
        found = importance(lambda data: data.x[:, :1], number, features(named.data, None), "rmse", torch.arange(400))
        assert [(one.drop, one.interval) for one in found if one.feature.name != "feature 0"] == [(0, (0, 0))] * 2


def test_the_channels_of_a_column_are_permuted_together() -> None:
    nodes = (Column("craft", "category", categories=("a", "b"), missing=True), Column("land", "number"))
    schema = Schema(
        "y", "classification", "id", nodes, "s", "t", edges=(Column("since", "number"),), classes=("0", "1")
    )
    data = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.tensor([[1.0], [2.0]]))
    data.y = torch.tensor([0, 1, 0, 1])
    columns = features(data, schema)
    assert [(one.name, one.start, one.end) for one in columns] == [
        ("craft", 0, 3),
        ("land", 3, 4),
        ("since (of edges)", 0, 1),
    ]
    seen = []

    def predict(changed: Data) -> Tensor:
        seen.append(changed)
        return torch.zeros(4, 2)

    importance(predict, NamedGraph(data, tuple("abcd"), ("0", "1")), columns[:1], "accuracy", torch.arange(4))
    for one in seen[1:]:
        assert sorted(one.x[:, :3].tolist()) == sorted(data.x[:, :3].tolist())
        assert torch.equal(one.x[:, 3], data.x[:, 3])
    seen.clear()
    importance(predict, NamedGraph(data, tuple("abcd"), ("0", "1")), columns[2:], "accuracy", torch.arange(4))
    assert all(torch.equal(one.x, data.x) for one in seen)
    assert {tuple(one.edge_attr.view(-1).tolist()) for one in seen} <= {(1.0, 2.0), (2.0, 1.0)}
