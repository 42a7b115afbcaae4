"""The targets of the nodes."""

import numpy as np
import pandas as pd

from torch_goat.data.tables.columns import (
    check_blanks,
    distinct_texts,
    find_texts,
    floats,
    has_leading_zeros,
    is_numeric,
    numbers,
)
from torch_goat.data.tables.options import Tables, Task
from torch_goat.data.tables.source import Source, TableError

FEW_CLASSES = 20  # up to so many distinct integers are classes


def guess_task(tables: Tables, source: Source) -> Task:
    """Regression for numbers that are fractional or take many values, else classification."""
    target = source.frame[tables.target]
    if tables.task:
        return tables.task
    if tables.target in source.texts or has_leading_zeros(target) or not is_numeric(target):
        return "classification"
    values = floats(target.dropna())
    whole = bool((values == np.round(values)).all())
    few = len(np.unique(values)) <= min(FEW_CLASSES, max(2, len(values) // 2))
    return "classification" if whole and few else "regression"


def read_target(tables: Tables, source: Source, task: Task) -> tuple[np.ndarray, tuple[str, ...]]:
    """The targets ``[n]`` (-1 or NaN where missing) and the names of the classes."""
    values = source.frame[tables.target]
    labelled = values.notna()
    if not labelled.any():
        raise source.error(~labelled, values, "no node has a target; fill in some.")
    if task == "regression":
        _check_positive(tables, source, ())
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
    if _check_positive(tables, source, classes) == 0:
        classes = classes[::-1]
    return find_texts(values, classes), classes


def _check_positive(tables: Tables, source: Source, classes: tuple[str, ...]) -> int | None:
    """The place of the positive class, if one was chosen; there are no classes in a regression."""
    if tables.positive is None:
        return None
    where, positive = f"{source.path}, column {tables.target!r}", tables.positive
    if len(classes) != 2:
        what = f"{len(classes)} classes" if classes else "numbers"
        raise TableError(f"{where}: a positive class ({positive!r}) needs a target with two classes, not {what}.")
    place = int(find_texts(pd.Series([positive], dtype="category"), classes)[0])
    if place < 0:
        raise TableError(f"{where}: the positive class must be {classes[0]!r} or {classes[1]!r}, got {positive!r}.")
    return place
