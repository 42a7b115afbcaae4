"""Compiled code on as many threads as PyTorch may use. It releases Python's lock."""

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

_LEAST_PLACES = 20_000  # about a millisecond of work; with fewer, threads do not pay off
_UNITS_PER_THREAD = 100_000
_PROCESS = os.getpid()  # at import: the threads of OpenMP do not survive a fork
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run_all(run: Callable[[int, int], None], tasks: int, places: int) -> None:
    """Runs tasks 0 to ``tasks``, which read so many places in all, one task at a time."""
    if min(torch.get_num_threads(), tasks) <= 1 or places < _LEAST_PLACES:
        run(0, tasks)
    else:
        _share(run, range(tasks + 1))


def run_parts(run: Callable[[int, int], None], rows: int, width: int) -> None:
    """Runs rows 0 to ``rows``, each of so many units and independent of the others, a part on every thread."""
    parts = min(torch.get_num_threads(), rows * width // _UNITS_PER_THREAD)
    if parts <= 1:
        run(0, rows)
    else:
        _share(run, [rows * part // parts for part in range(parts + 1)])


def _share(run: Callable[[int, int], None], bounds: Sequence[int]) -> None:
    """Runs the parts between ``bounds``; a thread that is done takes the next one, unless a part has failed.

    All threads take part, even if there are fewer parts: OpenMP would end the others, and start them again.
    """
    parts = iter(pairwise(bounds))  # Python's lock makes taking the next one atomic
    failed: list[BaseException] = []

    def work(_: Any = None) -> None:
        try:
            for begin, end in parts:
                if failed:
                    break
                run(begin, end)
        except BaseException as error:  # raised by the caller's thread, below
            failed.append(error)

    threads = torch.get_num_threads()
    if (parallel := _openmp()) is not None and os.getpid() == _PROCESS:
        parallel(_CALL(work), None, threads, 0)
    else:
        others = [_pool(threads - 1, os.getpid()).submit(work) for _ in range(threads - 1)]
        work()
        for other in others:
            other.result()
    if failed:
        raise failed[0]


@lru_cache(maxsize=1)
def _openmp() -> Any:
    """Calls a function on the threads of PyTorch's own operations; ``None`` if its OpenMP library is not found.

    For some milliseconds after an operation, these threads wait actively for the next one. Any other thread would share
    the processors with them.
    """
    for file in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*"):
        try:
            parallel = ctypes.CDLL(str(file)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        parallel.argtypes, parallel.restype = [_CALL, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
        return parallel
    return None


@lru_cache(maxsize=4)
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """The threads where there is no OpenMP, and after a fork."""
    return ThreadPoolExecutor(workers, thread_name_prefix="torch_goat")
