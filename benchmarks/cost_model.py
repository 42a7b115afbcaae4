"""What a GOAT layer costs: bytes moved and operations per edge, from its kernels; time and memory on a GPU from these.

    python benchmarks/cost_model.py

prints the tables of ``docs/scale.md``. The bytes and operations are counted from the code, for an LSTM in float32 and
the kernel ``triton``. Three numbers of the device are taken from ``growth.json``, which was measured on other graphs
than those that are predicted: what a step takes on next to no graph, how many bytes a second really pass, and how long
one step of the longest run takes.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import power_law

RESULTS = Path(__file__).parent / "results"
GROWTH = RESULTS / "2026-11-15-h200" / "growth.json"
SCALE = RESULTS / "2026-11-15-h200-scale"
SMALL_HIDDEN = 16  # up to here the recurrent weights stay in registers, and so do the sums of their gradients
CHUNK = 32  # places in a chunk of the sum by source
HEADS = 8
WIDTHS = {8: "hidden 64 (8 heads of 8)", 64: "8 heads of 64"}  # as scale.py calls its networks
NETWORKS = (400, 100, 25)  # gigabits a second that a machine's network takes in


@dataclass(frozen=True)
class Layer:
    """A GOAT layer of a bidirectional LSTM.

    Args:
        features: The width of its input.
        heads: Its heads.
        width: The width of a head, both directions together.
    """

    features: int
    heads: int
    width: int

    @property
    def hidden(self) -> int:
        """The width of a direction."""
        return self.width // 2


class Graph(NamedTuple):
    """A graph as the model sees it."""

    nodes: int
    edges: int
    largest: int  # in-degree
    targets: int | None = None  # nodes that a state is computed for; all of them if None

    @property
    def tokens(self) -> int:
        """The edges and a self loop per target."""
        return (self.nodes if self.targets is None else self.targets) + self.edges


@dataclass(frozen=True)
class Device:
    """What a GPU makes of it.

    Args:
        floor: Seconds that forward and backward take on next to no graph: launches.
        bandwidth: Bytes a second that pass on a large graph.
        latency: Seconds that one step of the longest run takes, forward and backward.
    """

    floor: float
    bandwidth: float
    latency: float


def bytes_per_place(layer: Layer) -> dict[str, float]:
    """Bytes that forward and backward move per token and head, by the part that moves them.

    4 bytes are a float, 8 a number of a node or a place. A radix sort reads and writes keys and places once per 8 bits.
    """
    h, directions = layer.hidden, 2
    row = 16 * h  # four gates of a direction
    sort_scores = 36 + 52 + (16 + 8 * 32) + 16 + 17 + 24 + 37  # bits, key, passes of 64 bits, place, ties, sources
    by_source = 12 + (12 + 4 * 24) + 20 + (2 + 1 / CHUNK / 2) * row * directions  # key, passes of 32 bits, reading
    parts = {
        "scores and their gradient": 52 + 36,
        "sorting by score": sort_scores,
        "softmax and its gradient": 40 + 72 + 48,
        "recurrence, forward": (row + 8 * h + 12) * directions,  # gates in, two states out, source and coefficient
        "recurrence, backward": (2 * row + 8 * h + 12) * directions,  # gates and states in, gradients out
        "sums by source": by_source,
    }
    if h > SMALL_HIDDEN:
        parts["sums for the weights"] = 2 * row * directions  # gradients and states, once per gate
    return parts


def operations_per_place(layer: Layer) -> dict[str, int]:
    """Floating-point operations per token and head: four products of the recurrent matrix, and activations."""
    h, directions = layer.hidden, 2
    product = 2 * 4 * h * h
    return {
        "recurrence, forward": directions * (product + 60 * h),
        "recurrence, backward": directions * (3 * product + 100 * h),  # again, for the gradient, for the weights
    }


def bytes_per_node(layer: Layer) -> float:
    """Bytes that the projections move per node, three times as many in both passes as in the forward pass alone."""
    z, gates = 4 * layer.heads * layer.width, 32 * layer.heads * layer.hidden
    return 3 * (4 * layer.features + 2 * z + gates) + gates


def memory(layer: Layer, graph: Graph) -> float:
    """Bytes in use at the peak, in the backward pass: what was kept for it, and the gradients of all steps."""
    h, directions = layer.hidden, 2
    kept = 8 + 8 + 4 + 4 + 4 + 8 * h * directions  # source, token, score, coefficient, message; states
    backward = 16 * h * directions + 4 + 8 + 4  # gradients of the gates; key, place, gradient of the coefficient
    per_token = 2 * 16 + 3 * 8  # edges with and without self loops; edge, source, target
    z, gates = 4 * layer.heads * layer.width, 32 * layer.heads * layer.hidden
    per_node = 8 * layer.features + 4 * z + 2 * gates
    return graph.tokens * (layer.heads * (kept + backward) + per_token) + graph.nodes * per_node


def moved(layer: Layer, graph: Graph) -> tuple[float, float]:
    """Bytes that the recurrence moves, which its longest run may outlast, and those of all the rest."""
    parts = bytes_per_place(layer)
    recurrence = sum(size for name, size in parts.items() if name.startswith("recurrence"))
    rest = sum(parts.values()) - recurrence
    places = graph.tokens * layer.heads
    return places * recurrence, places * rest + graph.nodes * bytes_per_node(layer) + 32 * graph.edges


def seconds(layer: Layer, graph: Graph, device: Device) -> float:
    """Forward and backward of a layer on a graph that it has seen before."""
    recurrence, rest = moved(layer, graph)
    return device.floor + rest / device.bandwidth + max(recurrence / device.bandwidth, graph.largest * device.latency)


def batch_layers(minibatch: dict, row: dict) -> list[tuple[Layer, Graph]]:
    """The two layers of a mini-batch, and the part of it that each reads, as ``scale.py minibatch`` trains them.

    The first hop is as large as the degrees of the seeds make it on average, and is taken to find no node twice.
    """
    seeds, (fanout, _) = minibatch["batch_size"], minibatch["fanout"]
    hop = round(seeds * mean_drawn(minibatch["num_edges"] / minibatch["num_nodes"], fanout))
    nodes, edges = round(row["nodes_per_batch"]), round(row["edges_per_batch"])
    width = next(width for width, name in WIDTHS.items() if name == row["network"])
    return [
        (Layer(minibatch["num_features"], HEADS, width), Graph(nodes, edges, fanout, targets=seeds + hop)),
        (Layer(HEADS * width, 1, width), Graph(seeds + hop, hop, fanout, targets=seeds)),
    ]


def mean_drawn(degree: float, fanout: int) -> float:
    """How many neighbours are drawn for a node of ``power_law`` on average, whose mean degree is given."""
    keep = 1 - power_law.EXPONENT
    cut = min(1.0, (keep * degree / fanout) ** (1 / power_law.EXPONENT))  # share of nodes with more than the fan-out
    return fanout * cut + degree * (1 - cut**keep)


def calibrated(growth: dict, layer: Layer, largest: int) -> Device:
    """The device behind a ``growth.json``: the smallest star, the largest star, and the largest graph.

    Args:
        growth: What ``benchmarks/growth.py`` wrote.
        layer: The layer that it measured.
        largest: The largest degree of its graphs of growing size.
    """
    small, big = growth["degrees"][0], growth["degrees"][-1]
    floor = small["hub_ms"] / 1e3
    latency = (big["hub_ms"] - small["hub_ms"]) / 1e3 / (big["degree"] - small["degree"])
    graph = growth["edges"][-1]
    total = sum(moved(layer, Graph(graph["edges"] // 10, graph["edges"], largest)))
    return Device(floor, total / (graph["ms"] / 1e3 - floor), latency)


def h200() -> Device:
    """The H200 of the committed measurements."""
    growth = json.loads(GROWTH.read_text())
    return calibrated(growth, Layer(features=16, heads=growth["heads"], width=16), largest=1000)


@dataclass(frozen=True)
class Workload:
    """A graph that is too large for a machine, and how it is trained on.

    Args:
        nodes: Its nodes.
        edges: Its edges.
        features: Features of a node.
        feature_bytes: Bytes of a feature.
        seeds: Nodes with a label, each in one batch of an epoch.
        batch_size: Seeds of a batch.
    """

    nodes: float = 1e10
    edges: float = 1e11
    features: int = 128
    feature_bytes: int = 4
    seeds: float = 1e8
    batch_size: int = 1024


@dataclass(frozen=True)
class Machine:
    """One of the machines of a cluster.

    Args:
        gpus: How many GPUs it has.
        memory: Bytes of host memory for the graph and its features; the rest is for the system and batches under way.
        network: Bytes a second that its network takes in.
    """

    gpus: int = 8
    memory: float = 0.8e12
    network: float = 50e9


class Needs(NamedTuple):
    """What a workload needs of a cluster."""

    structure: float  # bytes
    features: float  # bytes
    machines: int  # to hold both in host memory
    whole_gpus: int  # to hold one layer's full batch, for comparison
    batch_bytes: float  # of features that a batch reads
    inflow: float  # bytes a second and machine that come from others, if the network does not slow training
    slowed: float  # how many times longer a step takes since the network is slower than that, at least 1
    epoch: float  # seconds


def needs(workload: Workload, machine: Machine, batch: dict, remote: float) -> Needs:
    """What a workload needs.

    Args:
        workload: The workload.
        machine: Its machines; there are as many as hold the graph.
        batch: A batch as ``scale.py minibatch`` measured it, of a graph of the same mean degree and fan-out.
        remote: The share of rows that a batch reads from other machines.
    """
    structure = 8 * (workload.edges + workload.nodes)
    features = workload.nodes * workload.features * workload.feature_bytes
    machines = math.ceil((structure + features) / machine.memory)
    layer = Layer(workload.features, heads=8, width=8)
    whole = memory(layer, Graph(int(workload.nodes), int(workload.edges), 0))
    batch_bytes = batch["nodes_per_batch"] * workload.features * workload.feature_bytes
    step = batch["ms_per_step"] / 1e3
    inflow = machine.gpus * remote * batch_bytes / step
    slowed = max(1.0, inflow / machine.network)
    steps = workload.seeds / workload.batch_size / (machines * machine.gpus)
    return Needs(
        structure, features, machines, math.ceil(whole / 141e9), batch_bytes, inflow, slowed, steps * step * slowed
    )


def best_batch(minibatch: dict) -> dict:
    """The fastest way in which ``scale.py minibatch`` trained its first network."""
    rows = minibatch["rows"]
    return min((row for row in rows if row["network"] == rows[0]["network"]), key=lambda row: row["ms_per_step"])


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown; all but the first column to the right."""
    names = list(header)
    lines = [names, ["---"] + ["---:"] * (len(names) - 1), *rows]
    return "\n".join("| " + " | ".join(str(value) for value in line) + " |" for line in lines)


