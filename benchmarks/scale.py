"""The limits of one GPU: full batches of ogbn-arxiv, growth to 10^8 edges, mini-batches of a graph on disk.

    PYTHONPATH=. python benchmarks/scale.py all --data data --folder build/graph --out build/scale

``arxiv`` measures time and memory of a training step of two layers with 8 heads, next to the same network of GATConv.
``growth`` times forward and backward of one layer on graphs with 10^5 to 10^8 edges. ``minibatch`` generates a graph
with 10^8 edges and 5 GB of features on disk, trains 500 steps on batches of it and measures GPU utilisation. ``all``
runs the three. Each writes ``scale-NAME.json`` and ``scale-NAME.md`` into ``--out``. ``--small`` uses sizes for a CPU.
"""

import argparse
import gc
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import batches
import power_law
import torch
import torch.nn.functional as F
from graphs import Graph, load
from layer import step
from measure import environment, heading, megabytes, milliseconds, write_results

import torch_goat
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.nn import GOATConv

HEADS = 8
FEATURES = WIDTH = 16  # of the graphs that grow
CLASSES = 40
SHARED_GIGABYTES = 4  # that processes need to hand batches over
TRAIN_SHARE = 0.54  # of the nodes, as in ogbn-arxiv's split
# Width of a head -> what the networks are called there.
WIDTHS = {8: "hidden 64 (8 heads of 8)", 64: "8 heads of 64"}
NETWORKS = {
    "GATConv, GATConv": ("gat", ""),
    "GOATConv, GATConv": ("goat", "gat"),
    "GOATConv, GOATConv": ("goat", "goat"),
    "GOATConv.paper, GATConv": ("goat-paper", "gat"),
    "GOATConv.paper, GOATConv.paper": ("goat-paper", "goat-paper"),
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Args:
        arxiv: The graph of ``arxiv``.
        widths: The widths of a head there.
        growth: The numbers of edges of ``growth``, by the number of heads.
        batches: Those of ``minibatch``.
    """

    arxiv: str
    widths: tuple[int, ...]
    growth: dict[int, tuple[int, ...]]
    batches: batches.Sizes


LARGE = Sizes("ogbn-arxiv", tuple(WIDTHS), {8: (10**5, 10**6, 10**7), 1: (10**5, 10**6, 10**7, 10**8)}, batches.Sizes())
SMALL = Sizes(
    "Cora", (8,), {8: (10**3, 10**4), 1: (10**3, 10**4, 10**5)}, batches.Sizes(10**4, 10**5, 16, 64, (10, 5), 20)
)


def arxiv(arguments: argparse.Namespace, sizes: Sizes) -> dict:
    """Time and memory of a full training step, beside the same network with GATConv."""
    graph = load(sizes.arxiv, arguments.data)
    rows = []
    for width in sizes.widths:
        base = None
        for name, (kind, last) in NETWORKS.items():
            options = ModelOptions(kind, hidden_channels=width, heads=HEADS, last=last)
            row = {"graph": graph.name, "network": name, "width": WIDTHS[width]}
            row |= _training_step(options, graph, torch.device(arguments.device))
            base = base or row["ms"]
            rows.append(row | {"ratio": row["ms"] / base})
            print(rows[-1], flush=True)
    return {"num_nodes": graph.num_nodes, "num_edges": graph.edge_index.size(1), "rows": rows}


def _training_step(options: ModelOptions, graph: Graph, device: torch.device) -> dict:
    """Milliseconds of a step, and the gigabytes that were in use at most, with graph, features and optimizer."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    torch.manual_seed(0)
    x = torch.randn(graph.num_nodes, graph.num_features, device=device)
    y = torch.randint(CLASSES, (graph.num_nodes,), device=device)
    nodes = torch.randperm(graph.num_nodes, device=device)[: int(TRAIN_SHARE * graph.num_nodes)]
    edge_index = graph.edge_index.to(device)
    network = Network(options, graph.num_features, CLASSES).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005, weight_decay=5e-4)

    def train() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x, edge_index)[nodes], y[nodes]).backward()
        optimizer.step()

    ms = milliseconds(train, device)
    if device.type == "cuda":
        return {"ms": ms, "gigabytes": (torch.cuda.max_memory_allocated() - before) / 1e9}
    return {"ms": ms, "gigabytes": (megabytes(train, device) or 0.0) / 1e3}


