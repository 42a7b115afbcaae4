import itertools

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.experiments.search.cases import small_search
from torch_goat.experiments.search import Search, Space
from torch_goat.experiments.search.space import Point
from torch_goat.experiments.search.study import distributions, next_point


def trial(search: Search, point: Point, value: float | None) -> FrozenTrial:
    state = TrialState.FAIL if value is None else TrialState.COMPLETE
    return optuna.trial.create_trial(state=state, value=value, params=point, distributions=distributions(search))


def drawn(search: Search, count: int) -> list[Point]:
    """Points of trials that come to the sum of their parameters; the fourth one fails."""
    trials: list[FrozenTrial] = []
    for number in range(count):
        point = next_point(search, trials)
        trials.append(trial(search, point, None if number == 3 else sum(point.values())))
    return [one.params for one in trials]


def test_a_point_depends_on_the_seed_and_the_trials_alone() -> None:
    whole = drawn(small_search(), 16)
    assert drawn(small_search(), 16) == whole
    assert drawn(small_search(seed=1), 16) != whole
    assert drawn(small_search(), 12) == whole[:12]


@pytest.mark.parametrize("method", ["tpe", "grid"])
def test_no_point_comes_twice_and_all_come(method: str) -> None:
    space: Space = {"heads": (1, 2, 3), "num_layers": (1, 2), "patience": (5, 6, 7)}
    found = drawn(small_search(space, method=method), 18)
    combinations = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    assert sorted(found, key=str) == sorted(combinations, key=str)
    assert (found == combinations) is (method == "grid")


def test_draws_learn_from_the_values() -> None:
    """After the random start, points are nearer to the best place than random ones."""
    space: Space = {f"{key}": tuple(range(8)) for key in ("hidden_channels", "epochs", "patience")}

    def distance(points: list[Point]) -> float:
        return sum(value**2 for point in points for value in point.values()) / len(points)

    found, search = [], small_search(space)
    trials: list[FrozenTrial] = []
    for _ in range(40):
        found.append(next_point(search, trials))
        trials.append(trial(search, found[-1], distance(found[-1:])))
    assert distance(found[20:]) < distance(found[:10])


def test_values_that_are_lists_are_drawn_as_texts() -> None:
    search = small_search({"scalers": (("identity",), ("identity", "linear")), "dropout": (0.0,)}, method="grid")
    assert next_point(search, []) == {"scalers": '["identity"]', "dropout": 0.0}
    done = trial(search, next_point(search, []), 1.0)
    assert next_point(search, [done]) == {"scalers": '["identity", "linear"]', "dropout": 0.0}
