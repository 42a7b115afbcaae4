"""Atomic files, CSV, files that are safe to open, and locks on folders."""

import csv
import errno
import io
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import IO, Any, Literal

try:
    import fcntl
except ImportError:  # Windows has no flock: there, folders are not locked
    fcntl = None  # type: ignore[assignment]


class Busy(RuntimeError):
    """Another process has locked the folder."""


def write_atomic(path: Path, content: bytes | str) -> None:
    """Writes a file that a user has chosen, atomically: readers see all of it or nothing.

    Its folder is created if needed. A symbolic link is followed. A device or a pipe, which cannot be replaced, is
    written to directly.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def replace_file(path: Path, content: bytes | str) -> None:
    """Writes a file in an existing folder, atomically, even if the process is killed; a link there is replaced."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        error.filename = str(path)  # instead of the temporary file
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def csv_text(rows: Iterable[Iterable[Any]], quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=quoting).writerows(rows)
    return text.getvalue()


def remove_parts(folder: Path, names: str) -> None:
    """Removes what killed processes left of files whose names match a pattern; other files and links stay."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if re.fullmatch(rf"\.(?:{names})\.\w{{8}}\.part", path.name) and stat.S_ISREG(path.lstat().st_mode):
            path.unlink()


def no_link(path: Path) -> Path:
    """Returns a path inside a folder that others may have written; a symbolic link there raises an ``OSError``."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} is a symbolic link, which is not followed here", str(path))
    return path


def open_regular(path: Path, mode: str = "rb", *, most: int | None = None) -> Any:
    """Opens a regular file of at most ``most`` bytes; anything else, such as a pipe that blocks, is an ``OSError``.

    Links are followed for reading only.
    """
    more = getattr(os, "O_NONBLOCK", 0) | (0 if mode == "rb" else getattr(os, "O_NOFOLLOW", 0))

    def opener(name: str, flags: int) -> int:
        handle = os.open(name, flags | more, 0o666)
        found, reason = os.fstat(handle), ""
        if not stat.S_ISREG(found.st_mode):
            reason = "not a regular file"
        elif most is not None and found.st_size > most:
            reason = f"too large ({found.st_size} bytes; at most {most} are read)"
        if reason:
            os.close(handle)
            raise OSError(errno.EINVAL, reason, name)
        return handle

    return open(path, mode, opener=opener)


def digest_of(path: Path, most: int | None = None) -> str:
    """The SHA-256 of a regular file of at most ``most`` bytes."""
    with open_regular(path, most=most) as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(folder: Path, *, wait: bool, what: str = "folder") -> Iterator[None]:
    """Locks a folder for this process, which releases it when it ends, however it ends.

    The folder is created if needed. Without ``wait``, one that is locked raises :class:`Busy`, which calls it ``what``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open_regular(no_link(folder / ".lock"), "a") as file:
        try:
            hold(file, wait=wait)
        except BlockingIOError:
            raise Busy(f"another process is using the {what} {folder}; wait for it or choose another.") from None
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process has locked the folder; this needs no write permission."""
    try:
        with open_regular(folder / ".lock") as file:
            hold(file, wait=False, shared=True)
    except OSError as error:  # or there is no such file
        return isinstance(error, BlockingIOError)
    return False


def hold(file: IO[Any], *, wait: bool, shared: bool = False) -> None:
    """Locks an open file until it is closed; without ``wait``, one that is locked raises ``BlockingIOError``."""
    if fcntl is not None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
