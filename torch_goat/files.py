"""Files that are whole or absent, and folders that one process at a time may write to."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has no flock; there, two processes on one folder are not told apart
    fcntl = None  # type: ignore[assignment]


class Busy(RuntimeError):
    """Another process holds the folder."""


def write_atomic(path: Path, content: bytes | str) -> None:
    """Writes a file that readers see whole or not at all, also if the process is killed meanwhile.

    A link stays one: what it leads to is written. A device or a pipe, which cannot be replaced, is written to.
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
        error.filename = str(path)  # which the user knows
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
    """Holds a folder for this process; the lock goes with the process, however it ends.

    Args:
        folder: The folder, made if it is not there.
        wait: Whether to wait for another process to let go, instead of raising :class:`Busy`.
        what: How an error calls it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as file:
        try:
            hold(file, wait=wait)
        except BlockingIOError:
            raise Busy(f"another process is using the {what} {folder}; wait for it or choose another.") from None
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process holds the folder; nothing is written, so that it may be anybody's."""
    try:
        with open(folder / ".lock") as file:
            hold(file, wait=False, shared=True)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def hold(file: IO[Any], *, wait: bool, shared: bool = False) -> None:
    """Holds an open file for this process until it is closed; nothing on Windows.

    Args:
        file: The file.
        wait: Whether to wait for another process to let go, instead of raising ``BlockingIOError``.
        shared: Whether others may hold it too, as long as they share it.
    """
    if fcntl is not None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
