"""Training on sampled batches of a memory-mapped graph: speed, memory and GPU utilisation.

Utilisation is measured in three ways, from lenient to strict: the time between the first and the last kernel of each
step on the GPU's clock; the time of the same steps on batches that are already on the GPU; and the time in which a
kernel runs, from the profiler.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import power_law
import torch
import torch.nn.functional as F
from measure import wait
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader

from torch_goat.data.loader import neighbor_loader, open_graph
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.models.layers import Sampled

WARM = 20  # steps before any is counted
REPLAYED = 20  # batches that are kept to be trained on again
PROFILED = 30  # steps under the profiler
AHEAD = 2  # batches that a worker makes ahead


@dataclass(frozen=True)
class Sizes:
    """The graph and the batches."""

    num_nodes: int = 10**7
    num_edges: int = 10**8
    num_features: int = 128
    batch_size: int = 1024
    fanout: tuple[int, ...] = (100, 15)
    steps: int = 500
    classes: int = power_law.CLASSES


class Trainer:
    """A network, its optimizer and a step on a batch."""

    def __init__(self, options: ModelOptions, sizes: Sizes, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        self.network = Network(options, sizes.num_features, sizes.classes).to(device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.005)

    def step(self, batch: Data) -> Tensor:
        self.optimizer.zero_grad()
        sampled = Sampled(batch.n_id, None, batch.nodes, batch.edges)
        loss = F.cross_entropy(self.network(batch.x, batch.edge_index, sampled=sampled), batch.y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def make_loader(folder: Path, sizes: Sizes, workers: int, device: torch.device) -> NodeLoader:
    """Batches of nodes in random order, drawn and their features gathered by workers."""
    nodes = torch.randperm(sizes.num_nodes, generator=torch.Generator().manual_seed(0))
    return neighbor_loader(
        open_graph(folder),
        sizes.fanout,
        input_nodes=nodes[: (WARM + sizes.steps + PROFILED) * sizes.batch_size],
        batch_size=sizes.batch_size,
        transform=needed,
        filter_per_worker=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=AHEAD if workers else None,
    )


def needed(batch: Data) -> Data:
    """What training needs of a batch: of the labels those of the seeds, which come first."""
    sizes = {"nodes": batch.num_sampled_nodes, "edges": batch.num_sampled_edges}
    return Data(x=batch.x, edge_index=batch.edge_index, y=batch.y[: batch.batch_size], n_id=batch.n_id, **sizes)


def generate(sizes: Sizes, folder: Path) -> float:
    """Writes the graph; gives the seconds that it took."""
    started = time.perf_counter()
    power_law.generate(folder, sizes.num_nodes, sizes.num_edges, sizes.num_features)
    return time.perf_counter() - started


def measure(
    options: ModelOptions, sizes: Sizes, folder: Path, device: torch.device, workers: int, processes: bool
) -> dict:
    """Trains on the graph in a folder, and tells what it took.

    Args:
        options: The network.
        sizes: The graph and the batches.
        folder: The graph's folder.
        device: Where the network is.
        workers: How many workers make batches.
        processes: Whether these are processes, as in PyTorch's loader, or threads.
    """
    trainer = Trainer(options, sizes, device)
    loader = make_loader(folder, sizes, workers if processes else 0, device)
    batches = iter(loader) if processes else _threaded(loader, workers)
    kept = _warm_up(trainer, batches)
    result = {"nodes_per_batch": _mean(batch.x.size(0) for batch in kept)}
    result |= {"edges_per_batch": _mean(batch.edge_index.size(1) for batch in kept)}
    result |= _train(trainer, batches, sizes.steps)
    if device.type == "cuda":
        result["busy_by_profiler"] = _profiled(trainer, batches)
    replay = _replayed(trainer, kept, sizes.steps // 5)
    return result | {"replay_ms_per_step": replay, "busy_by_replay": replay / result["ms_per_step"]}


def _threaded(loader: NodeLoader, workers: int) -> Iterator[Data]:
    """The loader's batches, made by threads: they hand nothing over, and leave Python's lock while they work."""

    def made(nodes: list[int]) -> Data:
        return loader(nodes).pin_memory() if loader.pin_memory else loader(nodes)

    coming: deque[Future[Data]] = deque()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        for nodes in loader.batch_sampler:
            coming.append(threads.submit(made, nodes))
            if len(coming) > AHEAD * workers:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _mean(values: Iterator[int]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _warm_up(trainer: Trainer, batches: Iterator[Data]) -> list[Data]:
    kept = []
    for _ in range(WARM):
        kept.append(next(batches).to(trainer.device, non_blocking=True))
        trainer.step(kept[-1])
    return kept[-REPLAYED:]


def _train(trainer: Trainer, batches: Iterator[Data], steps: int) -> dict:
    """The steps that count."""
    clock, losses, waited, edges = _Clock(trainer.device), [], 0.0, 0
    memory: dict[str, list[float]] = {}
    if trainer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    wait(trainer.device)
    started = time.perf_counter()
    for number in range(steps):
        before = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - before
        edges += batch.edge_index.size(1)
        batch = batch.to(trainer.device, non_blocking=True)
        with clock:
            losses.append(trainer.step(batch))
        if (number + 1) % (steps // 5) == 0:
            for where, gigabytes in _memory(trainer.device, batches).items():
                memory.setdefault(where, []).append(gigabytes)
    wait(trainer.device)
    wall = time.perf_counter() - started
    tenth = max(1, steps // 10)
    return {
        "seconds": wall,
        "ms_per_step": 1e3 * wall / steps,
        "edges_per_second": edges / wall,
        "waited_for_loader": waited / wall,
        "busy_by_events": clock.seconds() / wall,
        "first_loss": float(torch.stack(losses[:tenth]).mean()),
        "last_loss": float(torch.stack(losses[-tenth:]).mean()),
        **memory,  # after each fifth of the steps
    }


class _Clock:
    """Adds up the time between the beginning and the end of a block, on the GPU's clock where there is one."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list = []

    def __enter__(self) -> None:
        self._marks.append(self._mark())

    def __exit__(self, *error: object) -> None:
        self._marks.append(self._mark())

    def _mark(self) -> "torch.cuda.Event | float":
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self) -> float:
        pairs = list(zip(self._marks[::2], self._marks[1::2], strict=True))
        if self._cuda:
            return sum(start.elapsed_time(end) for start, end in pairs) / 1e3
        return sum(end - start for start, end in pairs)


