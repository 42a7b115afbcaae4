"""Time of the CPU's recurrent cells relative to their matrix products alone, in PyTorch, which bound it from below.

    python benchmarks/products.py --cells lstm,gru --configurations 4x64,1x256,1x512 --threads 1 --out build/bench

The products are those of the input projection, one per step of the recurrence forwards, two per step backwards, and
the two of the projection's gradient, on buffers that exist; those of a scan (minGRU, minLSTM) are the projection's
alone. The cells compute all of it: gather, scale and activate, and add the gradients up. Both take turns, and a ratio
is the median over rounds. Writes ``products.json`` and ``products.md`` into ``--out``.
"""

import argparse
from pathlib import Path
from statistics import median

import torch
from graphs import Graph, load
from layer_subjects import Configuration
from measure import environment, heading, interleaved, write_results

from torch_goat.ops import Neighborhoods, Places
from torch_goat.ops.ragged_rnn import cpu
from torch_goat.ops.ragged_rnn.interface import GATES, SCANS, Inputs
from torch_goat.ops.ragged_rnn.torch.steps import scheduled


def measure(graph: Graph, kind: str, configuration: Configuration) -> dict:
    """Milliseconds of the products, and the time of a bidirectional cell relative to them."""
    torch.manual_seed(0)
    (heads, channels), hidden = configuration, configuration.channels // 2
    width, nodes, parts = GATES[kind] * hidden, graph.num_nodes, 2 * heads
    hood = Neighborhoods.from_edge_index(graph.edge_index, nodes, add_self_loops=True)
    places = Places(hood.source.expand(heads, -1).contiguous(), hood)
    num_places = places.source.size(1)
    z, to_gates = torch.randn(heads, nodes, channels), torch.randn(heads, channels, 2 * width) * channels**-0.5
    bias, matrix = torch.zeros(heads, 2, width), torch.randn(heads, 2, width, hidden) * hidden**-0.5
    empty = torch.empty(0)
    weights = [empty, bias, empty] if kind in SCANS else [matrix, bias, bias]
    recurrent = [torch.rand(heads, num_places), *weights]
    grad = torch.randn(nodes, heads, channels)

    def projected() -> torch.Tensor:
        return torch.bmm(z, to_gates)

    def project_back(grad_gates: torch.Tensor) -> None:
        torch.bmm(grad_gates, to_gates.transpose(1, 2))
        torch.bmm(grad_gates.transpose(1, 2), z)

    def cell() -> None:
        inputs = Inputs(projected().view(heads, nodes, 2, width), places, *recurrent)
        _, saved = cpu.forward(kind, inputs, True)
        project_back(cpu.backward(kind, grad, inputs, saved).projected.view(heads, nodes, -1))

    inputs = Inputs(projected().view(heads, nodes, 2, width), places, *recurrent)
    steps = [] if kind in SCANS else scheduled(inputs)[0].steps[1:]
    back = matrix.flatten(0, 1)  # [Q, G * H, H]
    there, grad_hh = back.transpose(1, 2).contiguous(), torch.zeros_like(back)
    h, gates = torch.randn(parts, num_places, hidden), torch.randn(parts, num_places, width)
    wide, narrow = torch.empty(parts * nodes * width), torch.empty(parts * nodes * hidden)

    def products() -> None:
        grad_gates = projected()
        for start, count in steps:
            torch.bmm(h[:, start : start + count], there, out=wide[: parts * count * width].view(parts, count, -1))
        for start, count in reversed(steps):
            share = gates[:, start : start + count]
            torch.bmm(share, back, out=narrow[: parts * count * hidden].view(parts, count, -1))
            grad_hh.baddbmm_(share.transpose(1, 2), h[:, start : start + count])
        project_back(grad_gates)

    cell()
    times = interleaved({"products": products, "cell": cell}, torch.device("cpu"))
    ratios = [own / bound for own, bound in zip(times["cell"], times["products"], strict=False)]
    return {
        "graph": graph.name,
        "cell": kind,
        "configuration": configuration.name,
        "products_ms": 1e3 * median(times["products"]),
        "ratio": median(ratios),
        "rounds": len(ratios),
    }


def markdown(rows: list[dict], about: dict[str, str | int]) -> str:
    """A line per cell and a column per graph and configuration."""
    columns = list(dict.fromkeys((row["graph"], row["configuration"]) for row in rows))
    ratios = {(row["cell"], row["graph"], row["configuration"]): f"{row['ratio']:.2f}" for row in rows}
    lines = heading("CPU cells relative to their matrix products", about)
    lines += [f"| cell | {' | '.join(' '.join(column) for column in columns)} |", "|---|" + "---:|" * len(columns)]
    for cell in dict.fromkeys(row["cell"] for row in rows):
        lines.append(f"| {cell} | {' | '.join(ratios[cell, *column] for column in columns)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="Cora", help="of small, Cora, Computers, ogbn-arxiv")
    parser.add_argument("--cells", default="lstm,gru,rnn,mingru,minlstm")
    parser.add_argument("--configurations", default="4x64,1x256,1x512", help="heads x channels, both directions")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name in arguments.graphs.split(","):
        graph = load(name, arguments.data)
        for kind in arguments.cells.split(","):
            for configuration in arguments.configurations.split(","):
                rows.append(measure(graph, kind, Configuration.parse(configuration)))
                print("{graph}, {cell} {configuration}: {products_ms:.1f} ms, {ratio:.2f} x".format(**rows[-1]))
    about = environment(torch.device("cpu"))
    write_results(arguments.out, "products", {"environment": about, "rows": rows}, markdown(rows, about))


if __name__ == "__main__":
    main()
