"""How the time of GOATConv grows with the number of edges, and with the largest degree at a fixed number of edges.

    python benchmarks/growth.py --out build/bench

Forward and backward, a bidirectional LSTM of width 8 per direction; 8 heads on a GPU, one on a CPU to save memory.
Writes ``growth.json`` and ``growth.png`` into ``--out``.
"""

import argparse
from pathlib import Path

import torch
from graphs import power_law
from layer import step
from measure import environment, milliseconds, write_results
from torch import Tensor
from tqdm import tqdm

import torch_goat
from torch_goat.nn import GOATConv

EDGES = [1_000_000, 2_000_000, 5_000_000, 10_000_000]
LARGEST = 1000  # degree of the largest node where edges grow
DEGREES = [100, 1_000, 10_000, 100_000]
FIXED_EDGES = 1_000_000  # where the largest degree grows
FEATURES = WIDTH = 16


def time_of(num_nodes: int, edge_index: Tensor, heads: int, device: torch.device) -> float:
    """Milliseconds of one forward and backward pass."""
    torch.manual_seed(0)
    layer = GOATConv.paper(FEATURES, WIDTH, heads).to(device)
    x = torch.randn(num_nodes, FEATURES, device=device, requires_grad=True)
    return milliseconds(step(layer, x, edge_index.to(device)), device, budget=1.0)


def with_hub(degree: int) -> tuple[int, Tensor]:
    """A graph of FIXED_EDGES edges: one node of the given degree, all others of degree 10."""
    num_nodes = (FIXED_EDGES - degree) // 10 + 1
    target = torch.cat([torch.zeros(degree, dtype=torch.long), torch.arange(1, num_nodes).repeat_interleave(10)])
    source = torch.randint(num_nodes, target.shape, generator=torch.Generator().manual_seed(0))
    return num_nodes, torch.stack([source, target])


def hub_alone(degree: int) -> tuple[int, Tensor]:
    """The hub's own chain of steps and nothing else: a star."""
    return degree + 1, torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.long)])


def draw(results: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    about = results["environment"]
    figure.suptitle(f"GOATConv, forward and backward, {results['heads']} head(s), {about['device']}")
    edges = [row["edges"] for row in results["edges"]]
    left.loglog(edges, [row["ms"] for row in results["edges"]], "o-", label="measured")
    first = results["edges"][0]
    left.loglog(edges, [first["ms"] * n / first["edges"] for n in edges], "k:", label="linear")
    left.set(xlabel=f"edges (largest degree {LARGEST})", ylabel="time (ms)")
    degrees = [row["degree"] for row in results["degrees"]]
    right.loglog(degrees, [row["ms"] for row in results["degrees"]], "o-", label=f"{FIXED_EDGES:,} edges")
    right.loglog(degrees, [row["hub_ms"] for row in results["degrees"]], "s--", label="the hub alone")
    right.set(xlabel="largest degree", ylabel="time (ms)")
    for axes in (left, right):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch_goat.set_checks(False)
    device = torch.device(arguments.device)
    heads = 8 if device.type == "cuda" else 1
    rows: dict[str, list[dict]] = {"edges": [], "degrees": []}
    bar = tqdm(total=len(EDGES) + 2 * len(DEGREES), unit="graph")
    for num_edges in EDGES:
        edge_index = power_law(num_edges // 10, num_edges, LARGEST)
        taken = edge_index.size(1)
        ms = time_of(num_edges // 10, edge_index, heads, device)
        rows["edges"].append({"edges": taken, "ms": ms, "ns_per_edge": 1e6 * ms / taken})
        bar.update()
    for degree in DEGREES:
        row = {"degree": degree, "ms": time_of(*with_hub(degree), heads, device)}
        bar.update()
        rows["degrees"].append(row | {"hub_ms": time_of(*hub_alone(degree), heads, device)})
        bar.update()
    bar.close()
    results = {"environment": environment(device), "heads": heads, **rows}
    write_results(arguments.out, "growth", results)
    for row in rows["edges"]:
        print(f"{row['edges']:>10,} edges {row['ms']:10.1f} ms {row['ns_per_edge']:8.2f} ns per edge")
    for row in rows["degrees"]:
        print(f"largest degree {row['degree']:>7,} {row['ms']:10.1f} ms, the hub alone {row['hub_ms']:10.1f} ms")
    draw(results, arguments.out / "growth.png")


if __name__ == "__main__":
    main()
