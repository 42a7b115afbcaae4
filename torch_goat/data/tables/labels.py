"""Targets of the nodes, and their split into training, validation and test nodes."""

import numpy as np
import pandas as pd

from torch_goat.data.tables.columns import check_blanks, distinct_texts, find_texts, floats, is_numeric, numbers
from torch_goat.data.tables.options import Tables, Task
from torch_goat.data.tables.source import Source, TableError

FEW_CLASSES = 20  # up to so many distinct integers are classes
TRAIN, VAL, TEST, NONE = 0, 1, 2, -1
PARTS = ("training", "validation", "test")
_WORDS = {
    "train": TRAIN, "training": TRAIN,
    "val": VAL, "valid": VAL, "validation": VAL, "dev": VAL,
    "test": TEST, "testing": TEST,
}  # fmt: skip


def guess_task(target: pd.Series) -> Task:
    """Regression for numbers that are fractional or take many values, else classification."""
    if not is_numeric(target):
        return "classification"
    values = floats(target.dropna())
    whole = bool((values == np.round(values)).all())
    few = len(np.unique(values)) <= min(FEW_CLASSES, max(2, len(values) // 2))
    return "classification" if whole and few else "regression"


def read_target(tables: Tables, source: Source, task: Task) -> tuple[np.ndarray, tuple[str, ...]]:
    """The targets ``[n]`` (0 or NaN where missing) and the names of the classes."""
    values = source.frame[tables.target]
    labelled = values.notna()
    if not labelled.any():
        raise source.error(~labelled, values, "no node has a target; fill in some.")
    if task == "regression":
        y = numbers(source, values)
        if len(np.unique(y[~np.isnan(y)])) < 2:
            raise source.error(labelled, values, "all targets are {cell}, so there is nothing to learn.")
        return y, ()
    check_blanks(source, values)
    classes = distinct_texts(values)
    if is_numeric(values):
        classes = tuple(pd.Series(classes).sort_values(key=pd.to_numeric, kind="stable"))
    if len(classes) < 2:
        raise source.error(labelled, values, "all nodes have the class {cell}, so there is nothing to learn.")
    if len(classes) == labelled.sum():
        reason = "every node has a different class; choose another target, or --task regression for numbers."
        raise source.error(labelled, values, reason)
    return np.maximum(find_texts(values, classes), 0), classes


def split_nodes(tables: Tables, source: Source, y: np.ndarray, strata: np.ndarray, index: int) -> np.ndarray:
    """The part of every node ``[n]``: 0 (training), 1 (validation), 2 (test) or -1 (none, as without a target).

    Random parts are drawn evenly from the ``strata`` ``[n]``, such as classes.
    """
    labelled = source.frame[tables.target].notna().to_numpy()
    generator = np.random.default_rng([index, 20220411])
    if tables.split_column:
        part = _split_by_column(tables, source, labelled)
        if not (part == VAL).any():
            share = tables.val / (tables.train + tables.val)
            nodes = np.flatnonzero(part == TRAIN)
            part[nodes] = np.where(_draw(strata[nodes], (1 - share, share), generator) == 0, TRAIN, VAL)
    elif tables.time_column:
        part = np.where(labelled, _split_by_time(tables, source, labelled), NONE)
    else:
        part, nodes = np.full(len(y), NONE), np.flatnonzero(labelled)
        part[nodes] = _draw(strata[nodes], (tables.train, tables.val, 1 - tables.train - tables.val), generator)
    for number, name in enumerate(PARTS):
        if not (part == number).any():
            raise _empty_part(tables, source, name, len(np.unique(strata[labelled])), int(labelled.sum()))
    train = part == TRAIN
    if len(np.unique(y[train])) < 2:
        reason = f"all {int(train.sum())} training nodes have the target {{cell}}, so there is nothing to learn"
        raise source.error(train, source.frame[tables.target], f"{reason}; choose another split.")
    return part


def _empty_part(tables: Tables, source: Source, part: str, classes: int, labelled: int) -> TableError:
    column = tables.split_column or tables.time_column or tables.target
    reason = f"there is no {part} node with a {tables.target!r}; give more nodes a target or choose another split."
    if column == tables.target and 3 * classes > labelled:  # fewer than three per class, on average
        reason = f"{labelled} nodes in {classes} classes are too few to have {part} nodes"
        reason += "; choose another target, or --task regression for numbers."
    return TableError(f"{source.path}, line 1, column {column!r}: {reason}")


def _draw(strata: np.ndarray, shares: tuple[float, ...], generator: np.random.Generator) -> np.ndarray:
    """Random parts with these shares of every stratum, as nearly as whole nodes allow.

    The nodes are sorted by stratum, shuffled within each, and divided by their relative position in it.
    """
    order = generator.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    start = np.searchsorted(strata[order], strata[order])
    size = np.searchsorted(strata[order], strata[order], side="right") - start
    position = (np.arange(len(order)) - start + 0.5) / size  # in the stratum, between 0 and 1
    part = np.empty(len(order), dtype=np.int64)
    part[order] = np.searchsorted(np.cumsum(shares)[:-1], position, side="right")
    return part


def _split_by_column(tables: Tables, source: Source, labelled: np.ndarray) -> np.ndarray:
    values = source.frame[tables.split_column]
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


def _split_by_time(tables: Tables, source: Source, labelled: np.ndarray) -> np.ndarray:
    """The earliest nodes train and the latest test; nodes of the same time are in the same part."""
    values = source.frame[tables.time_column]
    if is_numeric(values):
        time = numbers(source, values)
    else:
        dates = pd.to_datetime(values.astype(object), errors="coerce", format="ISO8601", utc=True)
        bad = dates.isna() & values.notna()
        if bad.any():
            raise source.error(bad, values, "{cell} is neither a number nor a date such as 2024-05-31.")
        time = np.where(dates.isna(), np.nan, dates.astype("int64").to_numpy(dtype=np.float64))
    unknown = np.isnan(time) & labelled
    if unknown.any():
        raise source.error(unknown, values, "a node with a target has no time; fill it in.")
    ordered = np.sort(time[labelled])
    shares = tables.train, tables.train + tables.val
    ends = [ordered[max(0, int(np.ceil(share * len(ordered))) - 1)] for share in shares]
    return np.searchsorted(ends, time, side="left")
