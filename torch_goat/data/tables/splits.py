"""The split of the nodes into training, validation and test nodes."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import numpy as np

from torch_goat.data.tables.columns import times
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.source import Source, TableError

TRAIN, VAL, TEST, NONE = 0, 1, 2, -1
PARTS: Final = ("training", "validation", "test")
_SEED: Final = 20220411
_WORDS: Final = {
    "train": TRAIN, "training": TRAIN,
    "val": VAL, "valid": VAL, "validation": VAL, "dev": VAL,
    "test": TEST, "testing": TEST,
}  # fmt: skip


class Split(NamedTuple):
    """One of the splits of a table."""

    part: np.ndarray  # [n]: 0 (training), 1 (validation), 2 (test) or -1 (none, as without a target)
    total: int  # the number of folds or split columns; 0 for any number of random splits
    text: str  # which split it is, for the user


def split_columns(tables: Tables, columns: Sequence[str]) -> list[str]:
    """The split columns among those of the nodes: that of this name, or all that match the pattern."""
    if tables.split_column in columns or not tables.split_column:
        return [tables.split_column] if tables.split_column else []
    return [name for name in columns if fnmatchcase(name, tables.split_column)]


def check_split(tables: Tables, source: Source) -> None:
    """Raises if the nodes lack a column that the split needs."""
    if tables.split == "columns" and not split_columns(tables, source.columns):
        raise TableError(
            f"{source.path}, line 1: no column matches {tables.split_column!r} for the split; the columns are "
            f"{', '.join(map(repr, source.columns[:20]))}{', ...' if len(source.columns) > 20 else ''}."
        )
    purposes = {"split_column": "the split", "time_column": "the time", "group_column": "the groups"}
    for key, purpose in purposes.items():
        if getattr(tables, key) and (key != "split_column" or tables.split == "column"):
            source.check(getattr(tables, key), purpose)


def split_nodes(tables: Tables, source: Source, y: np.ndarray, classes: Sequence[str], index: int) -> Split:
    """Splits the nodes; random parts are drawn evenly from every class.

    Args:
        y: The targets ``[n]``; numbers of the classes, if there are such.
        index: Which split, from 0: of random ones, of the split columns, or of the folds; beyond their number, folds
            are drawn anew.
    """
    target = source.frame[tables.target]
    labelled = target.notna().to_numpy()
    strata = y if len(classes) else np.zeros(len(y), dtype=np.int64)
    generator = np.random.default_rng([index, _SEED])
    draw = _Draw(strata, _groups(tables, source, labelled), generator)
    part, nodes = np.full(len(y), NONE), np.flatnonzero(labelled)
    shares = tables.train, tables.val, 1 - tables.train - tables.val
    count, text = 0, "random"
    if tables.split_column:
        columns = split_columns(tables, source.columns)
        parts = [_split_by_column(tables, source, name, labelled) for name in columns]  # so that all are checked
        if len(columns) > 1 and index >= len(columns):
            raise TableError(
                f"{source.path}, line 1: {len(columns)} columns match {tables.split_column!r}, so that the index of a "
                f"split is at most {len(columns) - 1}, got {index}."
            )
        number = index if len(columns) > 1 else 0
        part, count, text = parts[number], len(columns), f"column {columns[number]!r}"
        text += f" ({number + 1} of {count})" if count > 1 else ""
    elif tables.time_column:
        part, text = _split_by_time(tables, source, labelled)
        count = 1
    elif tables.folds:
        number, count = index % tables.folds, tables.folds
        _check_folds(tables, source, strata[nodes], classes)
        again = draw._replace(generator=np.random.default_rng([index // tables.folds, _SEED, 1]))
        part[nodes] = np.where(again.folds(nodes, count) == number, TEST, TRAIN)
        text = f"fold {number + 1} of {count}"
    else:
        part[nodes] = draw(nodes, shares)
    if not (part == VAL).any():
        share = tables.val / (tables.train + tables.val)
        rest = np.flatnonzero(part == TRAIN)
        part[rest] = draw(rest, (1 - share, share))
    text += f", groups of {tables.group_column!r} together" if tables.group_column else ""
    for number, name in enumerate(PARTS):
        if not (part == number).any():
            raise _empty_part(tables, source, name, len(np.unique(strata[labelled])), int(labelled.sum()))
    train = part == TRAIN
    if len(np.unique(y[train])) < 2:
        reason = f"all {int(train.sum())} training nodes have the target {{cell}}, so there is nothing to learn"
        raise source.error(train, target, f"{reason}; choose another split.")
    return Split(part, count, text)


def _empty_part(tables: Tables, source: Source, part: str, classes: int, labelled: int) -> TableError:
    column = tables.split_column or tables.group_column
    reason = f"there is no {part} node with a {tables.target!r}; give more nodes a target or choose another split."
    if not column and 3 * classes > labelled:  # fewer than three per class, on average
        reason = f"{labelled} nodes in {classes} classes are too few to have {part} nodes"
        reason += "; choose another target, or --task regression for numbers."
    return TableError(f"{source.path}, column {column or tables.target!r}: {reason}")


class _Draw(NamedTuple):
    """Draws random parts with given shares of every stratum, as nearly as whole nodes or whole groups allow."""

    strata: np.ndarray  # [n], such as classes
    groups: np.ndarray | None  # [n], nodes of which are drawn together
    generator: np.random.Generator

    def __call__(self, nodes: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
        """The part of each of some nodes ``[k]``."""
        if self.groups is not None:
            return self._whole_groups(self.strata[nodes], self.groups[nodes], np.array(shares))
        order = self._order(nodes)
        strata = self.strata[nodes][order]
        start = np.searchsorted(strata, strata)
        size = np.searchsorted(strata, strata, side="right") - start
        position = (np.arange(len(order)) - start + 0.5) / size  # in the stratum, between 0 and 1
        part = np.empty(len(order), dtype=np.int64)
        part[order] = np.searchsorted(np.cumsum(shares)[:-1], position, side="right")
        return part

    def folds(self, nodes: np.ndarray, count: int) -> np.ndarray:
        """The fold of each of some nodes ``[k]``; the nodes of each stratum are dealt in turn."""
        if self.groups is not None:
            return self._whole_groups(self.strata[nodes], self.groups[nodes], np.full(count, 1 / count))
        fold = np.empty(len(nodes), dtype=np.int64)
        fold[self._order(nodes)] = np.arange(len(nodes)) % count
        return fold

    def _order(self, nodes: np.ndarray) -> np.ndarray:
        """The places of the nodes, sorted by stratum and shuffled within each."""
        order = self.generator.permutation(len(nodes))
        ordered: np.ndarray = order[np.argsort(self.strata[nodes][order], kind="stable")]
        return ordered

    def _whole_groups(self, strata: np.ndarray, groups: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Large groups first, each goes to the part whose shares of the strata it brings closest to the wanted."""
        _, groups = np.unique(groups, return_inverse=True)
        _, strata = np.unique(strata, return_inverse=True)
        counts = np.zeros((groups.max(initial=-1) + 1, strata.max(initial=-1) + 1))
        np.add.at(counts, (groups, strata), 1)
        order = self.generator.permutation(len(counts))
        order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
        counts = np.concatenate([counts, counts.sum(axis=1, keepdims=True)], axis=1)
        counts /= np.maximum(1, counts.sum(axis=0))  # shares of each stratum, and of all nodes
        lacking = np.repeat(shares[:, None], counts.shape[1], axis=1)  # [parts, strata + 1]
        empty = np.ones(len(shares), dtype=bool)
        part = np.empty(len(counts), dtype=np.int64)
        for left, group in zip(range(len(order), 0, -1), order, strict=True):
            gain = (lacking**2 - (lacking - counts[group]) ** 2).sum(axis=1)
            if left <= empty.sum():  # no part stays empty if there are enough groups
                gain[~empty] = -np.inf
            part[group] = best = int(gain.argmax())
            lacking[best] -= counts[group]
            empty[best] = False
        return part[groups]


