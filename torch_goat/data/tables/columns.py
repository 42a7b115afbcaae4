"""Columns of a table as the input of a network."""

import shlex
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.schema import Column
from torch_goat.data.tables.source import MOSTLY, Source, first_row, shown

MOST_CATEGORIES: Final = 100
_FEW: Final = 10  # so many different texts are categories, however few rows there are


def fit_columns(
    source: Source, frame: pd.DataFrame, names: Sequence[str], train: np.ndarray, categories: Collection[str]
) -> tuple[Column, ...]:
    """Finds out what the columns are, from all rows, and their statistics, from the training part.

    Args:
        source: Where the table came from.
        frame: The table.
        names: The columns.
        train: Which rows are the training part ``[n]``.
        categories: Columns that hold categories, whatever they look like.
    """
    columns, texts = [], []
    for name in names:
        values = frame[name]
        if not values.notna().any():
            continue  # nothing in it
        if name in categories or not _is_number(source, name, values):
            known = values.dropna()
            distinct = known.nunique()
            many = distinct > _FEW and 2 * distinct > len(known)
            if distinct > MOST_CATEGORIES or (many and name not in categories):
                texts.append((name, distinct))
                continue
            check_blanks(source, name, values)
            columns.append(_category(name, values[train]))
        else:
            columns.append(_number(name, numbers(source, name, values)[train]))
    if texts:
        name, distinct = texts[0]
        row = first_row(frame[name].notna())
        hints = " ".join(f"--drop {shlex.quote(text)}" for text, _ in texts)
        raise TableError(
            f"{source.where(row, name)}: {distinct} different texts in {int(frame[name].notna().sum())} rows are not "
            f"categories but free text, which a network cannot read; leave it out ({hints}) or replace it by numbers."
        )
    return tuple(columns)


def encode(
    source: Source, frame: pd.DataFrame, columns: Sequence[Column], notes: list[str] | None = None
) -> np.ndarray:
    """The columns as the network reads them ``[n, width]``.

    Args:
        source: Where the table came from.
        frame: The table.
        columns: The columns with their statistics.
        notes: Takes up what is worth saying of values that training did not see.
    """
    out = np.zeros((len(frame), sum(column.width for column in columns)), dtype=np.float32)
    notes = [] if notes is None else notes
    place = 0
    for column in columns:
        values = frame[column.name]
        gone = values.isna().to_numpy()
        if column.kind == "category":
            code = pd.Index(column.categories).get_indexer(_texts(values))
            rows = np.flatnonzero(code >= 0)
            out[rows, place + code[rows]] = 1
            unknown = (code < 0) & ~gone
            if unknown.any():
                row = first_row(unknown)
                notes.append(
                    f"{source.where(row, column.name)}: {shown(values.iloc[row])} is a category that training did not "
                    f"see; it counts as none of them ({int(unknown.sum())} in all)."
                )
        else:
            known = numbers(source, column.name, values)
            known = np.where(gone, column.mean, known)
            out[:, place] = known if column.kind == "flag" else (known - column.mean) / column.scale
        if column.missing:
            out[gone, place + column.width - 1] = 1
        elif gone.any():
            row = first_row(gone)
            notes.append(
                f"{source.where(row, column.name)}: a value is missing, which training did not see; "
                f"it was filled in ({int(gone.sum())} in all)."
            )
        place += column.width
    return out


def numbers(source: Source, name: str, values: pd.Series) -> np.ndarray:
    """A column as numbers, NaN where there is none ``[n]``."""
    if is_numeric_dtype(values) and not is_bool_dtype(values):
        parsed = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        parsed = pd.to_numeric(_texts(values), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = (np.isnan(parsed) & values.notna().to_numpy()) | np.isinf(parsed) | (np.abs(parsed) > 1e30)
    if bad.any():
        row = first_row(bad)
        known = values.notna().to_numpy()
        if 2 * (bad & known).sum() > known.sum():
            raise TableError(
                f"{source.where(row, name)}: {shown(values.iloc[row])} is not a number, and most of the column are "
                "none; give a column of numbers, for dates the days since one of them."
            )
        raise TableError(
            f"{source.where(row, name)}: {shown(values.iloc[row])} is not a number that can be used, but the column is "
            f"one of numbers; correct it or leave the cell empty."
        )
    return parsed


def check_blanks(source: Source, name: str, values: pd.Series) -> None:
    """Refuses categories that nobody can tell apart, as ``yes`` and ``yes`` with a blank after it."""
    texts = _texts(values)
    seen: dict[str, str] = {}
    for text in texts.dropna().unique():
        other = seen.setdefault(text.strip(), text)
        if other != text:
            raise TableError(
                f"{source.where(first_row(texts == text), name)}: {shown(text)} differs from {shown(other)} by blanks "
                "alone; write both alike."
            )


def is_numeric(values: pd.Series) -> bool:
    """Whether all that is there are numbers."""
    if is_numeric_dtype(values):
        return not is_bool_dtype(values)
    return bool(pd.to_numeric(_texts(values.dropna()), errors="coerce").notna().all())


def _is_number(source: Source, name: str, values: pd.Series) -> bool:
    """Whether a column is one of numbers; one that almost is has a mistake in it."""
    if is_numeric_dtype(values):
        return not is_bool_dtype(values)
    known = values.dropna()
    share = pd.to_numeric(_texts(known), errors="coerce").notna().mean()
    if MOSTLY <= share < 1:
        numbers(source, name, values)
    return bool(share == 1)


def _number(name: str, values: np.ndarray) -> Column:
    gone = np.isnan(values)
    known = values[~gone]
    if not len(known):
        return Column(name, "number", missing=bool(gone.any()))
    mean, scale = float(known.mean()), float(known.std())
    if np.isin(known, (0, 1)).all():
        return Column(name, "flag", mean=mean, missing=bool(gone.any()))
    if scale <= 1e-14 * max(1.0, abs(mean)):
        mean, scale = float(known[0]), 1.0  # the mean itself is off by what rounding left
    return Column(name, "number", mean=mean, scale=scale, missing=bool(gone.any()))


def _category(name: str, values: pd.Series) -> Column:
    known = sorted(_texts(values.dropna()).unique())
    return Column(name, "category", categories=tuple(known), missing=bool(values.isna().any()))


def _texts(values: pd.Series) -> pd.Series:
    return values.map(str, na_action="ignore").astype(object)
