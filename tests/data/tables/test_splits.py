"""Folds, groups, times and split columns divide the nodes as documented."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.tables.files import NODES, with_column, write
from torch_goat.data.tables import TableError, load_tables
from torch_goat.data.tables.splits import _Draw

PARTS = ("train", "val", "test")


def rows(count: int, label: str = "common", **columns: list) -> str:
    """Nodes of which every fifth is rare."""
    names = ",".join(["id", *columns, "label"])
    cells = zip(*columns.values(), strict=True) if columns else [()] * count
    lines = [
        ",".join([f"n{number}", *map(str, more), "rare" if number % 5 == 0 else label])
        for number, more in zip(range(count), cells, strict=True)
    ]
    return "\n".join([names, *lines])


def split(tmp_path: Path, nodes: str, index: int = 0, **options) -> tuple[np.ndarray, str]:
    graph = load_tables(write(tmp_path, nodes, "source,target\n", **options), index)
    masks = np.stack([graph.data[f"{part}_mask"].numpy() for part in PARTS])
    assert (masks.sum(axis=0) == 1).all()
    return masks.argmax(axis=0), graph.split


def test_every_node_is_in_the_test_set_of_one_fold(tmp_path: Path) -> None:
    nodes = rows(52)
    found = [split(tmp_path, nodes, index, folds=5) for index in range(5)]
    tested = np.stack([part == 2 for part, _ in found])
    assert (tested.sum(axis=0) == 1).all()
    assert [text for _, text in found] == [f"fold {number} of 5" for number in range(1, 6)]
    rare = np.arange(52) % 5 == 0
    for part, _ in found:
        assert sum(part == 2) in (10, 11)
        assert sum((part == 2) & rare) in (2, 3)  # 11 rare nodes
        rest = part != 2
        assert abs(sum(part == 1) - 0.25 * sum(rest)) <= 1  # 60 to 20 percent, as without folds
    again = [split(tmp_path, nodes, index, folds=5)[0] == 2 for index in range(5, 10)]
    assert (np.sum(again, axis=0) == 1).all()
    assert not (np.stack(again) == tested).all()  # drawn anew
    expected = "the class 'rare' has only 11 nodes, too few for 12 folds; use fewer folds"
    with pytest.raises(TableError, match=rf"nodes\.csv, column 'label': {expected}"):
        split(tmp_path, nodes, folds=12)


@given(data=st.data(), folds=st.integers(2, 6), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_folds_are_even_and_groups_stay_whole(data: st.DataObject, folds: int, seed: int) -> None:
    strata = np.array(data.draw(st.lists(st.integers(0, 3), min_size=folds, max_size=60)))
    draw = _Draw(strata, None, np.random.default_rng(seed))
    fold = draw.folds(np.arange(len(strata)), folds)
    for members in [np.ones_like(strata, dtype=bool), *(strata == one for one in np.unique(strata))]:
        sizes = np.bincount(fold[members], minlength=folds)
        assert sizes.max() - sizes.min() <= 1
    groups = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(strata), max_size=len(strata))))
    fold = draw._replace(groups=groups).folds(np.arange(len(strata)), folds)
    assert all(len(set(fold[groups == one])) == 1 for one in groups)
    assert len(set(fold)) == min(folds, len(set(groups)))


@pytest.mark.parametrize("folds", [0, 4])
def test_no_group_is_in_two_parts(tmp_path: Path, folds: int) -> None:
    village = [number * 7 % 20 for number in range(200)]  # 20 groups of 10
    nodes = rows(200, village=village)
    options = {"group_column": "village", "folds": folds}
    part, text = split(tmp_path, nodes, **options)
    assert all(len(set(part[np.array(village) == one])) == 1 for one in range(20))
    assert Counter(part.tolist()) == ({0: 120, 1: 40, 2: 40} if not folds else {0: 110, 1: 40, 2: 50})
    assert text.endswith("groups of 'village' together")
    graph = load_tables(write(tmp_path, nodes, "source,target\n", **options))
    assert graph.schema.nodes == ()  # it is not a feature
    for bad, message in (
        (rows(60, village=[number % 2 for number in range(60)]), r"nodes\.csv, column 'village': 2 groups are too few"),
        (rows(60, village=["", *range(59)]), "line 2, column 'village': a node with a target has no group"),
    ):
        with pytest.raises(TableError, match=message):
            split(tmp_path, bad, **options)


@pytest.mark.parametrize(
    ("time", "told"),
    [
        ("{}", ["5", "7", "8"]),
        ("{}.5", ["5.5", "7.5", "8.5"]),
        ("200{}-03-01", ["2005-03-01", "2007-03-01", "2008-03-01"]),
        ("2024-05-31T1{}:30Z", ["2024-05-31 15:30", "2024-05-31 17:30", "2024-05-31 18:30"]),
    ],
)
def test_the_earliest_nodes_train_and_the_cut_offs_are_told(tmp_path: Path, time: str, told: list[str]) -> None:
    order = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7]
    part, text = split(tmp_path, with_column("when", [time.format(when) for when in order]), time_column="when")
    assert part.tolist() == [0 if when < 6 else 1 if when < 8 else 2 for when in order]
    assert [*re.findall(r"(?:to|from) ([^,)]+)", text)] == told
    assert text.startswith("time 'when' (training to ")


def test_the_shares_of_distinct_times_are_exact(tmp_path: Path) -> None:
    lines = [f"n{number},{number},{number}.5" for number in range(100)]
    options = {"time_column": "when", "train": 0.55, "val": 0.28}  # 0.55 * 100 is above 55
    part, _ = split(tmp_path, "\n".join(["id,when,label", *lines]), **options)
    assert part.tolist() == [0] * 55 + [1] * 28 + [2] * 17


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        ([20, 20, 20], [0, 1, 2]),  # at 60 and 80 percent, the test nodes would be none
        ([20, 38, 1, 1], [0, 1, 2, 2]),  # 20 training nodes are nearer to 36 than 58 are
        ([5, 50, 5, 5], [0, 0, 1, 2]),
        ([1, 1, 1, 1], [0, 0, 1, 2]),
        ([5, 2, 1, 2], [0, 0, 1, 2]),  # 7 training nodes rather than 5, as no part is empty
    ],
)
def test_no_time_is_in_two_parts_and_no_part_is_empty(tmp_path: Path, counts: list[int], parts: list[int]) -> None:
    when = [2000 + time for time, count in enumerate(counts) for _ in range(count)]
    lines = [f"n{number},{time},{number}.5" for number, time in enumerate(when)]
    part, text = split(tmp_path, "\n".join(["id,when,label", *lines]), time_column="when")
    assert part.tolist() == [parts[time - 2000] for time in when]
    ends = [2000 + max(time for time, one in enumerate(parts) if one == number) for number in (0, 1)]
    assert text == f"time 'when' (training to {ends[0]}, validation to {ends[1]}, test from {ends[1] + 1})"


def test_a_pattern_names_several_split_columns(tmp_path: Path) -> None:
    given = [[PARTS[(number + shift) % 3] for number in range(60)] for shift in range(3)]
    nodes = rows(60, fold_a=given[0], fold_b=given[1], x=list(range(60)), fold_c=given[2])
    for index, name in enumerate("abc"):
        part, text = split(tmp_path, nodes, index, split_column="fold_*")
        assert [PARTS[one] for one in part] == given[index]
        assert text == f"column 'fold_{name}' ({index + 1} of 3)"
    graph = load_tables(write(tmp_path, nodes, "source,target\n", split_column="fold_?"))
    assert graph.num_splits == 3
    assert [column.name for column in graph.schema.nodes] == ["x"]
    with pytest.raises(
        TableError, match=r"3 columns match 'fold_\*', so that the index of a split is at most 2, got 3"
    ):
        split(tmp_path, nodes, 3, split_column="fold_*")
    with pytest.raises(TableError, match=r"line 1: no column matches 'part_\*' for the split; the columns are 'id'"):
        split(tmp_path, nodes, split_column="part_*")
    with pytest.raises(TableError, match="line 2, column 'x': '0' is not a split"):  # also of columns not used yet
        split(tmp_path, nodes, split_column="[fx]*")
    literal, _ = split(tmp_path, nodes.replace("fold_b", "fold_*"), split_column="fold_*")  # a column of this name
    assert [PARTS[one] for one in literal] == given[1]


def test_columns_of_a_split_must_exist(tmp_path: Path) -> None:
    for key, purpose in (("split_column", "the split"), ("time_column", "the time"), ("group_column", "the groups")):
        with pytest.raises(TableError, match=f"line 1: there is no column 'tow' for {purpose}; did you mean 'town'"):
            split(tmp_path, NODES, **{key: "tow"})
