"""Which nodes of a table train, which validate and which test."""

import numpy as np
import pandas as pd

from torch_goat.data.tables.columns import is_numeric, numbers
from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.source import Source, first_row, shown

TRAIN, VAL, TEST, NONE = 0, 1, 2, -1
PARTS = ("training", "validation", "test")
_WORDS = {
    "train": TRAIN, "training": TRAIN,
    "val": VAL, "valid": VAL, "validation": VAL, "dev": VAL,
    "test": TEST, "testing": TEST,
}  # fmt: skip


def split_nodes(
    tables: Tables, source: Source, frame: pd.DataFrame, strata: np.ndarray, labelled: np.ndarray, index: int
) -> np.ndarray:
    """The part of every node: 0 (training), 1 (validation), 2 (test) or -1 (none) ``[n]``.

    Args:
        tables: How to split.
        source: Where the nodes came from.
        frame: The nodes.
        strata: What to draw evenly from: the class of each node, or the same for all ``[n]``.
        labelled: Whether a node has a target ``[n]``; others are in no part.
        index: Which of the random splits, from 0.
    """
    generator = np.random.default_rng([index, 20220411])
    rest = 1 - tables.train - tables.val
    if tables.split_column:
        part = _by_column(source, frame, tables.split_column)
        _check_labels(tables, source, part, labelled)
        part = np.where(labelled, part, NONE)
        if not (part == VAL).any():
            share = tables.val / (tables.train + tables.val)
            nodes = np.flatnonzero(part == TRAIN)
            part[nodes] = np.where(_draw(strata[nodes], (1 - share, share), generator) == 0, TRAIN, VAL)
    elif tables.time_column:
        part = np.where(labelled, _by_time(tables, source, frame, labelled), NONE)
    else:
        part, nodes = np.full(len(frame), NONE), np.flatnonzero(labelled)
        part[nodes] = _draw(strata[nodes], (tables.train, tables.val, rest), generator)
    column = tables.split_column or tables.time_column or tables.target
    for number, name in enumerate(PARTS):
        if not (part == number).any():
            count = len(np.unique(strata[labelled]))
            if column == tables.target and 3 * count > labelled.sum():  # fewer than three of a class, on average
                raise TableError(
                    f"{source.path}, line 1, column {column!r}: {int(labelled.sum())} nodes are of {count} classes, so "
                    f"few of each that none is left for the {name} part; choose another target, or --task regression "
                    "if it is a number."
                )
            raise TableError(
                f"{source.path}, line 1, column {column!r}: no node with a {tables.target!r} is left for the {name} "
                "part; give more nodes a target or choose another split."
            )
    return part


def _draw(strata: np.ndarray, shares: tuple[float, ...], generator: np.random.Generator) -> np.ndarray:
    """Parts in these shares, at random, each with its share of every stratum as nearly as whole nodes allow.

    Nodes are laid out stratum by stratum, at random within each, and dealt out such that every stretch has its shares.
    """
    order = generator.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    start = np.searchsorted(strata[order], strata[order])
    size = np.searchsorted(strata[order], strata[order], side="right") - start
    within = (np.arange(len(order)) - start + 0.5) / size  # the place in the stratum, between 0 and 1
    part = np.empty(len(order), dtype=np.int64)
    part[order] = np.searchsorted(np.cumsum(shares)[:-1], within, side="right")
    return part


def _by_column(source: Source, frame: pd.DataFrame, column: str) -> np.ndarray:
    words = frame[column].map(lambda text: str(text).strip().lower(), na_action="ignore")
    part = words.map(_WORDS)
    bad = (part.isna() & words.notna()).to_numpy()
    if bad.any():
        row = first_row(bad)
        raise TableError(
            f"{source.where(row, column)}: {shown(frame[column].iloc[row])} is no part of a split; write train, val or "
            "test, or leave the cell empty."
        )
    return part.fillna(NONE).to_numpy(dtype=np.int64)


def _check_labels(tables: Tables, source: Source, part: np.ndarray, labelled: np.ndarray) -> None:
    for number, name in enumerate(PARTS):
        nodes = np.flatnonzero(part == number)
        if len(nodes) and not labelled[nodes].any():
            raise TableError(
                f"{source.where(int(nodes[0]), tables.target)}: none of the {len(nodes)} nodes of the {name} part has "
                "a target; fill some in or choose another split."
            )


def _by_time(tables: Tables, source: Source, frame: pd.DataFrame, labelled: np.ndarray) -> np.ndarray:
    """The earliest nodes train and the latest test; nodes of one time stay together."""
    column = tables.time_column
    values = frame[column]
    if is_numeric(values):
        time = numbers(source, column, values)
    else:
        dates = pd.to_datetime(values, errors="coerce", format="ISO8601", utc=True)
        bad = (dates.isna() & values.notna()).to_numpy()
        if bad.any():
            row = first_row(bad)
            raise TableError(
                f"{source.where(row, column)}: {shown(values.iloc[row])} is neither a number nor a date such as "
                "2024-05-31."
            )
        time = np.where(dates.isna(), np.nan, dates.astype("int64").to_numpy(dtype=np.float64))
    unknown = np.isnan(time) & labelled
    if unknown.any():
        row = first_row(unknown)
        raise TableError(f"{source.where(row, column)}: a node with a target has no time; fill it in.")
    ordered = np.sort(time[labelled])
    ends = [
        ordered[max(0, int(np.ceil(share * len(ordered))) - 1)] for share in (tables.train, tables.train + tables.val)
    ]
    return np.searchsorted(ends, time, side="left")
