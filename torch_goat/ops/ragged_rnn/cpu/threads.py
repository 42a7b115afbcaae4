"""Compiled code on as many threads as PyTorch may use. It releases Python's lock."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

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
        return
    # One pool per process, since threads do not survive a fork.
    for _ in _pool(workers, os.getpid()).map(run, range(tasks), range(1, tasks + 1)):
        pass


def run_parts(run: Callable[[int, int], None], rows: int, width: int) -> None:
    """Runs rows 0 to ``rows``, each of so many units and independent of the others, a part on every thread."""
    workers = min(torch.get_num_threads(), rows * width // _UNITS_PER_THREAD)
    if workers <= 1:
        run(0, rows)
        return
    bounds = [rows * part // workers for part in range(workers + 1)]
    for _ in _pool(workers, os.getpid()).map(run, bounds[:-1], bounds[1:]):
        pass
