"""What is to be learned: the target's kind, its values and its classes."""

import numpy as np
import pandas as pd

from torch_goat.data.tables.columns import check_blanks, is_numeric, numbers
from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.options import Tables, Task
from torch_goat.data.tables.source import Source, first_row, shown

FEW_CLASSES = 20  # so many different whole numbers are classes


def guess_task(target: pd.Series) -> Task:
    """Regression for numbers that are not whole or take many values, else classification."""
    known = target.dropna()
    if not is_numeric(target):
        return "classification"
    values = pd.to_numeric(known).to_numpy(dtype=np.float64)
    whole = bool((values == np.round(values)).all())
    few = len(np.unique(values)) <= min(FEW_CLASSES, max(2, len(values) // 2))
    return "classification" if whole and few else "regression"


def check_training(tables: Tables, source: Source, frame: pd.DataFrame, y: np.ndarray, train: np.ndarray) -> None:
    """Refuses a training part of which all targets are the same.

    Args:
        tables: How the tables are read.
        source: Where the nodes came from.
        frame: The nodes.
        y: Their targets ``[n]``.
        train: Which of them train ``[n]``.
    """
    if len(np.unique(y[train])) < 2:
        row = first_row(train)
        raise TableError(
            f"{source.where(row, tables.target)}: all {int(train.sum())} training nodes have the one target "
            f"{shown(frame[tables.target].iloc[row])}: nothing to learn; choose another split."
        )


def read_target(tables: Tables, source: Source, frame: pd.DataFrame, task: Task) -> tuple[np.ndarray, tuple[str, ...]]:
    """The targets ``[n]``, 0 or NaN where there is none, and the names of the classes."""
    values = frame[tables.target]
    if not values.notna().any():
        raise TableError(f"{source.where(0, tables.target)}: no node has a target; fill some in.")
    row = first_row(values.notna())
    if task == "regression":
        y = numbers(source, tables.target, values)
        if len(np.unique(y[~np.isnan(y)])) < 2:
            raise TableError(
                f"{source.where(row, tables.target)}: all targets are {shown(values.iloc[row])}: nothing to learn."
            )
        return y, ()
    check_blanks(source, tables.target, values)
    known = values.dropna().unique()
    order = pd.to_numeric(pd.Series(known)).argsort() if is_numeric(values) else pd.Series(known).argsort()
    classes = tuple(str(known[place]) for place in order)
    if len(classes) < 2:
        raise TableError(
            f"{source.where(row, tables.target)}: every node is of the one class {shown(classes[0])}: nothing to learn."
        )
    if len(classes) == values.notna().sum():
        raise TableError(
            f"{source.where(row, tables.target)}: every node has a class of its own; choose another target, or "
            "--task regression if it is a number."
        )
    return np.maximum(pd.Index(classes).get_indexer(values), 0), classes
