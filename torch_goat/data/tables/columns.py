"""Columns of a table as input features of a network."""

import shlex
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from torch_goat.data.tables.schema import Column
from torch_goat.data.tables.source import Source, TableError, first_row, shown

MOST_CATEGORIES: Final = 100
_FEW: Final = 10  # up to so many distinct texts are categories, however few rows there are
MOSTLY: Final = 0.8  # the fraction of numbers from which on a column counts as numeric


def fit_columns(
    source: Source, names: Sequence[str], train: np.ndarray, categories: Collection[str]
) -> tuple[Column, ...]:
    """Detects the kind of some columns from all rows, and computes their statistics on the training rows ``[n]``.

    Columns in ``categories`` hold categories even if they look numeric.
    """
    columns, texts = [], []
    for name in names:
        values = source.frame[name]
        if not values.notna().any():
            continue
        if name not in categories and is_numeric(values, MOSTLY):  # a few other cells are errors
            columns.append(_fit_number(name, numbers(source, values)[train]))
            continue
        distinct = values.nunique()
        many = distinct > _FEW and 2 * distinct > values.count()
        if distinct > MOST_CATEGORIES or (many and name not in categories):
            texts.append(name)
            continue
        check_blanks(source, values)
        seen = values[train]
        known_texts = tuple(sorted(_texts(seen.dropna()).unique()))
        columns.append(Column(name, "category", categories=known_texts, missing=bool(seen.isna().any())))
    if texts:
        values = source.frame[texts[0]]
        raise TableError(
            f"{source.where(first_row(values.notna()), texts[0])}: {values.nunique()} distinct texts in "
            f"{values.count()} rows look like free text, not categories; drop the column "
            f"({' '.join(f'--drop {shlex.quote(name)}' for name in texts)}) or replace it by numbers."
        )
    return tuple(columns)


def encode(source: Source, columns: Sequence[Column], notes: list[str]) -> np.ndarray:
    """The columns as network input ``[n, width]``; remarks on values unseen in training are appended to ``notes``."""
    out = np.zeros((len(source.frame), sum(column.width for column in columns)), dtype=np.float32)
    place = 0
    for column in columns:
        values = source.frame[column.name]
        missing = values.isna().to_numpy()
        if column.kind == "category":
            code = pd.Index(column.categories).get_indexer(_texts(values))
            rows = np.flatnonzero(code >= 0)
            out[rows, place + code[rows]] = 1
            unknown = (code < 0) & ~missing
            if unknown.any():
                row = first_row(unknown)
                notes.append(
                    f"{source.where(row, column.name)}: the category {shown(values.iloc[row])} was not seen in "
                    f"training and is encoded as none ({int(unknown.sum())} in total)."
                )
        else:
            known = np.where(missing, column.mean, numbers(source, values))
            out[:, place] = known if column.kind == "flag" else (known - column.mean) / column.scale
        if column.missing:
            out[missing, place + column.width - 1] = 1
        elif missing.any():
            notes.append(
                f"{source.where(first_row(missing), column.name)}: a value is missing, although none was in training; "
                f"it was filled in ({int(missing.sum())} in total)."
            )
        place += column.width
    return out


def numbers(source: Source, values: pd.Series) -> np.ndarray:
    """A column as floats ``[n]``, NaN where missing; raises at the first cell that is not a finite number."""
    if is_numeric_dtype(values) and not is_bool_dtype(values):
        parsed = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        parsed = pd.to_numeric(_texts(values), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    known = values.notna().to_numpy()
    bad = (np.isnan(parsed) & known) | np.isinf(parsed) | (np.abs(parsed) > 1e30)
    if bad.any():
        reason = "{cell} is not a valid number, but the column is numeric; correct it or leave the cell empty."
        if 2 * (bad & known).sum() > known.sum():
            reason = "{cell} is not a number, like most of the column; use numbers, such as the days since some date."
        raise source.error(bad, values, reason)
    return parsed


def check_blanks(source: Source, values: pd.Series) -> None:
    """Refuses categories that differ only by whitespace, such as ``"yes"`` and ``"yes "``."""
    texts = _texts(values)
    seen: dict[str, str] = {}
    for text in texts.dropna().unique():
        other = seen.setdefault(text.strip(), text)
        if other != text:
            raise source.error(
                texts == text, texts, f"{{cell}} differs from {shown(other)} only by blanks; spell both alike."
            )


def is_numeric(values: pd.Series, share: float = 1.0) -> bool:
    """Whether at least this share of the known values are numbers."""
    if is_numeric_dtype(values):
        return not is_bool_dtype(values)
    known = values.dropna()
    return known.empty or bool(pd.to_numeric(_texts(known), errors="coerce").notna().mean() >= share)


def _fit_number(name: str, values: np.ndarray) -> Column:
    missing = bool(np.isnan(values).any())
    known = values[~np.isnan(values)]
    if not len(known):
        return Column(name, "number", missing=missing)
    mean, scale = float(known.mean()), float(known.std())
    if np.isin(known, (0, 1)).all():
        return Column(name, "flag", mean=mean, missing=missing)
    if scale <= 1e-14 * max(1.0, abs(mean)):
        mean, scale = float(known[0]), 1.0  # a constant, whose mean has a rounding error
    return Column(name, "number", mean=mean, scale=scale, missing=missing)


def _texts(values: pd.Series) -> pd.Series:
    return values.map(str, na_action="ignore").astype(object)
