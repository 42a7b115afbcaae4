"""Columns that nearly duplicate the target, which are often computed from it or recorded after it."""

import shlex
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from torch_goat.data.tables.columns import parsed
from torch_goat.data.tables.schema import Column
from torch_goat.data.tables.source import Source

FEWEST: Final = 20  # nodes with a target, below which a column can match by chance
WRONG: Final = 0.01  # the largest share of nodes whose class a near duplicate does not tell
BASELINE: Final = 0.1  # the same, of the nodes that are not in the largest class
CORRELATION: Final = 0.99  # with a target that is a number
_SAMPLE: Final = 1000  # nodes on which most columns are ruled out


def near_duplicates(
    source: Source, columns: Sequence[Column], target: str, y: np.ndarray, classes: Sequence[str]
) -> list[str]:
    """A warning for every column that alone tells the target of almost all nodes that have one.

    A node's target is told by the *other* nodes with the same value, so that a column of unique names tells nothing; if
    the values are numbers and mostly distinct, by the node with the nearest number.
    """
    nodes = np.flatnonzero(source.frame[target].notna().to_numpy())
    if len(nodes) < FEWEST:
        return []
    sample = np.random.default_rng(0).permutation(nodes)[:_SAMPLE]
    warnings = []
    for column in columns:
        values = source.frame[column.name]
        cells = values.cat.codes.to_numpy() if column.kind == "category" else parsed(source, values, column.kind)
        tells = _tells_class if classes else _tells_number
        named = column.kind == "category"
        if tells(cells[sample], y[sample], named, 5) and (found := tells(cells[nodes], y[nodes], named, 1)):
            warnings.append(
                f"Warning: the column {column.name!r} nearly duplicates the target {target!r}: {found}. Check that it "
                f"is known before the target; --drop {shlex.quote(column.name)} leaves it out."
            )
    return warnings


def _tells_class(cells: np.ndarray, y: np.ndarray, named: bool, slack: int) -> str:
    """How a column duplicates the classes ``[n]``, within some times the limits; empty if it does not."""
    _, group, sizes = np.unique(cells, return_inverse=True, return_counts=True)  # NaN is a value too
    if named or 2 * len(sizes) <= len(cells):
        counts = np.zeros((len(sizes), int(y.max()) + 2))  # and a class without nodes, if there is only one
        np.add.at(counts, (group, y), 1)
        second, first = np.sort(counts, axis=1)[:, -2:].T
        other = np.where(y == counts.argmax(axis=1)[group], second[group], first[group])
        right = counts[group, y] - 1 > other  # most of the other nodes with this value
    else:
        order = np.argsort(cells)
        gap = np.nan_to_num(np.diff(cells[order], prepend=-np.inf, append=np.inf), nan=np.inf)
        nearest = np.arange(len(order)) + np.where(gap[:-1] <= gap[1:], -1, 1)
        right = y[order] == y[order[np.clip(nearest, 0, len(order) - 1)]]
    wrong, baseline = int((~right).sum()), len(y) - int(np.bincount(y).max())
    if wrong > slack * WRONG * len(y) or wrong > slack * BASELINE * baseline:
        return ""
    return f"it alone tells the class of {100 * right.mean():.1f} % of the nodes"


def _tells_number(cells: np.ndarray, y: np.ndarray, named: bool, slack: int) -> str:
    """How a column duplicates numbers ``[n]``, within some times the limits; empty if it does not."""
    least = 1 - slack * (1 - CORRELATION)
    if named:  # the mean of the other nodes with this value
        _, group, sizes = np.unique(cells, return_inverse=True, return_counts=True)
        others = (np.bincount(group, y)[group] - y) / np.maximum(1, sizes[group] - 1)
        error = np.where(sizes[group] > 1, y - others, y - y.mean())
        found = float(np.sqrt(max(0.0, 1 - (error**2).sum() / max(((y - y.mean()) ** 2).sum(), 1e-300))))
    else:
        pairs = pd.DataFrame({"cells": cells, "y": y})[~np.isnan(cells)]
        if len(pairs) < 0.9 * len(y) or pairs["cells"].nunique() < 2 or pairs["y"].nunique() < 2:
            return ""
        found = max(abs(float(frame.corr().iloc[0, 1])) for frame in (pairs, pairs.rank()))
    return f"their correlation is {found:.4f}" if found >= least else ""
