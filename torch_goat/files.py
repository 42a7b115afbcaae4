"""Atomic files, and locks on folders."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has no flock: there, folders are not locked
    fcntl = None  # type: ignore[assignment]


class Busy(RuntimeError):
    """Another process has locked the folder."""


def write_atomic(path: Path, content: bytes | str) -> None:
    """Writes a file atomically: readers see all of it or nothing, even if the process is killed.

    A symbolic link is followed. A device or a pipe, which cannot be replaced, is written to directly.
    """
    if isinstance(content, str):
        content = content.encode()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        error.filename = str(path)  # instead of the temporary file
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path, *, wait: bool, what: str = "folder") -> Iterator[None]:
    """Locks a folder for this process, which releases it when it ends, however it ends.

    The folder is created if needed. Without ``wait``, one that is locked raises :class:`Busy`, which calls it ``what``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as file:
        try:
            hold(file, wait=wait)
        except BlockingIOError:
            raise Busy(f"another process is using the {what} {folder}; wait for it or choose another.") from None
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process has locked the folder; this needs no write permission."""
    try:
        with open(folder / ".lock") as file:
            hold(file, wait=False, shared=True)
    except OSError as error:  # or there is no such file
        return isinstance(error, BlockingIOError)
    return False


def hold(file: IO[Any], *, wait: bool, shared: bool = False) -> None:
    """Locks an open file until it is closed; without ``wait``, one that is locked raises ``BlockingIOError``."""
    if fcntl is not None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