def table_of_parts(layer: Layer) -> str:
    """Bytes and operations per edge of a layer, all heads."""
    parts, operations = bytes_per_place(layer), operations_per_place(layer)
    total = sum(parts.values())
    rows = [
        [name, round(size), f"{100 * size / total:.0f} %", operations.get(name, "-")] for name, size in parts.items()
    ]
    rows.append(["all, per head", round(total), "100 %", sum(operations.values())])
    return table(["part", "bytes", "share", "operations"], rows)


def table_of_growth(growth: dict, device: Device) -> str:
    """The model beside the measurements of ``scale.py growth``."""
    rows = []
    for row in growth["rows"]:
        layer = Layer(growth["features"], row["heads"], growth["width"])
        graph = Graph(row["nodes"], row["edges"], row["largest"])
        rows.append([f"{row['edges']:,}", row["heads"]])
        for measured, model in (
            (row["ms"], 1e3 * seconds(layer, graph, device)),
            (row["gigabytes"], memory(layer, graph) / 1e9),
        ):
            ratio = "-" if measured is None else f"{measured / model:.2f}"
            rows[-1] += [_number(model), _number(measured), ratio]
    header = ["edges", "heads", "model (ms)", "measured (ms)", "ratio", "model (GB)", "measured (GB)", "ratio"]
    return table(header, rows)


