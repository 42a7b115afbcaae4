import itertools

import pytest

from torch_goat.experiments.models import MODELS, ModelOptions
from torch_goat.experiments.search import paper_grid, parse_space, search_space, starting_point
from torch_goat.experiments.search.search import Space, at, checked, decoded, encoded, points, size
from torch_goat.settings import SettingsError


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


def test_goat_is_searched_with_its_own_options() -> None:
    space = search_space(starting_point("cora", "goat"))
    assert space["last"] == ("gat", "gcn", "goat")
    assert {"heads", "rnn", "attention", "attention_dropout"} <= set(space)
    assert not {"heads", "rnn", "attention", "last"} & set(search_space(starting_point("cora", "gcn")))


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


def test_what_is_fixed_is_not_searched() -> None:
    start = starting_point("cora", "gat")
    space = checked({"heads": (1, 2), "dropout": (0.1, 0.2)}, start, ["model.heads"])
    assert space == {"dropout": (0.1, 0.2)}


def test_points_are_all_combinations() -> None:
    space: Space = {"heads": (1, 2), "rnn": ("lstm", "gru"), "permutation_lengths": ((5, 5), (20, 5), (1, 1))}
    expected = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    assert list(points(space)) == expected
    assert size(space) == 12
    for point in points(space):
        stored = {key: encoded(value) for key, value in point.items()}
        assert all(isinstance(value, int | str) for value in stored.values())
        assert decoded(space, stored) == point


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


def test_unknown_model_is_named_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="'sage-man'; did you mean 'sage-mean'"):
        paper_grid("sage-man", "regression")