def _groups(tables: Tables, source: Source, labelled: np.ndarray) -> np.ndarray | None:
    """The number of each node's group ``[n]``."""
    if not tables.group_column:
        return None
    values = source.frame[tables.group_column]
    unknown = values.isna().to_numpy() & labelled
    if unknown.any():
        raise source.error(unknown, values, "a node with a target has no group; fill it in.")
    groups: np.ndarray = values.cat.codes.to_numpy()
    found = len(np.unique(groups[labelled]))
    wanted = max(3, tables.folds)
    if found < wanted:
        raise TableError(
            f"{source.path}, column {tables.group_column!r}: {found} groups are too few; {tables.folds or 3} parts "
            f"need at least {wanted} groups."
        )
    return groups


def _check_folds(tables: Tables, source: Source, strata: np.ndarray, classes: Sequence[str]) -> None:
    numbers, counts = np.unique(strata, return_counts=True)
    least = int(counts.argmin())
    if counts[least] < tables.folds and not tables.group_column:
        what = f"the class {classes[numbers[least]]!r} has" if len(classes) else "there are"
        raise TableError(
            f"{source.path}, column {tables.target!r}: {what} only {counts[least]} nodes, too few for "
            f"{tables.folds} folds; use fewer folds, or clear the target of such nodes."
        )


