from dataclasses import replace
from typing import Any

import pytest

from tests.experiments.search.cases import small_search
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments.models import MODELS, Network, degree_histogram
from torch_goat.experiments.search import Search, starting_point
from torch_goat.settings import SettingsError


def test_other_settings_have_another_name() -> None:
    one = small_search()
    others = [
        small_search(seed=1),
        small_search(epochs=4),
        small_search(indices=(1,)),
        small_search(metric="r2"),
        small_search(method="grid"),
        small_search(prune=True),
        small_search({"dropout": (0.1, 0.2)}),
    ]
    names = {search.name for search in others}
    assert len(names) == len(others)
    assert one.name not in names
    assert one.name == small_search().name
    assert one.name.startswith("betweenness-100-gcn-")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metric": "accuracy"}, "betweenness-100 has no metric 'accuracy'"),
        ({"metric": "r2", "prune": True}, "pruning uses the mse, not the r2"),
        ({"indices": ()}, "one or more"),
        ({"indices": (1, 1)}, "distinct numbers"),
        ({"indices": (0, 10)}, "between 0 and 9"),
        ({"experiment": replace(starting_point("cora", "gcn"), dataset="corra")}, "did you mean 'cora'"),
    ],
)
def test_an_impossible_search_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        replace(small_search(), **changes)


def test_errors_are_minimised_and_scores_maximised() -> None:
    assert small_search().minimize
    assert not small_search(metric="r2").minimize
    assert not Search(starting_point("cora", "gcn"), {"dropout": (0.1, 0.2)}).minimize


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_model_is_as_wide_as_the_others(dataset: str) -> None:
    """A comparison begins with layers of one width, all heads together, and with the same training."""
    starts = [starting_point(dataset, model) for model in MODELS]
    assert len({start.model.hidden_channels * start.model.heads for start in starts}) == 1
    assert len({start.training for start in starts}) == 1
    assert {start.split for start in starts} == {DATASETS[dataset].default_split}


@pytest.mark.parametrize("model", MODELS)
def test_regression_has_an_encoder_and_a_linear_output(model: str) -> None:
    start = starting_point("effective-size-100", model)
    data = DATASETS["effective-size-100"].load()
    degree = degree_histogram(data.edge_index, data.num_nodes)
    network = Network(start.model, data.num_features, 1, degree=degree)
    assert start.model.linear_output
    assert start.model.input_channels > 0
    assert network(data.x, data.edge_index).shape == (100, 1)


@pytest.mark.parametrize("model", ["goat", "goat-paper"])
def test_structure_is_read_by_goat_in_both_layers(model: str) -> None:
    assert starting_point("top2", model).model.kinds == (model, model)
    assert starting_point("betweenness-100", model).model.kinds == (model, model)
    assert starting_point("cora", model).model.kinds == (model, "gat")


@pytest.mark.parametrize(
    ("dataset", "model", "text"), [("cor", "gcn", "did you mean 'cora'"), ("cora", "gcnn", "did you mean 'gcn'")]
)
def test_what_is_unknown_is_refused(dataset: str, model: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        starting_point(dataset, model)
