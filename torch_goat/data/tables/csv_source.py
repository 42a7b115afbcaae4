import csv
import io
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from torch_goat.data.tables.columns import MOSTLY, has_leading_zeros, is_numeric
from torch_goat.data.tables.source import MISSING, Source, TableError, as_texts, decode

SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_THOUSANDS: Final = r"[+-]?[1-9]\d{0,2}(,\d{3})+"
_SAMPLE: Final = 1000  # rows from which numeric columns are detected


class CSVSource(Source):
    """A CSV file, whose encoding and separator are detected."""

    def __init__(self, path: Path, raw: bytes) -> None:
        text, encoding = decode(raw, path)
        self._separator = _separator(text)
        self._bytes = raw if encoding == "utf-8-sig" else text.encode()
        notes = []
        if encoding not in ("utf-8-sig", "utf-16"):
            notes.append(f"{path} is not UTF-8; it was read as {encoding}.")
        if self._separator != ",":
            notes.append(f"{path} is separated by {SEPARATORS[self._separator]}.")
        _, header = next(_records(text, self._separator), (1, []))
        super().__init__(path, (name.strip() for name in header), notes)

    def read(self, text: Collection[str], names: Collection[str] = ()) -> pd.DataFrame:
        missing = {name: [""] if name in names else list(MISSING) for name in self.columns}
        sample = self._parse(dtype=object, nrows=_SAMPLE, na_values=missing)
        commas = [name for name in self.columns if name not in names and self._has_decimal_commas(sample[name])]
        if commas:
            sample = pd.DataFrame({name: _with_points(sample[name]) for name in sample})
        numeric = [n for n in self.columns if n not in text and n not in names and is_numeric(sample[n], MOSTLY)]
        if numeric and self._may_have_leading_zeros():  # which numbers would lose
            texts = self._parse(dtype=object, usecols=numeric)
            numeric = [name for name in numeric if not has_leading_zeros(texts[name])]
        frame = self._parse(
            dtype={name: object for name in self.columns if name not in numeric},
            na_values=missing,
            decimal="," if commas else ".",
            low_memory=False,
        )
        for name in commas:
            if name in text:  # a target or time that may turn out to be numeric
                frame[name] = _with_points(frame[name])
        if frame[self.columns[-1]].isna().any():
            self._note_short_rows()
        return frame

    def _note_short_rows(self) -> None:
        """Adds a note on rows that end before the last column, such as those of a file that was cut off."""
        short = [(line, len(cells)) for line, cells in self._records() if len(cells) < len(self.columns)]
        if short:
            (line, found), rows = short[0], f"{len(short)} such row{'s' if len(short) > 1 else ''}"
            self.notes += (
                f"{self.path}, line {line}: found {found} cells, but the header has {len(self.columns)} columns; the "
                f"others are read as missing ({rows}).",
            )

    def missing_words(self, column: str) -> dict[str, int]:
        cells = self._parse(dtype=object, na_values=[""], usecols=[column])[column].str.strip()
        return {str(word): int(count) for word, count in cells[cells.isin(MISSING[1:])].value_counts().items()}

    def line(self, row: int) -> int:
        lines = (line for line, _ in self._records())
        return next(islice(lines, row + 1, None), row + 2)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        return _records(self._bytes.decode("utf-8-sig"), self._separator)

    def _has_decimal_commas(self, column: pd.Series) -> bool:
        if self._separator == "," or is_numeric(column, MOSTLY) or not is_numeric(_with_points(column), MOSTLY):
            return False
        with_comma = column[column.str.contains(",", na=False)]
        # Semicolons are used to allow decimal commas; with other separators 1,500 may mean 1500 or 1.5.
        return self._separator == ";" or not with_comma.str.fullmatch(_THOUSANDS).all()

    def _may_have_leading_zeros(self) -> bool:
        """Whether anything in the file looks like a number with leading zeros: a quick search of all bytes."""
        start = rf'[{re.escape(self._separator)}\r\n "]'  # of a cell; the header is before the first one
        return re.search(rf"{start}[+-]?0\d".encode(), self._bytes) is not None

    def _parse(self, **options: Any) -> pd.DataFrame:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = pd.read_csv(
                    io.BytesIO(self._bytes),
                    sep=self._separator,
                    header=0,
                    names=list(self.columns),
                    index_col=False,
                    keep_default_na=False,
                    skipinitialspace=True,
                    encoding="utf-8-sig",
                    **options,
                )
        except (pd.errors.ParserError, pd.errors.EmptyDataError, pd.errors.ParserWarning) as error:
            raise TableError(self._explain(str(error))) from None
        for name, column in frame.items():
            if is_bool_dtype(column) or not is_numeric_dtype(column):
                frame[name] = as_texts(column)
        return frame

    def _explain(self, reason: str) -> str:
        for line, cells in self._records():
            if len(cells) > len(self.columns):
                return (
                    f"{self.path}, line {line}: found {len(cells)} cells, but the header has {len(self.columns)} "
                    "columns; quote cells that contain the separator."
                )
        found = re.search(r"inside string starting at row (\d+)", reason)
        if found:
            line = self.line(int(found[1]) - 1)
            return f"{self.path}, line {line}: a quotation mark is never closed; close it."
        return f"{self.path}: cannot be parsed as a table ({' '.join(reason.split())}); write it as plain CSV."


def _separator(text: str) -> str:
    """The separator that splits the first rows into the largest equal number of cells."""

    def cells(separator: str) -> int:
        widths = {len(row) for _, row in islice(_records(text, separator), 20)}
        return widths.pop() if len(widths) == 1 else 0

    best = max(SEPARATORS, key=cells)
    if cells(best) > 1:
        return best
    return max(SEPARATORS, key=text.lstrip().partition("\n")[0].count)


def _records(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Every non-blank row, the header first, with the line it begins on."""
    lines = (found[0] for found in re.finditer(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", text))  # copies no more than a line
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    line = 1
    with suppress(csv.Error):  # a cell of more than 128 KiB
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                yield line, row
            line = reader.line_num + 1


def _with_points(column: pd.Series) -> pd.Series:
    return as_texts(column.str.replace(",", ".", regex=False))
