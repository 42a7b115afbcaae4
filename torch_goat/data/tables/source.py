"""A table before it is read: what columns it has, and where in its file a cell stands."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from torch_goat.data.tables.errors import TableError
from torch_goat.settings import nearest

if TYPE_CHECKING:
    from pandas import DataFrame

MOSTLY: Final = 0.8  # the share of numbers that makes a column one of numbers, with mistakes in it
_LONG: Final = 80  # letters of a cell that are shown
MISSING: Final = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?")


def first_row(mask: Any) -> int:
    """The first row of which something is so.

    Args:
        mask: Of which rows it is, as an array or a series ``[n]``.
    """
    return int(np.flatnonzero(mask)[0])


def shown(cell: object) -> str:
    """A cell in a message: quoted, and cut if it is long."""
    text = str(cell)
    return repr(text) if len(text) <= _LONG else f"{text[:_LONG]!r}..."


class Source(ABC):
    """A table in a file.

    Args:
        path: The file.
        columns: Its columns.
        notes: What was found out about it that is worth saying.
    """

    def __init__(self, path: Path, columns: Iterable[str], notes: Iterable[str] = ()) -> None:
        self.path, self.columns, self.notes = path, tuple(columns), tuple(notes)
        for number, column in enumerate(self.columns, start=1):
            if not column:
                raise TableError(f"{path}, line 1: column {number} has no name; give it one in the header.")
            if not column.isprintable() or len(column) > _LONG:
                raise TableError(
                    f"{path}, line 1: {shown(column)} is no name for column {number}; close its quotation mark or "
                    "rename it."
                )
            if self.columns.index(column) != number - 1:
                raise TableError(f"{path}, line 1: there are two columns {column!r}; rename one of them.")

    def words_for_nothing(self, column: str) -> dict[str, int]:
        """The words of a column that count as no value, and how often each is there; none in files with types."""
        return {}

    @abstractmethod
    def read(self, text: Collection[str], names: Collection[str] = ()) -> "DataFrame":
        """The table: columns of numbers as numbers, all others as text, ``None`` where there is no value.

        Args:
            text: Columns to be read as text, numbers or not.
            names: Columns of text in which only an empty cell has no value, so that a node may be called ``NA``.
        """

    @abstractmethod
    def line(self, row: int) -> int:
        """The line of a row (from 0) in the file, or its number where files have no lines."""

    def where(self, row: int, column: str = "") -> str:
        """``"nodes.csv, line 7, column 'age'"``."""
        return f"{self.path}, line {self.line(row)}" + (f", column {column!r}" if column else "")

    def check(self, column: str, what: str) -> None:
        """Refuses a column that is not there.

        Args:
            column: Its name.
            what: What it is for.
        """
        if column not in self.columns:
            raise TableError(f"{self.path}, line 1: there is no column {column!r} for {what}{self.near(column)}")

    def near(self, column: str) -> str:
        """The most similar column, or some of them all."""
        known, more = self.columns[:20], ", ..." if len(self.columns) > 20 else ""
        close = nearest(column, self.columns)
        return close if "did you mean" in close else f"; it has {', '.join(map(repr, known))}{more}."