def table_of_batches(minibatch: dict, device: Device) -> str:
    """The model beside the batches of ``scale.py minibatch``."""
    rows = []
    for row in minibatch["rows"]:
        layers = batch_layers(minibatch, row)
        features = row["nodes_per_batch"] * minibatch["num_features"] * 4
        bytes_moved = sum(sum(moved(*pair)) for pair in layers)
        operations = sum(
            graph.tokens * layer.heads * sum(operations_per_place(layer).values()) for layer, graph in layers
        )
        model = 1e3 * sum(seconds(*pair, device) for pair in layers)
        kernels = row["busy_by_profiler"] * row["ms_per_step"]
        counted = [f"{features / 1e6:.0f}", f"{bytes_moved / 1e9:.1f}", f"{operations / 1e9:.1f}"]
        timed = [_number(value) for value in (model, kernels, row["ms_per_step"])]
        rows.append([row["network"], row["workers"], *counted, *timed])
    counted = ["features (MB)", "moved on the GPU (GB)", "operations (10^9)"]
    return table(["network", "loader", *counted, "model (ms)", "kernels (ms)", "step (ms)"], rows)


def table_of_needs(batch: dict, shares: dict[str, float]) -> str:
    """What 10^11 edges need, by how their rows are spread over machines and by the network between these."""
    rows = []
    for name, remote in shares.items():
        found = [needs(Workload(), Machine(network=gigabits * 1e9 / 8), batch, remote) for gigabits in NETWORKS]
        rows.append([name, f"{100 * remote:.0f} %", f"{found[0].inflow / 1e9:.1f}"])
        rows[-1] += [f"{one.epoch / 60:.1f}" for one in found]
    epochs = [f"epoch (min) at {gigabits} Gbit/s" for gigabits in NETWORKS]
    return table(["rows spread", "remote", "inflow per machine (GB/s)", *epochs], rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def main() -> None:
    device = h200()
    print(device, "\n")
    print(table_of_parts(Layer(features=16, heads=8, width=16)), "\n")
    if (SCALE / "scale-growth.json").exists():
        print(table_of_growth(json.loads((SCALE / "scale-growth.json").read_text()), device), "\n")
    if (SCALE / "scale-minibatch.json").exists() and (RESULTS / "2026-11-15-traffic" / "traffic.json").exists():
        from traffic import shares

        minibatch = json.loads((SCALE / "scale-minibatch.json").read_text())
        print(table_of_batches(minibatch, device), "\n")
        batch = best_batch(minibatch)
        traffic = json.loads((RESULTS / "2026-11-15-traffic" / "traffic.json").read_text())
        print(needs(Workload(), Machine(), batch, 1.0), "\n")
        print(table_of_needs(batch, shares(traffic)))


if __name__ == "__main__":
    main()
