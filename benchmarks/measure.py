"""Time and peak memory of one call, on a GPU or a CPU."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch


def milliseconds(call: Callable[[], object], device: torch.device, budget: float = 2.0) -> float:
    """The median time of a call after two calls to warm up, repeated for ``budget`` seconds (3 to 100 times).

    Of a call that takes longer than the budget, the second one is taken.
    """

    def once() -> float:
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        return time.perf_counter() - start

    once()  # compiles, fills caches
    first = once()
    times = [first]
    if first < budget:
        times = [once() for _ in range(max(3, min(100, int(budget / first))))]
    return 1e3 * median(times)


def megabytes(call: Callable[[], object], device: torch.device) -> float | None:
    """The memory that a call takes at its peak above what was in use before it; ``None`` where it cannot be read."""
    gc.collect()
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    return _resident_megabytes(call)


def _resident_megabytes(call: Callable[[], object]) -> float | None:
    """Watches the resident memory of this process (Linux) from a second thread while the call runs."""
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        return None
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 16)  # blocks from 64 KB are given back to the system when they are freed
    libc.malloc_trim(0)
    page = 4096

    def resident() -> int:
        return int(statistics.read_text().split()[1]) * page

    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(5e-4)

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return max(0, peak - before) / 1e6


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
