from itertools import product
from math import prod

import pytest

from torch_goat.experiments.models import MODELS, ModelOptions
from torch_goat.experiments.recipes import paper_grid
from torch_goat.settings import SettingsError


@pytest.mark.parametrize(
    ("model", "task", "points"),
    [
        # linear {4,8,16,32,64} x conv1 {4,8,16,32,64} x conv2 {4,8,16,32}
        ("gcn", "regression", 5 * 5 * 4),
        ("sage-mean", "regression", 5 * 5 * 4),
        ("pna", "regression", 5 * 5 * 4),
        # nheads {1,4,8} x conv1 {4,8,16,32,64} x conv2 {4,8,16,32,64}
        ("gat", "regression", 3 * 5 * 5),
        ("goat", "regression", 3 * 5 * 5),
        # without the second layer's width, with the pooling of heads
        ("gcn", "classification", 5 * 5),
        ("goat", "classification", 3 * 5 * 2),
    ],
)
def test_grid_has_the_papers_number_of_points(model: str, task: str, points: int) -> None:
    assert prod(map(len, paper_grid(model, task).values())) == points


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("model", MODELS)
def test_every_point_is_a_network(model: str, task: str) -> None:
    grid = paper_grid(model, task)
    for values in product(*grid.values()):
        ModelOptions(name=model, **dict(zip(grid, values, strict=True)))


def test_unknown_model_is_named_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="'sage-man'; did you mean 'sage-mean'"):
        paper_grid("sage-man", "regression")
