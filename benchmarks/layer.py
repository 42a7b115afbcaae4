"""Time and peak memory of GOATConv, GATConv, and padded and packed ``nn.LSTM``, with ratios.

    python benchmarks/layer.py --threads 1 --graphs Cora --out build/bench

All have 8 heads of width 16 (GOAT: a bidirectional LSTM of width 8 per direction) and the same input: forward and
backward, scores and sorting included, on one graph repeatedly as in training, and on a new graph in each call. Memory
is that of a call with a new graph. Besides the paper's layer, the default one is measured, with and without a gradient
for the order (``order_noise``). Writes ``layer.json`` and ``layer.md`` into ``--out``.
"""

import argparse
import functools
import json
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from graphs import Graph, load
from measure import megabytes, milliseconds
from torch.nn import LSTM, Module
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch_geometric.nn import GATConv
from tqdm import tqdm

import torch_goat
from torch_goat.nn import GOATConv

HEADS, WIDTH = 8, 16
NEW_GRAPH = ", new graph each call"
DEFAULT, NOISE = "GOATConv default", "GOATConv default, order_noise"
PACKED_STEPS = 2e6  # head-steps above which packed nn.LSTM takes minutes on a CPU and is measured with one head
PACKED_LONGEST = 5000  # steps above which it is not tried at all
PADDED_GIGABYTES = 4  # states above which padding is not tried


