"""The speed of neighbour sampling, whether training waits for it, and the gain from a second process.

    python benchmarks/sampling.py --data DATA --out build/bench

``seeds`` compares the sampler, compiled and vectorised, with a NumPy loop over nodes and with ``pyg-lib`` if
installed, on one core. ``steps`` times the construction of a batch and a training step, with batches prepared in a
thread and with batches that exist already. ``processes`` compares the training nodes per second of two processes with
those of one, one thread and the same number of nodes each. Writes ``sampling.json`` and ``sampling.md`` into
``--out``.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.typing
from graphs import load_data
from measure import environment, heading, write_results
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NeighborSampler as PyGNeighborSampler
from torch_geometric.sampler import NodeSamplerInput

from torch_goat.data.loader import CSC, NeighborSampler, neighbor_loader
from torch_goat.experiments import TrainingOptions
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.models.layers import Sampled
from torch_goat.experiments.training.loop import Loop
from torch_goat.experiments.training.processes import make_fabric
from torch_goat.experiments.training.task import Task

CLASSES = 7
FANOUT = (25, 10)  # of training
WARM = 6  # steps before any is counted
MODEL = ModelOptions(name="goat", hidden_channels=8, heads=8, last="gcn")


def graph(name: str, data: str | None) -> tuple[str, Data]:
    """A graph with random features and classes; half of its nodes train."""
    title, made, generator = load_data(name, data, CLASSES)
    part = torch.rand(made.num_nodes, generator=generator)
    made.train_mask, made.val_mask, made.test_mask = part < 0.5, (part >= 0.5) & (part < 0.51), part >= 2
    return title, made


def node_loop(csc: CSC, fanout: tuple[int, ...]) -> Callable[[Tensor], object]:
    """Sampling as one writes it first: node by node, with NumPy's choice and a dictionary."""
    ptr, source, generator = csc.ptr.numpy(), csc.source.numpy(), np.random.default_rng(0)

    def sample(seeds: Tensor) -> tuple[list[int], list[int], list[int]]:
        nodes = seeds.tolist()
        place = {node: number for number, node in enumerate(nodes)}
        rows, columns, begin = [], [], 0
        for most in fanout:
            end = len(nodes)
            for column in range(begin, end):
                first, last = ptr[nodes[column]], ptr[nodes[column] + 1]
                near = source[first:last]
                if last - first > most:
                    near = near[generator.choice(last - first, most, replace=False)]
                for node in near.tolist():
                    if node not in place:
                        place[node] = len(nodes)
                        nodes.append(node)
                    rows.append(place[node])
                    columns.append(column)
            begin = end
        return nodes, rows, columns

    return sample


def seeds_per_second(sample: Callable[[Tensor], object], nodes: int, batch_size: int, seconds: float) -> float:
    """The median over batches of drawn nodes."""
    generator, rates = torch.Generator().manual_seed(1), []
    end = time.perf_counter() + seconds
    while len(rates) < 4 or time.perf_counter() < end:
        seeds = torch.randperm(nodes, generator=generator)[:batch_size]
        start = time.process_time()
        sample(seeds)
        rates.append(batch_size / (time.process_time() - start))
    return median(rates[1:])


