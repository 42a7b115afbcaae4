"""One table in a file: its bytes, its columns, and the line of each row for error messages."""

import os
import pickletools
import stat
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from torch_goat.data.datasets import DataError
from torch_goat.settings import nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MISSING: Final = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?")
LARGEST: Final = 4 << 30  # bytes of a file, and of its uncompressed contents
PARQUET: Final = b"PAR1"
_MANY: Final = 20  # problems listed in a message
_LONG: Final = 80  # characters of a cell shown in a message
_ARCHIVE: Final = "unpack it first"
_NEVER: Final = "such files can execute code and are never read; write the table as CSV"
_KINDS: Final = (
    (b"PK\x03\x04", "a zip archive (or a spreadsheet)", f"{_ARCHIVE}, or save the sheet as CSV"),
    (b"PK\x05\x06", "a zip archive", _ARCHIVE),
    (b"\x1f\x8b", "a gzip archive", _ARCHIVE),
    (b"BZh", "a bzip2 archive", _ARCHIVE),
    (b"\xfd7zXZ", "an xz archive", _ARCHIVE),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", _ARCHIVE),
    (b"7z\xbc\xaf", "a 7z archive", _ARCHIVE),
    (b"\x89HDF", "an HDF5 file", "write the table as CSV or Parquet"),
    (b"\x93NUMPY", "a NumPy file", "write the table as CSV or Parquet"),
    (b"%PDF", "a PDF document", "write the table as CSV"),
    *((bytes([0x80, protocol]), "a pickle", _NEVER) for protocol in range(2, 6)),
)


class TableError(DataError):
    """Tables that cannot be read or used; the message names the file, and the line and column if known."""

    def __init__(self, *problems: str) -> None:
        self.problems = list(dict.fromkeys(problems))
        if len(self.problems) > 1:
            lines = self.problems[:_MANY]
            lines += [f"and {len(self.problems) - _MANY} more."] if len(self.problems) > _MANY else []
            super().__init__("\n- ".join([f"the tables have {len(self.problems)} problems:", *lines]))
        else:
            super().__init__(*self.problems)


class Problems:
    """Collects the errors in several blocks, ``with problems: ...``, to raise them as one."""

    def __init__(self, found: Iterable[str] = ()) -> None:
        self.found = list(found)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, TableError):
            self.found += error.problems
        return isinstance(error, TableError)

    def check(self) -> None:
        if self.found:
            raise TableError(*self.found)


def first_row(mask: Any) -> int:
    """The index of the first true element of an array or series."""
    return int(np.flatnonzero(mask)[0])


def shown(cell: object) -> str:
    """A cell for a message: quoted, and truncated if it is long."""
    text = str(cell)
    return repr(text) if len(text) <= _LONG else f"{text[:_LONG]!r}..."


def as_texts(cells: "Series", missing: Collection[str] = ()) -> "Series":
    """A column as categories, whose names are texts; those in ``missing`` are missing values."""
    import pandas as pd

    codes, found = pd.factorize(cells.to_numpy(dtype=object))
    column = pd.Categorical.from_codes(codes, pd.Index(list(map(str, found)), dtype=object))
    column = column.remove_categories([text for text in column.categories if text in missing])
    return pd.Series(column, cells.index, name=cells.name)


