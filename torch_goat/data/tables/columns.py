"""Columns of a table as input features of a network."""

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from torch_goat.data.tables.schema import Column
from torch_goat.data.tables.source import Problems, Source, first_row, shown

MOST_CATEGORIES: Final = 100
_FEW: Final = 10  # up to so many distinct texts are categories, however few rows there are
_CHANCE: Final = 10  # up to so many values may all be new categories; more are taken for those of another column
MOSTLY: Final = 0.8  # the fraction of numbers or dates from which on a column counts as such
_LEADING_ZERO: Final = r"\s*[+-]?0[0-9]+(\.[0-9]*)?\s*"
_DATE: Final = r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?::(\d\d)(?:\.(\d*?)0*)?)?(Z|[+-]\d\d:?\d\d)?)?"
_TIME: Final = r"()((?:[01]?\d|2[0-3]):[0-5]\d)(?::([0-5]\d)(?:\.(\d*?)0*)?)?()"  # the groups of _DATE
#: For dates and times of day: the pattern of a text, what to put before it to get a date, and the units in a day.
_MOMENTS: Final[dict[str, tuple[str, str, int]]] = {"date": (_DATE, "", 1), "time": (_TIME, "1970-01-01T", 24)}


def fit_columns(
    source: Source, names: Sequence[str], train: np.ndarray, categories: Collection[str]
) -> tuple[Column, ...]:
    """Detects the kind of some columns from all rows, and computes their statistics on the training rows ``[n]``.

    If no training row has a value, all rows are used, as for the prices of products if only customers have a target.
    Columns in ``categories`` hold categories even if they look numeric.
    """
    columns, texts, problems = [], [], Problems()
    for name in names:
        values = source.frame[name]
        if not values.notna().any():
            continue
        rows = train if values[train].notna().any() else np.ones_like(train)
        with problems:
            kind = _kind(source, name, categories)
            if kind != "category":  # a few other cells are errors
                columns.append(_fit_number(name, kind, parsed(source, values, kind)[rows]))
                continue
            distinct = values.nunique()
            many = distinct > _FEW and 2 * distinct > values.count()
            if distinct > MOST_CATEGORIES or (many and name not in categories):
                texts.append(name)
                continue
            check_blanks(source, values)
            seen = values[rows]
            columns.append(Column(name, "category", categories=distinct_texts(seen), missing=bool(seen.isna().any())))
    if texts:
        values = source.frame[texts[0]]
        drop = " ".join(f"--drop {shlex.quote(name)}" for name in texts)
        advice = f"drop the column ({drop}) or replace it by numbers."
        if values.nunique() <= MOST_CATEGORIES:
            keep = f"keep it as categories (--category {shlex.quote(texts[0])})"
            advice = f"drop the column ({drop}), {keep} or replace it by numbers."
        if is_numeric(values, MOSTLY):
            advice = f"drop the column ({drop}), or store it as numbers, which texts and leading zeros are not."
            if texts[0] not in source.texts and not has_leading_zeros(values):
                advice = f"drop the column ({drop}), or leave out --category {shlex.quote(texts[0])} to read numbers."
        elif texts[0] in source.texts and (moment := _moment(values)):
            advice = f"drop the column ({drop}), or store it as {moment}s instead of texts."
        problems.found.append(
            f"{source.where(first_row(values.notna()), texts[0])}: {values.nunique()} distinct texts in "
            f"{values.count()} rows look like free text, not categories; {advice}"
        )
    problems.check()
    return tuple(columns)


