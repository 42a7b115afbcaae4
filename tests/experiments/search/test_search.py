from dataclasses import replace
from typing import Any

import pytest

from tests.experiments.search.cases import small_search
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
