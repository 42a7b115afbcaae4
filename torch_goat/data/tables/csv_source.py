import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import pandas as pd

from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.raw import decode
from torch_goat.data.tables.source import MISSING, MOSTLY, Source

SEPARATORS: Final = (",", ";", "\t", "|")
_NAMES: Final = {"\t": "tabs", ";": "semicolons", "|": "bars"}
_THOUSANDS: Final = r"[+-]?[1-9]\d{0,2}(,\d{3})+"
_SAMPLE: Final = 1000  # rows by which it is guessed what is a number


class CSVSource(Source):
    """A CSV file, whose encoding and separator are found out.

    Args:
        path: The file, for messages.
        raw: Its bytes.
    """

    def __init__(self, path: Path, raw: bytes) -> None:
        text, encoding = decode(raw, path)
        self._text, self._separator = text, _separator(text)
        self._bytes = text.encode()
        notes = []
        if encoding not in ("utf-8-sig", "utf-16"):
            notes.append(f"{path} is not UTF-8; it was read as {encoding}.")
        if self._separator in _NAMES:
            notes.append(f"{path} is separated by {_NAMES[self._separator]}.")
        _, header = next(_records(text, self._separator), (1, []))
        super().__init__(path, (name.strip() for name in header), notes)

    def read(self, text: Collection[str], names: Collection[str] = ()) -> pd.DataFrame:
        known = {name: [""] if name in names else list(MISSING) for name in self.columns}
        sample = self._parse({"dtype": str, "nrows": _SAMPLE, "na_values": known})
        free = [name for name in self.columns if name not in text and name not in names]
        with_commas = [name for name in self.columns if name not in names and self._has_commas(sample[name])]
        if with_commas:
            sample = sample.apply(_with_points)
        as_text = [name for name in self.columns if name not in free or not _numeric(sample[name])]
        decimal = "," if with_commas else "."
        frame = self._parse(
            {"dtype": dict.fromkeys(as_text, str), "na_values": known, "decimal": decimal, "low_memory": False}
        )
        for name in with_commas:
            if name in text:  # what reads it may take it for numbers
                frame[name] = _with_points(frame[name])
        return frame

    def words_for_nothing(self, column: str) -> dict[str, int]:
        place = self.columns.index(column)
        cells = (row[place].strip() for _, row in islice(_records(self._text, self._separator), 1, None) if row[place:])
        return dict(Counter(cell for cell in cells if cell and cell in MISSING))

    def line(self, row: int) -> int:
        for number, (line, _) in enumerate(_records(self._text, self._separator)):
            if number == row + 1:
                return line
        return row + 2

    def _has_commas(self, column: pd.Series) -> bool:
        """Whether a column of texts is one of numbers with a decimal comma."""
        if self._separator == "," or _numeric(column) or not _numeric(_with_points(column)):
            return False
        commas = column[column.str.contains(",", na=False)]
        # Semicolons are there to make room for decimal commas; elsewhere 1,500 may be a thousand and a half.
        return self._separator == ";" or not commas.str.fullmatch(_THOUSANDS).all()

    def _parse(self, options: dict) -> pd.DataFrame:
        """The rows below the header, by pandas."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                return pd.read_csv(
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

    def _explain(self, reason: str) -> str:
        for line, cells in _records(self._text, self._separator):
            if len(cells) > len(self.columns):
                return (
                    f"{self.path}, line {line}: there are {len(cells)} cells, but the header has {len(self.columns)} "
                    "columns; quote cells that contain the separator."
                )
        found = re.search(r"inside string starting at row (\d+)", reason)
        if found:
            line = self.line(int(found[1]) - 1)
            return f"{self.path}, line {line}: a quotation mark is opened and never closed; close it."
        return f"{self.path}: the file cannot be read as a table ({' '.join(reason.split())}); write it as plain CSV."


def _separator(text: str) -> str:
    """The separator that cuts the first rows into the same number of cells, the more the better."""

    def cells(separator: str) -> int:
        try:
            rows = [row for _, row in islice(_records(text, separator), 20)]
        except csv.Error:
            return 0
        widths = {len(row) for row in rows}
        return widths.pop() if len(widths) == 1 else 0

    best = max(SEPARATORS, key=cells)
    if cells(best) > 1:
        return best
    header = text.lstrip().partition("\n")[0]
    return max(SEPARATORS, key=header.count)


def _records(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, the header first, with the line that it begins on."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    line = 1
    while True:
        try:
            row = next(reader)
        except (StopIteration, csv.Error):  # a cell of more than 128 KiB
            return
        if len(row) > 1 or (row and row[0].strip()):
            yield line, row
        line = reader.line_num + 1


def _with_points(column: pd.Series) -> pd.Series:
    return column.str.replace(",", ".", regex=False)


def _numeric(column: pd.Series) -> bool:
    """Whether most of the values are numbers."""
    values = column.dropna()
    return bool(pd.to_numeric(values, errors="coerce").notna().mean() >= MOSTLY) if len(values) else True