def packed(in_channels: int, out_channels: int) -> Module:
    """What one would write by hand: PyTorch's own LSTM over a packed sequence."""
    return LSTM(in_channels, out_channels // 2, bidirectional=True)


class Padded(Module):
    """What PyG's LSTMAggregation does: pad to the longest sequence and read the state after the padding."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lstm = LSTM(in_channels, out_channels // 2, batch_first=True, bidirectional=True)

    def forward(self, sequence: PackedSequence) -> torch.Tensor:
        return self.lstm(pad_packed_sequence(sequence, batch_first=True)[0])[0][:, -1]


def subjects(graph: Graph, device: torch.device) -> dict[str, Callable[[], Module] | str]:
    """The layers to measure by name, or why one is left out."""
    features = graph.num_features
    found: dict[str, Callable[[], Module] | str] = {"GATConv": lambda: GATConv(features, WIDTH, HEADS)}
    for backend, status in torch_goat.backends().items():
        if backend != "reference" and status.available and (backend == "triton") <= (device.type == "cuda"):
            if backend == "cpu" and device.type != "cpu":
                continue
            build = functools.partial(GOATConv.paper, features, WIDTH, HEADS, backend=backend)
            found[f"GOATConv {backend}"] = found[f"GOATConv {backend}{NEW_GRAPH}"] = build
    found[DEFAULT] = functools.partial(GOATConv, features, WIDTH, HEADS)
    found[NOISE] = functools.partial(GOATConv, features, WIDTH, HEADS, order_noise=0.2)
    steps = graph.edge_index.size(1) * HEADS
    if device.type == "cpu" and steps > PACKED_STEPS:
        found["packed nn.LSTM, one head"] = lambda: GOATConv.paper(features, WIDTH, 1, rnn=packed)
        for backend in [name.split()[1] for name in found if name.startswith("GOATConv") and NEW_GRAPH in name]:
            name = f"GOATConv {backend}"
            found[f"{name}, one head"] = lambda backend=backend: GOATConv.paper(features, WIDTH, 1, backend=backend)
    elif graph.largest_degree > PACKED_LONGEST:
        found["packed nn.LSTM"] = f"a sequence of {graph.largest_degree + 1} steps takes minutes"
    else:
        found["packed nn.LSTM"] = lambda: GOATConv.paper(features, WIDTH, HEADS, rnn=packed)
    gigabytes = graph.num_nodes * (graph.largest_degree + 1) * 6 * WIDTH * 4 / 1e9
    if gigabytes > PADDED_GIGABYTES:
        found["padded nn.LSTM"] = f"one head's padded states take {gigabytes:.0f} GB"
    else:
        found["padded nn.LSTM"] = lambda: GOATConv.paper(features, WIDTH, HEADS, rnn=Padded)
    return found


def step(layer: Module, x: torch.Tensor, edge_index: torch.Tensor, new_graph: bool = False) -> Callable[[], None]:
    """One forward and backward pass; with a new graph each time, nothing is there that a layer keeps of a graph."""

    def call() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x, edge_index.clone() if new_graph else edge_index).square().mean().backward()

    return call


def measure(graph: Graph, device: torch.device, layers: tuple[str, ...]) -> list[dict]:
    """One row per subject of a graph whose name begins with one of ``layers``."""
    torch.manual_seed(0)
    torch_goat.set_checks("checks off" not in graph.name)
    x = torch.randn(graph.num_nodes, graph.num_features, device=device, requires_grad=True)
    edge_index = graph.edge_index.to(device)
    rows = []
    chosen = [(name, build) for name, build in subjects(graph, device).items() if name.startswith(layers)]
    bar = tqdm(chosen, desc=graph.name, unit="layer")
    for name, build in bar:
        bar.set_postfix_str(name)
        row = {"graph": graph.name, "layer": name, "ms": None, "mb": None, "note": ""}
        if isinstance(build, str):
            row["note"] = build
        else:
            layer = build().to(device)
            row["ms"] = milliseconds(step(layer, x, edge_index, NEW_GRAPH in name), device)
            row["mb"] = megabytes(step(layer, x, edge_index, new_graph=True), device)
            bar.write(f"{graph.name}, {name}: {row['ms']:.2f} ms")
        rows.append(row)
    by_name = {row["layer"]: row for row in rows}
    base = by_name["GATConv"]
    if NOISE in by_name:
        times, memory = (by_name[NOISE][unit] / by_name[DEFAULT][unit] for unit in ("ms", "mb"))
        by_name[NOISE]["note"] = f"{times:.2f} x the time and {memory:.2f} x the memory of the default"
    for row in rows:
        for unit in ("ms", "mb"):
            row[f"{unit}_ratio"] = row[unit] / base[unit] if row[unit] and base[unit] else None
    return rows


def environment(device: torch.device) -> dict[str, str | int]:
    """What the numbers depend on."""
    import torch_geometric

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


def markdown(rows: list[dict], about: dict[str, str | int]) -> str:
    """The result as a page."""

    def cell(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    lines = [
        "# GOATConv beside GATConv",
        "",
        "Forward and backward, 8 heads of width 16 (8 per direction), sorting included. "
        + ", ".join(f"{key} {value}" for key, value in about.items())
        + ".",
        "",
        "| graph | layer | time (ms) | x GATConv | memory (MB) | x GATConv | |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    lines += [
        f"| {row['graph']} | {row['layer']} | {cell(row['ms'], '.1f')} | {cell(row['ms_ratio'], '.2f')} "
        f"| {cell(row['mb'], '.0f')} | {cell(row['mb_ratio'], '.2f')} | {row['note']} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--graphs", default="small,Cora,Computers", help="of small, Cora, Computers, ogbn-arxiv")
    parser.add_argument("--layers", default="", help="beginnings of names, GATConv among them (default: all)")
    parser.add_argument("--features", type=int, help="the width of the input (default: that of the real features)")
    parser.add_argument("--data", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    rows = []
    for name in arguments.graphs.split(","):
        graph = load(name, arguments.data)
        graph = graph._replace(num_features=arguments.features or graph.num_features)
        rows += measure(graph, device, tuple(arguments.layers.split(",")))
    about = environment(device) | ({"features": arguments.features} if arguments.features else {})
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "layer.json").write_text(json.dumps({"environment": about, "rows": rows}, indent=1) + "\n")
    (arguments.out / "layer.md").write_text(markdown(rows, about))
    print(markdown(rows, about))


if __name__ == "__main__":
    main()