def _memory(device: torch.device, batches: Iterator) -> dict[str, float]:
    """Gigabytes in use: at most so far on the GPU, and of memory that is no file's in this process and its workers."""
    processes = [os.getpid(), *(worker.pid for worker in getattr(batches, "_workers", []))]
    found = {"host_gigabytes": sum(_own_bytes(process) for process in processes) / 1e9}
    if device.type == "cuda":
        found |= {"gpu_gigabytes": torch.cuda.max_memory_allocated() / 1e9}
        found |= {"gpu_reserved_gigabytes": torch.cuda.max_memory_reserved() / 1e9}
    return found


def _own_bytes(process: int) -> int:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line)
    return 1024 * int(lines.get("RssAnon", lines.get("VmRSS", "0 kB")).split()[0])


def _replayed(trainer: Trainer, kept: list[Data], steps: int) -> float:
    """Milliseconds of a step on batches that are where they are needed."""
    wait(trainer.device)
    started = time.perf_counter()
    for number in range(steps):
        batch = kept[number % len(kept)]
        batch.edge_index = batch.edge_index.clone()  # as a graph never seen before
        trainer.step(batch)
    wait(trainer.device)
    return 1e3 * (time.perf_counter() - started) / steps


def _profiled(trainer: Trainer, batches: Iterator[Data]) -> float | None:
    """The share of the time in which a kernel runs; ``None`` where the profiler sees none."""
    from torch.profiler import ProfilerActivity, profile

    def run() -> None:
        for _ in range(PROFILED):
            trainer.step(next(batches).to(trainer.device, non_blocking=True))
        torch.cuda.synchronize()

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            run()
        on_gpu = [event for event in profiler.events() if event.device_type.name == "CUDA"]
        events = [event.time_range for event in on_gpu if not event.name.startswith(("Memcpy", "Memset"))]
    except RuntimeError as error:
        print(f"no profiler: {error}")
        return None
    return covered([(event.start, event.end) for event in events]) if events else None


def covered(intervals: list[tuple[float, float]]) -> float:
    """The share of the time from the first beginning to the last end in which at least one of the intervals is."""
    intervals = sorted(intervals)
    first, end = intervals[0][0], intervals[0][0]
    inside = 0.0
    for start, stop in intervals:
        inside += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return inside / (end - first)
