"""Time and peak memory of GOATConv next to GATConv and other layers of PyTorch Geometric, with ratios.

    python benchmarks/layer.py --graphs Cora --configurations 8x16,1x256 --threads 1,2 --out build/bench

Every layer is measured as a hidden layer of a network: the input is random, as wide as the output (heads x channels),
and needs a gradient. A call is one forward and one backward pass from a given gradient of the output, with everything
that belongs to it: scores, softmax, sorting. The same graph is used in every call, except for rows with "new graph",
where nothing is there that a layer keeps of a graph. GOATConv has its default options, a bidirectional LSTM.

Layers take turns: every round calls each of them once, and a ratio is the median over rounds of the time divided by
that of GATConv in the same round, so that a busy machine slows down both. Memory is the peak above what was in use
before a call with a new graph. First calls are measured in processes of their own, once with empty caches of numba and
Triton and once with those that the first process has filled.

Writes ``layer.json`` and ``layer.md`` into ``--out``. See :mod:`layer_subjects` for the layers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from graphs import Graph, load
from layer_subjects import BASE, CONFIGURATIONS, NEW_GRAPH, Configuration, subjects
from measure import environment, heading, interleaved, megabytes, wait, write_results
from torch import Tensor
from torch.nn import Module
from tqdm import tqdm

import torch_goat
from torch_goat.nn import GOATConv


def step(layer: Module, x: Tensor, edge_index: Tensor, new_graph: bool = False) -> Callable[[], None]:
    """One forward and backward pass; with a new graph each time, nothing is there that a layer keeps of a graph."""
    gradient = None

    def call() -> None:
        nonlocal gradient
        layer.zero_grad()
        x.grad = None
        out = layer(x, edge_index.clone() if new_graph else edge_index)
        if gradient is None:
            gradient = torch.randn_like(out)
        out.backward(gradient)

    return call


class Case:
    """A graph, a configuration and the layers to measure on them."""

    def __init__(self, graph: Graph, configuration: Configuration, device: torch.device, layers: tuple[str, ...]):
        self.graph, self.configuration, self.device = graph, configuration, device
        found = subjects(graph, configuration, device).items()
        self.subjects = {name: build for name, build in found if name == BASE or name.startswith(layers)}

    def calls(self, new_graph: bool = False) -> tuple[dict[str, Callable[[], None]], dict[str, str]]:
        """A step of every layer by name, and why a layer has none."""
        torch.manual_seed(0)
        torch_goat.set_checks("checks off" not in self.graph.name)
        x = torch.randn(self.graph.num_nodes, self.configuration.width, device=self.device, requires_grad=True)
        # Sorted by target, as PyG's LSTM aggregation needs it.
        edge_index = self.graph.edge_index[:, self.graph.edge_index[1].argsort(stable=True)].to(self.device)
        calls, left_out = {}, {}
        for name, build in self.subjects.items():
            if isinstance(build, str):
                left_out[name] = build
                continue
            call = step(build().to(self.device), x, edge_index, new_graph or NEW_GRAPH in name)
            try:
                call()
            except Exception as error:  # a layer that cannot run here must not end the measurement of the others
                left_out[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
            else:
                calls[name] = call
        return calls, left_out

    def times(self, threads: int) -> list[dict]:
        """One row per layer, with milliseconds and their ratio to GATConv."""
        torch.set_num_threads(threads)
        calls, left_out = self.calls()
        times = interleaved(calls, self.device)
        rows = []
        for name in self.subjects:
            row = {"graph": self.graph.name, "configuration": self.configuration.name, "threads": threads}
            row |= {"layer": name, "ms": None, "ms_ratio": None, "rounds": 0, "note": left_out.get(name, "")}
            if name in times:
                ratios = [own / base for own, base in zip(times[name], times[BASE], strict=False)]
                row |= {"ms": 1e3 * median(times[name]), "ms_ratio": median(ratios), "rounds": len(times[name])}
            rows.append(row)
        return rows

    def memory(self) -> dict[str, float | None]:
        """Megabytes of a call of every layer by name."""
        torch.set_num_threads(1)
        return {name: megabytes(call, self.device) for name, call in self.calls(new_graph=True)[0].items()}


def first_call(configuration: Configuration, device: torch.device) -> dict[str, float]:
    """Seconds of the first forward and backward pass of the default layer in this process, on a small graph."""
    graph = load("small", None)
    layer = GOATConv(configuration.width, configuration.channels, configuration.heads).to(device)
    x = torch.randn(graph.num_nodes, configuration.width, device=device, requires_grad=True)
    layer.lin_src(x).sum().backward()  # the device and its libraries are ready
    wait(device)
    start = time.perf_counter()
    out = layer(x, graph.edge_index.to(device))
    wait(device)
    middle = time.perf_counter()
    out.backward(torch.ones_like(out))
    wait(device)
    return {"forward_s": middle - start, "backward_s": time.perf_counter() - middle}


def first_calls(configurations: list[Configuration], device: torch.device) -> list[dict]:
    """The first call in a new process, with empty and with filled caches."""
    rows = []
    for configuration in configurations:
        with tempfile.TemporaryDirectory() as caches:
            quiet = {"TRITON_CACHE_DIR": caches, "NUMBA_CACHE_DIR": caches, "TORCH_GOAT_QUIET": "1"}
            command = [sys.executable, __file__, "--device", str(device), "--first-call-of", configuration.name]
            for cache in ("empty", "filled"):
                done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=True)
                rows.append({"configuration": configuration.name, "caches": cache} | json.loads(done.stdout))
    return rows


def compile_first(arguments: argparse.Namespace) -> None:
    """Fills the caches of the compilers with one process per configuration, since compiling uses one core each."""
    command = [sys.executable, __file__, "--device", arguments.device, "--layers", arguments.layers, "--compile-only"]
    command += ["--graphs", arguments.graphs] + (["--data", arguments.data] if arguments.data else [])
    processes = [
        subprocess.Popen([*command, "--configurations", name], stdout=subprocess.DEVNULL)
        for name in arguments.configurations.split(",")
    ]
    for process in processes:
        process.wait()


def table(rows: list[dict], unit: str) -> list[str]:
    """A table of the rows of one graph, a line per layer and a column per configuration.

    GATConv has its milliseconds or megabytes (``unit``), every other layer its ratio to GATConv.
    """
    layers, columns = (list(dict.fromkeys(row[key] for row in rows)) for key in ("layer", "configuration"))
    by_cell = {(row["layer"], row["configuration"]): row for row in rows}

    def cell(layer: str, column: str) -> str:
        row = by_cell.get((layer, column), {})
        value = row.get(unit) if layer == BASE else row.get(f"{unit}_ratio")
        return "-" if value is None else f"{value:.{1 if layer == BASE or value >= 10 else 2}f}"

    return [
        f"| {unit} for GATConv, else x GATConv | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
        *[f"| {layer} | {' | '.join(cell(layer, column) for column in columns)} |" for layer in layers],
    ]


def tables(result: dict) -> list[str]:
    """All tables of a result: time by graph and number of threads, memory by graph, first calls, what is left out."""
    rows, lines = result["rows"], []
    on_gpu = "NVIDIA" in str(result["environment"]["device"])
    for graph, threads in dict.fromkeys((row["graph"], row["threads"]) for row in rows):
        chosen = [row for row in rows if (row["graph"], row["threads"]) == (graph, threads)]
        timed = {row["configuration"] for row in chosen if row["ms"] is not None}
        chosen = [row for row in chosen if row["configuration"] in timed]
        where = "" if on_gpu else f", {threads} thread{'s' if threads > 1 else ''}"
        lines += [f"{graph}{where}, time:", "", *table(chosen, "ms"), ""]
    for graph in dict.fromkeys(row["graph"] for row in rows):
        chosen = [row for row in rows if row["graph"] == graph and row.get("mb") is not None]
        if chosen:
            lines += [f"{graph}, memory:", "", *table(chosen, "mb"), ""]
    if result["first_calls"]:
        lines += ["First call of GOATConv in a new process:", ""]
        lines += ["| configuration | caches | forward (s) | backward (s) |", "|---|---|---:|---:|"]
        lines += [
            f"| {row['configuration']} | {row['caches']} | {row['forward_s']:.1f} | {row['backward_s']:.1f} |"
            for row in result["first_calls"]
        ]
        lines += [""]
    left_out = dict.fromkeys(
        f"- {row['graph']}, {row['configuration']}, {row['layer']}: {row['note']}." for row in rows if row["note"]
    )
    return lines + (["Left out:", "", *left_out] if left_out else [])


def markdown(result: dict) -> str:
    """The result as a page."""
    return "\n".join([*heading("GOATConv next to other layers", result["environment"]), *tables(result)]).strip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", default="2", help="numbers of CPU threads, such as 1,2")
    parser.add_argument("--graphs", default="Cora,Computers", help="of small, Cora, Computers, ogbn-arxiv")
    parser.add_argument("--configurations", default=",".join(CONFIGURATIONS), help="heads x channels")
    parser.add_argument("--layers", default="", help="beginnings of names besides GATConv (default: all)")
    parser.add_argument("--first-calls", default="8x16", help="configurations whose first call is measured, or none")
    parser.add_argument("--data", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    parser.add_argument("--first-call-of", help=argparse.SUPPRESS)
    parser.add_argument("--compile-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if arguments.first_call_of:
        print(json.dumps(first_call(Configuration.parse(arguments.first_call_of), device)))
        return
    cases = [
        Case(load(graph, arguments.data), Configuration.parse(name), device, tuple(arguments.layers.split(",")))
        for graph in arguments.graphs.split(",")
        for name in arguments.configurations.split(",")
    ]
    if arguments.compile_only:
        for case in cases:
            case.calls()
        return
    if device.type == "cuda":
        compile_first(arguments)
    result: dict = {
        "environment": environment(device) | {"threads": arguments.threads.replace(",", " and ")},
        "rows": [],
        "first_calls": [],
    }
    turns = [(case, threads) for case in cases for threads in map(int, arguments.threads.split(","))]
    for case, threads in (bar := tqdm(turns, unit="case")):
        bar.set_postfix_str(f"{case.graph.name} {case.configuration.name}")
        result["rows"] += case.times(threads)
        write_results(arguments.out, "layer", result)  # a run that is stopped keeps what it has measured
    # After all times: on a CPU, measuring memory changes how memory is allocated.
    for case in tqdm(cases, desc="memory", unit="case"):
        used = case.memory()
        for row in result["rows"]:
            if (row["graph"], row["configuration"]) == (case.graph.name, case.configuration.name):
                mb, base = used.get(row["layer"]), used.get(BASE)
                row |= {"mb": mb, "mb_ratio": mb / base if mb and base else None}
        write_results(arguments.out, "layer", result)
    names = [name for name in arguments.first_calls.split(",") if name != "none"]
    result["first_calls"] = first_calls([Configuration.parse(name) for name in names], device)
    write_results(arguments.out, "layer", result, markdown(result))


if __name__ == "__main__":
    main()