def _split_by_column(tables: Tables, source: Source, column: str, labelled: np.ndarray) -> np.ndarray:
    values = source.frame[column]
    words = values.astype(object).map(lambda text: text.strip().lower(), na_action="ignore")
    found = words.map(_WORDS)
    bad = found.isna() & words.notna()
    if bad.any():
        reason = "{cell} is not a split; write train, val or test, or leave the cell empty."
        raise source.error(bad, values, reason)
    part = found.fillna(NONE).to_numpy(dtype=np.int64)
    for number, name in enumerate(PARTS):
        nodes = np.flatnonzero(part == number)
        if len(nodes) and not labelled[nodes].any():
            reason = f"none of the {len(nodes)} {name} nodes has a target; fill in some or choose another split."
            raise source.error(part == number, source.frame[tables.target], reason)
    return np.where(labelled, part, NONE)


def _split_by_time(tables: Tables, source: Source, labelled: np.ndarray) -> tuple[np.ndarray, str]:
    """The earliest nodes train and the latest test; nodes of the same time are in the same part.

    A time that a share divides belongs to the earlier part. If this leaves a part empty, the cuts are the boundaries
    between times that are nearest to the shares among those that do not.
    """
    values = source.frame[tables.time_column]
    time = times(source, values)
    unknown = np.isnan(time) & labelled
    if unknown.any():
        raise source.error(unknown, values, "a node with a target has no time; fill it in.")
    distinct, counts = np.unique(time[labelled], return_counts=True)
    if len(distinct) < 3:
        raise TableError(
            f"{source.path}, column {tables.time_column!r}: {len(distinct)} distinct times of nodes with a target are "
            "too few; training, validation and test nodes need at least 3, so choose another column or split."
        )
    upto = counts.cumsum()  # nodes up to each time
    shares = np.array([tables.train, tables.train + tables.val])
    train, val = np.ceil((shares * upto[-1]).round(9))  # without rounding errors, which could add a node
    last = np.searchsorted(upto, (train, val))  # the times at which the first two parts end
    if not last[0] < last[1] < len(distinct) - 1:
        last[0] = np.abs(upto[:-2] - train).argmin()
        last[1] = last[0] + 1 + np.abs(upto[last[0] + 1 : -1] - val).argmin()
    part = np.where(labelled, np.searchsorted(distinct[last], time, side="left"), NONE)
    known = [_moment(distinct[place], distinct) for place in (*last, last[1] + 1)]
    text = f"time {tables.time_column!r} (training to {known[0]}, validation to {known[1]}, test from {known[2]})"
    return part, text


def _moment(time: Any, all_times: np.ndarray) -> str:
    """A number or a date, with the time of day if some have one."""
    if all_times.dtype.kind != "M":
        return f"{time:.10g}" if all_times.dtype.kind == "f" else str(time)
    days = all_times.astype("datetime64[D]")
    return str(np.datetime_as_string(time, unit="D" if (days == all_times).all() else "auto")).replace("T", " ")
