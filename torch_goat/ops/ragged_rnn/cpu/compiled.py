import hashlib
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from numba import njit, typeof


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Compiled:
    """A function that numba compiles on its first call for each type of its first argument, and keeps on disk.

    numba takes a stored result for current as long as the file of the function is, whatever happened to the files it
    is built from. With their digest in its name, another version of the kernel has other files. Where there is no
    directory to write to, every process compiles.

    numba also finds out the types of all arguments on every call, which for a small graph takes longer than the work.
    Here those of the first argument decide: the others must not vary beside it.
    """

    _VERSION = _digest()

    def __init__(self, function: Callable) -> None:
        function.__qualname__ = f"{function.__name__}_{self._VERSION}"
        try:
            self._dispatcher = njit(nogil=True, cache=True)(function)
        except RuntimeError:  # no directory to write to
            self._dispatcher = njit(nogil=True)(function)
        self._entries: dict[Any, Callable] = {}
        self._lock = Lock()

    def __call__(self, key: Any, *args: Any) -> None:
        if (entry := self._entries.get(key)) is None:
            with self._lock:
                signature = tuple(typeof(arg) for arg in (key, *args))
                self._dispatcher.compile(signature)
                entry = self._entries[key] = self._dispatcher.get_overload(signature)
        entry(key, *args)
