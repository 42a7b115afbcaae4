"""The bytes of a file that somebody offers as a table, refused if they are something else."""

import os
import pickletools
import stat
from pathlib import Path
from typing import Final

from torch_goat.data.tables.errors import TableError

LARGEST: Final = 4 << 30  # bytes, of a file and of what is in it
PARQUET: Final = b"PAR1"
_ARCHIVE: Final = "unpack it first"
_NEVER: Final = "such files can execute code or hide it and are never read; write the table as CSV"
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


def read_raw(path: Path) -> bytes:
    """The bytes of a text file or a Parquet file.

    Archives are not unpacked and pickles are not looked into: both are refused by their first bytes, whatever they are
    called.
    """
    check_file(path)
    raw = path.read_bytes()
    if not raw.strip():
        raise TableError(f"{path}, line 1: the file is empty; it must have a header and at least one row.")
    for start, kind, advice in _KINDS:
        if raw.startswith(start):
            raise TableError(f"{path} is {kind}, not a table; {advice}.")
    if raw.endswith(b".") and _is_old_pickle(raw):
        raise TableError(f"{path} is a pickle, not a table; {_NEVER}.")
    return raw


def _is_old_pickle(raw: bytes) -> bool:
    """Whether bytes are a pickle of the first protocols, which has no mark; it is taken apart but not executed."""
    try:
        for _ in pickletools.genops(raw):
            pass
    except ValueError:
        return False
    return True


def check_file(path: Path) -> None:
    """Refuses what is no file, or too large a one."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise TableError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    except ValueError:  # a NUL in the name
        raise TableError(f"{str(path)!r} is no file name.") from None
    if not stat.S_ISREG(status.st_mode):
        raise TableError(f"{path} is not a file; name a CSV, Parquet or GraphML file.")
    if status.st_size > LARGEST:
        raise TableError(f"{path} has {status.st_size >> 20} MiB; tables of more than {LARGEST >> 20} are refused.")


def decode(raw: bytes, path: Path) -> tuple[str, str]:
    """The text and its encoding, which is found out: UTF-8, UTF-16 with its mark, or else Western European."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise TableError(f"{path}, line {line}: there is a NUL byte, so this is no text; write the table as CSV.")
    else:
        encoding = "utf-8-sig"
    for attempt in (encoding, "cp1252", "latin-1"):
        try:
            text = raw.decode(attempt)
        except UnicodeDecodeError as error:
            if attempt == "utf-16":
                raise TableError(f"{path} is marked as UTF-16 but is not ({error.reason}); save it as UTF-8.") from None
        else:
            return text, attempt
    raise AssertionError("latin-1 decodes everything")