def measure_seeds(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Seeds per second of every way, on one core."""
    torch.set_num_threads(1)
    rows = []
    for name in arguments.graphs.split(","):
        title, data = graph(name, arguments.data)
        csc = CSC.of(data)
        for fanout in ((100, 15), (15, 10)):
            ways: dict[str, Callable[[Tensor], object]] = {"NumPy, node by node": node_loop(csc, fanout)}
            kinds = {"vectorised": False} | ({"compiled": True} if importlib.util.find_spec("numba") else {})
            for label, compiled in kinds.items():
                ours = NeighborSampler(csc, fanout, compiled=compiled)
                ways[label] = lambda seeds, ours=ours: ours.sample_from_nodes(NodeSamplerInput(None, seeds))
            if torch_geometric.typing.WITH_PYG_LIB:
                theirs = PyGNeighborSampler(data, list(fanout))
                ways["pyg-lib"] = lambda seeds: theirs.sample_from_nodes(NodeSamplerInput(None, seeds))  # noqa: B023
            rates = {
                way: seeds_per_second(call, data.num_nodes, arguments.batch_size, arguments.seconds)
                for way, call in ways.items()
            }
            slow = rates["NumPy, node by node"]
            for way, rate in rates.items():
                rows.append(
                    {"graph": title, "fanout": list(fanout), "way": way, "seeds_per_second": rate, "times": rate / slow}
                )
                print(rows[-1], flush=True)
    return rows


def measure_steps(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Making a batch, a training step on it, and steps with batches that a thread makes ahead or that are there."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = []
    for name in arguments.graphs.split(","):
        title, data = graph(name, arguments.data)
        rows.append({"graph": title, "fanout": list(FANOUT), **_steps(data, arguments)})
        print(rows[-1], flush=True)
    return rows


def _steps(data: Data, arguments: argparse.Namespace) -> dict[str, float]:
    loader = neighbor_loader(Data(x=data.x, edge_index=data.edge_index), FANOUT)
    torch.manual_seed(0)
    network = Network(MODEL, data.num_features, CLASSES)
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes) + 1

    def step(batch: Data) -> None:
        sampled = Sampled(batch.n_id, degree[batch.n_id], batch.num_sampled_nodes, batch.num_sampled_edges)
        optimizer.zero_grad()
        out = network(batch.x, batch.edge_index, sampled=sampled)
        F.cross_entropy(out, data.y[batch.n_id[: batch.batch_size]]).backward()
        optimizer.step()

    orders = torch.randperm(data.num_nodes)[: arguments.steps * arguments.batch_size].view(arguments.steps, -1)
    making, batches = [], []
    for order in orders:
        start = time.perf_counter()
        batches.append(loader(order))
        making.append(time.perf_counter() - start)
    for batch in batches:  # compiled and warm
        step(batch)
    there, _ = timed_steps(step, iter(batches))
    with ThreadPoolExecutor(1) as pool:
        made, waiting = timed_steps(step, pool.map(loader, orders))
    return {
        "making_ms": 1e3 * median(making),
        "step_ms": 1e3 * there,
        "step_with_loader_ms": 1e3 * made,
        "waiting_percent": 100 * waiting,
    }


def timed_steps(step: Callable[[Data], None], batches: Iterator[Data]) -> tuple[float, float]:
    """The median seconds of a step with its batch, and the share of all of them spent in waiting for batches."""
    step(next(batches))
    times, waits, start = [], [], time.perf_counter()
    for batch in batches:
        waits.append(time.perf_counter() - start)
        step(batch)
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
    return median(times), sum(waits) / sum(times)


def member(arguments: argparse.Namespace) -> None:
    """One process of ``processes``: trains and lets the first write how many nodes a second all of them read."""
    torch.set_num_threads(1)
    _, data = graph(arguments.graphs, arguments.data)
    fabric = make_fabric("cpu", "32-true")
    torch.manual_seed(0)
    network = Network(MODEL, data.num_features, CLASSES)
    size = arguments.batch_size * fabric.world_size
    options = TrainingOptions(batch_size=size, fanout=FANOUT, patience=0)
    loop = Loop(network, Task(data, fabric.device), options, fabric)
    network.train()
    nodes, epoch, rates, start = int(data.train_mask.sum()), 0, [], 0.0
    while len(rates) < arguments.steps + WARM:
        epoch += 1
        for step in loop._batches.steps(epoch):
            loop._step(step)
            rates.append(step.share * nodes / (time.perf_counter() - start))
            start = time.perf_counter()
    if fabric.global_rank == 0:
        Path(arguments.member).write_text(json.dumps(median(rates[WARM:])))


def measure_processes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Training nodes per second of one and of two processes, a thread each: the best of three turns."""
    rows = []
    for name in arguments.graphs.split(","):
        rates: dict[int, list[float]] = {1: [], 2: []}
        for world in (1, 2) * 3:
            result = arguments.out / f"member-{world}.json"
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
            command += [__file__, "--member", str(result), "--graphs", name, "--steps", str(arguments.steps)]
            command += [
                "--batch-size",
                str(arguments.batch_size),
                *(["--data", arguments.data] if arguments.data else []),
            ]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            rates[world].append(json.loads(result.read_text()))
            result.unlink()
        for world, values in rates.items():
            rows.append({"graph": name, "processes": world, "nodes_per_second": max(values)})
            rows[-1]["times"] = max(values) / max(rates[1])
            print(rows[-1], flush=True)
    return rows


def markdown(parts: dict[str, list[dict[str, Any]]], about: dict[str, Any]) -> str:
    """The result as a page."""
    lines = heading("Sampling", about)[:-1]
    for name, rows in parts.items():
        lines += ["", f"## {name}", "", "| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
        lines += ["| " + " | ".join(map(_text, row.values())) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


MEASUREMENTS = {"steps": measure_steps, "processes": measure_processes, "seeds": measure_seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", default=",".join(MEASUREMENTS), help=f"of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--graphs", default="Computers,ogbn-arxiv", help="of Cora, Computers, ogbn-arxiv")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=12, help="training steps of each measurement")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each way of sampling")
    parser.add_argument("--data", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        member(arguments)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    parts = {name: MEASUREMENTS[name](arguments) for name in arguments.what.split(",")}
    about = environment(torch.device("cpu")) | {"batch_size": arguments.batch_size}
    write_results(arguments.out, "sampling", {"environment": about, **parts}, markdown(parts, about))


if __name__ == "__main__":
    main()