def _kind(source: Source, name: str, categories: Collection[str]) -> Literal["number", "category", "date", "time"]:
    """The kind of a column, from its type in the file and from all of its values."""
    values = source.frame[name]
    if is_numeric_dtype(values):
        return "number"
    if name in categories or (name in source.texts and source.has_dates) or has_leading_zeros(values):
        return "category"
    if name not in source.texts and is_numeric(values, MOSTLY):
        return "number"
    return _moment(values) or "category"


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
            if unknown.sum() > _CHANCE and column.categories and not len(rows):
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
            known = np.where(missing, column.mean, parsed(source, values, column.kind))
            out[:, place] = known if column.kind == "flag" else (known - column.mean) / column.scale
        if column.missing:
            out[missing, place + column.width - 1] = 1
        elif missing.any():
            where = source.where(first_row(missing), column.name)
            notes.append(
                f"{where}: a value is missing, although every training node had one; it was filled in "
                f"({int(missing.sum())} in total)."
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


def parsed(source: Source, values: pd.Series, kind: str) -> np.ndarray:
    """A column of numbers, flags, dates or times of day as floats ``[n]``."""
    if kind not in _MOMENTS:
        return numbers(source, values)
    found = _measured(values, kind)
    bad = np.isnan(found) & values.notna().to_numpy()
    if bad.any():
        reason = f"{{cell}} is not a valid {kind}, but the column holds {kind}s; correct it or leave the cell empty."
        raise source.error(bad, values, reason)
    return found


def times(source: Source, values: pd.Series) -> np.ndarray:
    """A column of numbers or dates ``[n]``, NaN or NaT where missing; columns of integers are not rounded."""
    if is_numeric(values):
        rounded = numbers(source, values)
        exact = pd.to_numeric(values if is_numeric_dtype(values) else values.astype(object)).to_numpy()
        return exact if exact.dtype.kind in "iu" else rounded
    dates = pd.to_datetime(values.astype(object), errors="coerce", format="ISO8601", utc=True)
    bad = dates.isna() & values.notna()
    if bad.any():
        neither = bad & np.isnan(floats(values))
        bad = neither if neither.any() else bad
        raise source.error(bad, values, "{cell} is neither a number nor a date such as 2024-05-31.")
    return dates.dt.tz_localize(None).to_numpy()


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


def has_leading_zeros(values: pd.Series) -> bool:
    """Whether some cell is a number with leading zeros, as codes have: ``01067``."""
    return not is_numeric_dtype(values) and any(map(re.compile(_LEADING_ZERO).fullmatch, values.cat.categories))


def _moment(values: pd.Series) -> Literal["date", "time"] | None:
    """Whether most known values are dates, with a time or without, or all of them times of day, as in ISO 8601.

    If some are no times of day, such as 26:30, the others may be durations.
    """
    known = values.dropna()
    for kind, share in (("date", MOSTLY), ("time", 1.0)):
        if len(known) and np.mean(~np.isnan(_measured(known, kind))) >= share:
            return kind  # type: ignore[return-value]
    return None


def _measured(values: pd.Series, kind: str) -> np.ndarray:
    """Dates as days since 1970-01-01 ``[n]``, where no time zone means UTC, or times of day as hours since midnight.

    NaN where a value is missing or is none.
    """
    if is_numeric_dtype(values):
        return np.full(len(values), np.nan)
    pattern, date, per_day = _MOMENTS[kind]
    texts = pd.Series(values.cat.categories, dtype=object)
    moments = date + texts.where(texts.map(lambda text: bool(re.fullmatch(pattern, text))).astype(bool))
    found = pd.to_datetime(moments, errors="coerce", format="ISO8601", utc=True)
    micros = found.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    numbers = np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / (86400e6 / per_day))
    return np.append(numbers, np.nan)[values.cat.codes]


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
    """One spelling of the same boolean, number, date or time, which programs write differently, if all texts are such.

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
    return f"{day} {(time or '00:00').zfill(5)}:{seconds or '00'}.{fraction or ''}{zone}"


_SPELLINGS: Final[dict[str, Callable[..., str]]] = {
    "(?i)(true|false)": str.lower,
    r"([+-]?(?:0|[1-9][0-9]*))(?:\.([0-9]*?)0*)?": _number,
    _DATE: _date,
    _TIME: _date,
}


def _fit_number(name: str, kind: Literal["number", "date", "time"], values: np.ndarray) -> Column:
    missing = bool(np.isnan(values).any())
    known = values[~np.isnan(values)]
    mean, scale = float(known.mean()), float(known.std())
    if kind == "number" and np.isin(known, (0, 1)).all():
        return Column(name, "flag", mean=mean, missing=missing)
    if scale <= 1e-14 * max(1.0, abs(mean)):
        mean, scale = float(known[0]), 1.0  # a constant, whose mean has a rounding error
    return Column(name, kind, mean=mean, scale=scale, missing=missing)
