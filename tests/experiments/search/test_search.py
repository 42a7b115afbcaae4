from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.experiments.search.cases import small_search
from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables.options import Task
from torch_goat.experiments import TrainingOptions
from torch_goat.experiments.models import MODELS, ModelOptions, Network, degree_histogram
from torch_goat.experiments.search import (
    Search,
    Space,
    own_starting_point,
    paper_grid,
    parse_space,
    search_space,
    starting_point,
)
from torch_goat.experiments.search.search import at, checked, default_point, points, size
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
        ({"experiment": starting_point("betweenness-100", "trees"), "prune": True}, "'trees' has no epochs"),
    ],
)
def test_an_impossible_search_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        replace(small_search(), **changes)


def test_errors_are_minimised_and_scores_maximised() -> None:
    assert small_search().minimize
    assert small_search(metric="rmse", prune=True).minimize  # pruned by the MSE, which orders trials alike
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
    ("function", "arguments", "text"),
    [
        (starting_point, ("cor", "gcn"), "did you mean 'cora'"),
        (starting_point, ("cora", "gcnn"), "did you mean 'gcn'"),
        (paper_grid, ("sage-man", "regression"), "'sage-man'; did you mean 'sage-mean'"),
        (paper_grid, ("trees", "classification"), "the paper has no grid for the model 'trees'; leave out --grid"),
    ],
)
def test_what_is_unknown_is_refused(function: Callable[..., object], arguments: tuple[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        function(*arguments)


@pytest.mark.parametrize("dataset", ["cora", "top2", "betweenness-100", "cornell"])
@pytest.mark.parametrize("model", MODELS)
def test_every_value_of_every_model_can_be_trained(model: str, dataset: str) -> None:
    start = starting_point(dataset, model)
    space = checked(search_space(start), start, [])
    assert set(space) - {"learning_rate", "weight_decay"} <= start.model.reads()
    for key, values in space.items():
        for value in values:
            there = at(start, {key: value})
            assert getattr(there.training if key in ("learning_rate", "weight_decay") else there.model, key) == value


def test_goat_is_searched_with_its_own_options_that_are_not_fixed() -> None:
    space = search_space(starting_point("cora", "goat"))
    assert space["last"] == ("gat", "gcn", "goat")
    assert {"heads", "rnn", "attention", "attention_dropout"} <= set(space)
    assert not {"heads", "rnn", "attention", "last"} & set(search_space(starting_point("cora", "gcn")))
    fixed = checked({"heads": (1, 2), "dropout": (0.1, 0.2)}, starting_point("cora", "goat"), ["model.heads"])
    assert fixed == {"dropout": (0.1, 0.2)}


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("model", ["linear", "trees"])
def test_a_search_of_a_fitted_model_begins_with_its_defaults_and_changes_only_what_it_reads(
    model: str, task: Task
) -> None:
    start = own_starting_point(task, model)
    space = checked(search_space(start), start, [])
    assert set(space) <= start.model.reads()
    for key, values in space.items():
        for value in values:
            there = at(start, {key: value})
            assert (getattr(there.model, key), there.training) == (value, start.training)
    search = Search(replace(start, dataset="top2"), space, defaults_first=True)
    assert at(start, default_point(search) or {}) == start


def test_a_model_without_options_has_an_empty_space() -> None:
    assert search_space(own_starting_point("classification", "constant")) == {}


@pytest.mark.parametrize(
    ("key", "values", "text"),
    [
        ("learning_rate", (0.1, 0.2), "learning_rate has no effect on the model 'trees'; leave it out"),
        ("dropout", (0.1, 0.2), "dropout=0.1 is read by no layer"),
        ("penalties", ((1.0,), (2.0,)), "penalties=.* is read by no layer"),
        ("shrinkag", (0.1, 0.2), "did you mean 'shrinkage'"),
    ],
)
def test_a_key_that_trees_do_not_read_is_not_searched(key: str, values: tuple[Any, ...], text: str) -> None:
    start = own_starting_point("classification", "trees")
    with pytest.raises(SettingsError, match=text):
        checked({"max_leaves": (4, 8), key: values}, start, [])
    assert checked({"class_weights": (False, True)}, start, [])  # which both fits and networks read


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("heads=1,2,4", "heads", (1, 2, 4)),
        ("model.heads = 1, 2", "heads", (1, 2)),
        ("rnn=lstm,gru", "rnn", ("lstm", "gru")),
        ("residual=true,false", "residual", (True, False)),
        ("learning_rate=1e-3,0.01", "learning_rate", (0.001, 0.01)),
        ("permutation_lengths=[5, 5],[20, 5]", "permutation_lengths", ((5, 5), (20, 5))),
        ("dropout=0.5", "dropout", (0.5,)),
    ],
)
def test_values_are_read_from_the_command_line(text: str, key: str, values: tuple[object, ...]) -> None:
    space = parse_space([text])
    assert space == {key: values}
    assert [type(value) for value in space[key]] == [type(value) for value in values]


@pytest.mark.parametrize("text", ["heads", "heads=", "=1,2"])
def test_a_text_without_key_or_values_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        checked(parse_space([text]), starting_point("cora", "gat"), [])


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ({"hads": (1, 2)}, "did you mean 'heads'"),
        ({"heads": (0, 1)}, "heads must be at least 1"),
        ({"heads": ("many", 1)}, "heads must be a whole number"),
        ({"rnn": ("lstm", "gru")}, "is read by no layer"),
        ({"heads": (2, 2)}, "heads has duplicate values"),
        ({"heads": (2,)}, "nothing to search"),
        ({"seed": (1, 2)}, "seed cannot be searched"),
        ({"name": ("gat", "gcn")}, "name cannot be searched"),
    ],
)
def test_an_impossible_space_is_refused(space: Space, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        checked(space, starting_point("cora", "gat"), [])


@pytest.mark.parametrize(
    ("model", "task", "expected"),
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
def test_grid_has_the_papers_number_of_points(model: str, task: str, expected: int) -> None:
    assert size(paper_grid(model, task)) == len(list(points(paper_grid(model, task)))) == expected


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("model", MODELS)
def test_every_point_of_the_grid_is_a_network(model: str, task: str) -> None:
    grid = paper_grid(model, task)
    checked(grid, starting_point("cora" if task == "classification" else "betweenness-100", model), [])
    for point in points(grid):
        ModelOptions(name=model, **point)


def test_new_defaults_are_those_of_tables_only() -> None:
    tables, arrays = (own_starting_point("classification", "gat", arrays=arrays) for arrays in (False, True))
    assert (tables.training.stop_on, tables.training.class_weights, tables.model.norm) == ("metric", False, "layer")
    assert (arrays.training.stop_on, arrays.training.warmup, arrays.model.norm) == ("loss", 0, "none")
    assert own_starting_point("regression", "gat") == own_starting_point("regression", "gat", arrays=True)
    assert TrainingOptions() == TrainingOptions(stop_on="loss", learning_rate=0.005, warmup=0, patience=250)


def test_the_first_trial_has_the_defaults_only_on_request_and_within_the_space() -> None:
    start = own_starting_point("classification", "goat")
    search = Search(replace(start, dataset="top2"), search_space(start), defaults_first=True)
    point = default_point(search)
    assert point is not None
    assert at(start, point).model.kinds == start.model.kinds
    assert replace(at(start, point), model=start.model) == start
    assert default_point(replace(search, defaults_first=False)) is None
    assert default_point(replace(search, space=search.space | {"heads": (1, 2)})) is None
