"""Compiled code on as many threads as PyTorch may use. It releases Python's lock."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import torch

_PLACES_PER_THREAD = 20_000  # about a millisecond of work; fewer are not worth a thread
_UNITS_PER_THREAD = 100_000


@lru_cache(maxsize=4)
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="torch_goat")


def run_all(run: Callable[[int, int], None], tasks: int, places: int) -> None:
    """Runs tasks 0 to ``tasks``, which read so many places in all, one task at a time."""
    workers = min(torch.get_num_threads(), tasks)
    if workers <= 1 or places < _PLACES_PER_THREAD:
        run(0, tasks)
    else:
        _share(run, range(tasks + 1), workers)


def run_parts(run: Callable[[int, int], None], rows: int, width: int) -> None:
    """Runs rows 0 to ``rows``, each of so many units and independent of the others, a part on every thread."""
    workers = min(torch.get_num_threads(), rows * width // _UNITS_PER_THREAD)
    if workers <= 1:
        run(0, rows)
    else:
        _share(run, [rows * part // workers for part in range(workers + 1)], workers)


def _share(run: Callable[[int, int], None], bounds: Sequence[int], workers: int) -> None:
    """Runs the parts between ``bounds`` on so many threads, of which the caller's is one."""
    parts = iter(pairwise(bounds))  # Python's lock makes taking the next one atomic

    def work() -> None:
        for begin, end in parts:
            run(begin, end)

    # One pool per process, since threads do not survive a fork.
    pool = _pool(workers - 1, os.getpid())
    others = [pool.submit(work) for _ in range(workers - 1)]
    try:
        work()
    finally:
        for other in others:
            other.result()
