"""Columns of a table as input features of a network."""

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

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
        columns.append(Column(name, "category", categories=distinct_texts(seen), missing=bool(seen.isna().any())))
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
            code = find_texts(values, column.categories)
            rows = np.flatnonzero(code >= 0)
            out[rows, place + code[rows]] = 1
            unknown = (code < 0) & ~missing
            if unknown.any() and column.categories and not len(rows):
                some = ", ".join(map(shown, values[unknown].unique()[:3]))
                raise source.error(
                    unknown,
                    values,
                    f"none of the values, such as {some}, was seen in training, where there were "
                    f"{', '.join(map(shown, column.categories[:3]))}; correct them, or leave the cells empty.",
                )
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
    parsed = floats(values)
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
    seen: dict[str, str] = {}
    for text in values.dropna().unique():
        other = seen.setdefault(text.strip(), text)
        if other != text:
            raise source.error(
                values == text, values, f"{{cell}} differs from {shown(other)} only by blanks; spell both alike."
            )


def is_numeric(values: pd.Series, share: float = 1.0) -> bool:
    """Whether at least this share of the known values are numbers."""
    known = values.notna()
    return is_numeric_dtype(values) or not known.any() or bool(np.mean(~np.isnan(floats(values[known]))) >= share)


def floats(values: pd.Series) -> np.ndarray:
    """A column as floats ``[n]``, NaN where it is missing or not a number."""
    if is_numeric_dtype(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    texts = pd.Series(values.cat.categories, dtype=object)
    parsed = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.append(parsed, np.nan)[values.cat.codes]  # the code of a missing value is -1


def distinct_texts(values: pd.Series) -> tuple[str, ...]:
    """The distinct texts of a column in order; of several spellings of a value, the first."""
    texts = sorted(values.dropna().unique())
    spell = _spelling(texts)
    found = {spell(text): text for text in reversed(texts)}
    return tuple(found[value] for value in sorted(found))


def find_texts(values: pd.Series, known: Sequence[str]) -> np.ndarray:
    """The place of each text of a column in ``known`` ``[n]``, in any spelling; -1 for others and missing values."""
    spell = _spelling(known)
    places = {spell(text): place for place, text in enumerate(known)} | {text: n for n, text in enumerate(known)}
    found = [places.get(text, places.get(spell(text), -1)) for text in values.cat.categories]
    return np.array([*found, -1])[values.cat.codes]


def _spelling(texts: Collection[str]) -> Callable[[str], str]:
    """One spelling of the same boolean, number or date, which programs write differently, if all texts are such.

    Texts that are the same number stay apart, as ``1.1`` and ``1.10`` may be versions.
    """
    for pattern, form in _SPELLINGS.items():

        def spell(text: str, fullmatch: Any = re.compile(pattern).fullmatch, form: Any = form) -> str:
            found = fullmatch(text)
            return str(form(*found.groups())) if found else text

        apart = form is not _number or len({*map(spell, texts)}) == len(texts)
        if texts and apart and all(re.fullmatch(pattern, text) for text in texts):
            return spell
    return str


def _number(whole: str, fraction: str | None) -> str:
    return f"{whole}.{fraction}" if fraction else whole


def _date(day: str, time: str | None, seconds: str | None, fraction: str | None, zone: str | None) -> str:
    zone = (zone or "").replace("Z", "+0000").replace(":", "")
    return f"{day} {time or '00:00'}:{seconds or '00'}.{fraction or ''}{zone}"


_SPELLINGS: Final[dict[str, Callable[..., str]]] = {
    "(?i)(true|false)": str.lower,
    r"([+-]?(?:0|[1-9][0-9]*))(?:\.([0-9]*?)0*)?": _number,
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?::(\d\d)(?:\.(\d*?)0*)?)?(Z|[+-]\d\d:?\d\d)?)?": _date,
}


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
