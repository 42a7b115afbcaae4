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
    """A function that numba compiles on its first call for each type of its first argument, and caches on disk.

    numba only checks whether the file of the function has changed, not the files that it imports from. A digest of all
    files in the name gives each version of the kernel its own cache. Without a writable directory, every process
    compiles.

    numba also determines the types of all arguments on every call, which takes longer than a small graph. Here, the
    first argument selects the compiled code: the types of the others must be the same for equal first arguments.
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