class Source(ABC):
    """A table in a file, with remarks about it for the user."""

    frame: "DataFrame"  # what read returned, set by :func:`torch_goat.data.tables.read.parse`
    directed = False  # whether the file itself declares its edges as directed
    texts: frozenset[str] = frozenset()  # columns that the file declares as text or categories, whatever they contain
    durations: frozenset[str] = frozenset()  # columns of a type for durations, which are read as days
    unread: frozenset[str] = frozenset()  # columns that are not needed, which read may leave out
    has_dates = True  # whether the format has a type for dates, so that a date in a column of texts is a text

    def __init__(self, path: Path, columns: Iterable[str], notes: Iterable[str] = ()) -> None:
        self.path, self.columns, self.notes = path, tuple(columns), tuple(notes)
        for number, column in enumerate(self.columns, start=1):
            if not column:
                raise TableError(f"{path}, line 1: column {number} has no name; add one to the header.")
            if not column.isprintable() or len(column) > _LONG:
                raise TableError(
                    f"{path}, line 1: {shown(column)} is not a valid name for column {number}; close its quotation "
                    "mark or rename it."
                )
            if self.columns.index(column) != number - 1:
                raise TableError(f"{path}, line 1: there are two columns named {column!r}; rename one of them.")

    def missing_words(self, column: str) -> dict[str, int]:
        """The words in a column that are read as missing, with their counts; empty for typed formats."""
        return {}

    @abstractmethod
    def read(self, text: Collection[str], names: Collection[str] = ()) -> "DataFrame":
        """The table: numeric columns as numbers, others (and those in ``text``) as categories, whose names are texts.

        In the columns in ``names`` only an empty cell is missing, so that a node may be named ``NA``.
        """

    @abstractmethod
    def line(self, row: int) -> int:
        """The line of a row (from 0) in the file; the number of the row for files without lines."""

    def where(self, row: int, column: str = "") -> str:
        """``"nodes.csv, line 7, column 'age'"``."""
        return f"{self.path}, line {self.line(row)}" + (f", column {column!r}" if column else "")

    def error(self, bad: Any, values: "Series", reason: str) -> TableError:
        """The error at the first bad row ``[n]`` of a column; ``{cell}`` in the reason stands for its value."""
        row = first_row(bad)
        return TableError(f"{self.where(row, str(values.name))}: {reason.replace('{cell}', shown(values.iloc[row]))}")

    def check(self, column: str, purpose: str) -> None:
        """Raises if there is no such column."""
        if column in self.columns:
            return
        close, more = nearest(column, self.columns), ", ..." if len(self.columns) > 20 else ""
        if "did you mean" not in close:
            close = f"; the columns are {', '.join(map(repr, self.columns[:20]))}{more}."
        raise TableError(f"{self.path}, line 1: there is no column {column!r} for {purpose}{close}")


def read_bytes(path: Path) -> bytes:
    """The contents of a text or Parquet file. Archives and pickles are refused by their first bytes, never opened."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise TableError(f"cannot read {path}: {(error.strerror or str(error)).lower()}.") from None
    except ValueError:  # a NUL in the name
        raise TableError(f"{str(path)!r} is not a valid file name.") from None
    if not stat.S_ISREG(status.st_mode):
        raise TableError(f"{path} is not a file; name a CSV, Parquet or GraphML file.")
    if status.st_size > LARGEST:
        raise TableError(f"{path} has {status.st_size >> 20} MiB; the limit is {LARGEST >> 20} MiB.")
    raw = path.read_bytes()
    if not raw or raw.isspace():
        raise TableError(f"{path}, line 1: the file is empty; it must have a header and at least one row.")
    for start, kind, advice in _KINDS:
        if raw.startswith(start):
            raise TableError(f"{path} is {kind}, not a table; {advice}.")
    if raw.endswith(b".") and _is_old_pickle(raw):
        raise TableError(f"{path} is a pickle, not a table; {_NEVER}.")
    return raw


def digest_tables(nodes: str, edges: str = "") -> str:
    """The digest of the contents of both files, or of a GraphML file."""
    return digest_contents(*(read_bytes(Path(file)) for file in (nodes, edges) if file))


def digest_contents(nodes: bytes, *edges: bytes) -> str:
    """The SHA-256 of the contents of the files of a graph."""
    digest = sha256(nodes)
    for raw in edges:
        digest.update(sha256(raw).digest())
    return digest.hexdigest()


def _is_old_pickle(raw: bytes) -> bool:
    """Whether this is a pickle of protocol 0 or 1, which has no magic bytes; it is disassembled, not executed."""
    try:
        for _ in pickletools.genops(raw):
            pass
    except ValueError:
        return False
    return True


def decode(raw: bytes, path: Path) -> tuple[str, str]:
    """The text and its detected encoding: UTF-8, UTF-16 with a byte order mark, or else Western European."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return raw.decode("utf-16"), "utf-16"
        except UnicodeDecodeError as error:
            raise TableError(f"{path} is marked as UTF-16 but is not ({error.reason}); save it as UTF-8.") from None
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise TableError(f"{path}, line {line}: found a NUL byte, so this is not text; write the table as CSV.")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1"), "latin-1"  # which decodes any bytes
