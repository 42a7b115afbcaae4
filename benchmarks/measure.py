"""Time and peak memory of one call, on a GPU or a CPU, what they depend on, and the files that they are written to."""

import ctypes
import gc
import json
import platform
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch_geometric

import torch_goat


def milliseconds(call: Callable[[], object], device: torch.device, budget: float = 2.0) -> float:
    """The median time of a call, repeated as in :func:`interleaved`, after two calls to warm up."""
    call()  # compiles, fills caches
    return 1e3 * median(interleaved({"call": call}, device, budget)["call"])


def interleaved(
    calls: Mapping[str, Callable[[], object]], device: torch.device, budget: float = 0.6, most: int = 100
) -> dict[str, list[float]]:
    """Seconds of some calls that take turns, round by round, after one more call of each to warm up.

    A call takes part in ten rounds (three, if it takes longer than two seconds) and then until its time is above
    ``budget``, in ``most`` rounds at most. The first one takes part in as many as any other.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    base, *_ = calls
    least = {name: 10 if _seconds(call, device) < 2 else 3 for name, call in calls.items()}
    for turn in range(most):
        wanted = [name for name, own in times.items() if turn < least[name] or sum(own) < budget]
        if not wanted:
            break
        for name, call in calls.items():
            if name == base or name in wanted:
                times[name].append(_seconds(call, device))
    return times


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


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Until all kernels are done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def environment(device: torch.device) -> dict[str, str | int]:
    """What the numbers depend on."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": name,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "torch_goat": torch_goat.__version__,
    }


def heading(title: str, about: dict[str, str | int]) -> list[str]:
    """The first lines of a page: what it shows, and what its numbers depend on."""
    return [f"# {title}", "", ", ".join(f"{key} {value}" for key, value in about.items()) + ".", ""]


def write_results(out: Path, name: str, results: Any, page: str | None = None) -> None:
    """Writes ``NAME.json`` and, with a page, ``NAME.md`` into a folder, and prints the page."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    if page is not None:
        (out / f"{name}.md").write_text(page)
        print(page, flush=True)
