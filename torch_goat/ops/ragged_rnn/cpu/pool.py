"""Tasks on threads. The compiled code holds no lock while it runs, so that Python's own threads serve."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch

_WORTH_A_THREAD = 20_000  # places; what a millisecond reads


@lru_cache(maxsize=4)
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    # A fork leaves the threads behind, hence a pool for every process.
    return ThreadPoolExecutor(workers, thread_name_prefix="torch_goat")


def run_all(run: Callable[[int, int], None], tasks: int, places: int) -> None:
    """Runs tasks 0 to ``tasks``, on as many threads as PyTorch may use if there are places enough."""
    workers = min(torch.get_num_threads(), tasks)
    if workers <= 1 or places < _WORTH_A_THREAD:
        run(0, tasks)
        return
    for _ in _pool(workers, os.getpid()).map(run, range(tasks), range(1, tasks + 1)):
        pass
