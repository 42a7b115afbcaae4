"""Kernels that are compiled on first use: caching them on disk, and one line that says why a first call takes long."""

import functools
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_OURS = "torch_goat."
_PATIENCE = 1.0  # seconds; Triton loads a kernel from its cache in far less
_announced = False


def announce(what: str, seconds: str) -> None:
    """Says on stderr, once per process, what is being compiled; ``TORCH_GOAT_QUIET=1`` turns it off."""
    global _announced
    if not _announced and os.environ.get("TORCH_GOAT_QUIET") != "1":
        _announced = True
        sys.stderr.write(
            f"torch_goat: compiling {what} for this machine, about {seconds} seconds; later processes use the cache "
            "(TORCH_GOAT_QUIET=1 hides this message).\n"
        )
        sys.stderr.flush()


def compiled(function: Callable, files: Sequence[str | Path] = ()) -> Any:
    """A function that numba compiles on first use, without Python's lock, cached on disk if there is a place for it.

    numba only checks whether the file of the function has changed, not those that it imports from. If there are such,
    a digest of all ``files`` that it depends on, in its name, gives each version its own cache.
    """
    from numba import njit

    _watch_numba()
    if files:
        digest = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]
        function.__qualname__ = f"{function.__name__}_{digest}"
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no directory to write to
        return njit(nogil=True)(function)


@functools.cache
def _watch_numba() -> None:
    """Announces what numba compiles because it is not in its cache."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func.__module__.startswith(_OURS):
                announce("CPU kernels with numba", "10 to 30")

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Listener())


@functools.cache
def watch_triton() -> None:
    """Announces kernels that Triton has not compiled, or loaded from its cache, after a moment."""
    try:
        from triton import knobs

        hooks = knobs.runtime
        before, after = hooks.jit_cache_hook, hooks.jit_post_compile_hook
    except (ImportError, AttributeError):  # an older Triton
        return
    timers: list[threading.Timer] = []

    def start(*args: Any, **kwargs: Any) -> Any:
        if not _announced and getattr(kwargs.get("fn"), "module", "").startswith(_OURS):
            timer = threading.Timer(_PATIENCE, announce, ("GPU kernels with Triton", "5 to 30"))
            timer.daemon = True
            timer.start()
            timers.append(timer)
        return before(*args, **kwargs) if before else None

    def stop(*args: Any, **kwargs: Any) -> Any:
        while timers:
            timers.pop().cancel()
        return after(*args, **kwargs) if after else None

    hooks.jit_cache_hook, hooks.jit_post_compile_hook = start, stop