def growth(arguments: argparse.Namespace, sizes: Sizes) -> dict:
    """Time and memory of one layer, forward and backward, as the number of edges grows."""
    device = torch.device(arguments.device)
    torch_goat.set_checks(False)
    rows = []
    for heads, counts in sizes.growth.items():
        for num_edges in counts:
            graph = power_law.generate(arguments.folder / f"edges-{num_edges}", num_edges // 10, num_edges)
            row = {"heads": heads, "edges": num_edges, "nodes": num_edges // 10, "largest": graph.largest_degree}
            rows.append(row | _or_out_of_memory(lambda: _layer(graph, heads, device)))  # noqa: B023 (called at once)
            print(rows[-1], flush=True)
    torch_goat.set_checks(True)
    return {"features": FEATURES, "width": WIDTH, "rows": rows}


def _or_out_of_memory(measured: Callable[[], dict]) -> dict:
    gc.collect()
    try:
        return measured()
    except torch.OutOfMemoryError:
        return {"ms": None, "gigabytes": None}
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _layer(graph: power_law.Folder, heads: int, device: torch.device) -> dict:
    edge_index = torch.from_numpy(graph.edge_index).to(device)
    num_nodes = len(graph.indptr) - 1
    torch.manual_seed(0)
    layer = GOATConv.paper(FEATURES, WIDTH, heads).to(device)
    x = torch.randn(num_nodes, FEATURES, device=device, requires_grad=True)
    call = step(layer, x, edge_index)
    ms = milliseconds(call, device, budget=1.0)
    memory = megabytes(step(layer, x, edge_index, new_graph=True), device)
    return {"ms": ms, "gigabytes": None if memory is None else memory / 1e3}


def minibatch(arguments: argparse.Namespace, sizes: Sizes) -> dict:
    """Training on batches of a graph that is memory-mapped, which processes or threads make."""
    folder, device, rows = arguments.folder / "minibatch", torch.device(arguments.device), []
    generation = batches.generate(sizes.batches, folder)
    print(f"generated in {generation:.1f} s", flush=True)
    shared = shutil.disk_usage("/dev/shm").free / 1e9
    for width in sizes.widths:
        options = ModelOptions("goat", hidden_channels=width, heads=HEADS, last="goat")
        for processes in (True, False):
            row = {
                "network": WIDTHS[width],
                "workers": f"{arguments.workers} {'processes' if processes else 'threads'}",
            }
            if processes and shared < SHARED_GIGABYTES:
                print(f"processes share {shared:.1f} GB, too little to hand over batches.")
                continue
            rows.append(row | batches.measure(options, sizes.batches, folder, device, arguments.workers, processes))
            print(rows[-1], flush=True)
    return {**asdict(sizes.batches), "generation_seconds": generation, "shared_gigabytes": shared, "rows": rows}


MEASUREMENTS = {"arxiv": arxiv, "growth": growth, "minibatch": minibatch}


def markdown(name: str, result: dict) -> str:
    """A result as a page."""
    lines = heading(f"Scale: {name}", result["environment"])
    facts = {key: value for key, value in result.items() if key not in ("environment", "rows")}
    lines += [f"- {key}: {_text(value)}" for key, value in facts.items()]
    table = [list(result["rows"][0]), *([_text(value) for value in row.values()] for row in result["rows"])]
    if len(table) < len(table[0]):  # a line per measure, not per row
        table = [list(line) for line in zip(*table, strict=True)]
    lines += ["", *("| " + " | ".join(line) + " |" for line in table)]
    lines.insert(len(lines) - len(table) + 1, "|" + "---|" * len(table[0]))
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*MEASUREMENTS, "all"])
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that sample")
    parser.add_argument("--data", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--folder", type=Path, default=Path("build/scale-graphs"), help="where graphs are generated")
    parser.add_argument("--out", type=Path, default=Path("build/scale"), help="where the results are written")
    arguments = parser.parse_args()
    failed = []
    for name in MEASUREMENTS if arguments.what == "all" else [arguments.what]:
        try:
            result = MEASUREMENTS[name](arguments, SMALL if arguments.small else LARGE)
        except Exception:  # the others are worth having
            traceback.print_exc()
            failed.append(name)
            continue
        result = {"environment": environment(torch.device(arguments.device)), **result}
        write_results(arguments.out, f"scale-{name}", result, markdown(name, result))
    sys.exit(f"{', '.join(failed)} failed." if failed else 0)


if __name__ == "__main__":
    main()
