"""How much of what a sampler reads lies on other machines: nodes spread by hash or by locality, with copies of hubs.

    python benchmarks/traffic.py --out build/traffic

Batches are drawn by ``NeighborSampler`` from a graph of a million nodes and ten million edges whose
degrees follow a power law, and half or nine tenths of whose edges stay within communities. Every node lies on one of
the machines. A batch belongs to the machine of its seeds. It reads a row of features of every node that it holds, and a
list of neighbours of every node but those of the last hop; what lies elsewhere is traffic, unless every machine has a
copy of it, as it has of the nodes that are the most frequent sources. By hash, a node's machine says nothing about its
neighbours'. By locality, communities stay whole, which is the best that a partition can do here. Writes
``traffic.json`` and ``traffic.png`` into ``--out``.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import power_law
import torch
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput
from tqdm import tqdm

from torch_goat.data.loader import NeighborSampler

NODES, EDGES, MACHINES = 10**6, 10**7, 8
COMMUNITY = 1000  # nodes
LOCAL = (0.5, 0.9)  # shares of edges within a community
COPIED = (0.0, 0.001, 0.01, 0.1)  # shares of nodes that every machine has a copy of
BATCH, FANOUT, BATCHES = 1024, (100, 15), 50
FEATURE_BYTES = 128 * 4


def edges(local: float, num_nodes: int = NODES, num_edges: int = EDGES) -> np.ndarray:
    """A graph of communities: blocks of node numbers ``[2, E]``, sorted by target."""
    random = np.random.default_rng(0)
    ptr, step = power_law.pointers(num_nodes, num_edges)
    target = np.repeat(np.arange(num_nodes), np.diff(ptr))
    rank = random.random(num_edges) ** (1 / (1 - power_law.EXPONENT))  # from 0 to 1, of a source among all
    anywhere = (rank * num_nodes).astype(np.int64) * step % num_nodes
    nearby = target // COMMUNITY * COMMUNITY + (rank * COMMUNITY).astype(np.int64)
    return np.stack([np.where(random.random(num_edges) < local, nearby, anywhere), target])


def owners(num_nodes: int, machines: int) -> dict[str, np.ndarray]:
    """The machine of every node, by the name of the partition ``[N]``."""
    by_hash = np.random.default_rng(1).integers(machines, size=num_nodes)
    return {"hash": by_hash, "locality": np.arange(num_nodes) * machines // num_nodes}


def copies(edge_index: np.ndarray, num_nodes: int, share: float) -> np.ndarray:
    """Whether every machine has a copy of a node: of those that are most often a source ``[N]``."""
    often = np.argsort(-np.bincount(edge_index[0], minlength=num_nodes), kind="stable")
    copied = np.zeros(num_nodes, bool)
    copied[often[: round(share * num_nodes)]] = True
    return copied


def remote(nodes: np.ndarray, here: int, owner: np.ndarray, copied: np.ndarray) -> int:
    """How many of the nodes a machine has to ask another for."""
    return int(np.count_nonzero((owner[nodes] != here) & ~copied[nodes]))


def simulate(local: float, batches: int) -> list[dict]:
    """One row for each partition and share of copies."""
    edge_index = edges(local)
    sampler = NeighborSampler(Data(edge_index=torch.from_numpy(edge_index), num_nodes=NODES), FANOUT)
    random, rows = np.random.default_rng(2), []
    for partition, owner in owners(NODES, MACHINES).items():
        drawn = [
            _batch(sampler, random.choice(np.flatnonzero(owner == 0), BATCH, replace=False)) for _ in range(batches)
        ]
        for share in COPIED:
            copied = copies(edge_index, NODES, share)
            rows_read = sum(len(nodes) for nodes, _ in drawn)
            asked = sum(remote(nodes, 0, owner, copied) for nodes, _ in drawn)
            lists = sum(remote(nodes[:inner], 0, owner, copied) for nodes, inner in drawn)
            row = {"local": local, "partition": partition, "copied": share, "rows": rows_read / batches}
            row |= {"remote": asked / rows_read, "megabytes": asked * FEATURE_BYTES / batches / 1e6}
            rows.append(row | {"remote_lists": lists / sum(inner for _, inner in drawn)})
    return rows


def _batch(sampler: NeighborSampler, seeds: np.ndarray) -> tuple[np.ndarray, int]:
    """The nodes of a batch, and how many of them, the first ones, had neighbours drawn."""
    out = sampler.sample_from_nodes(NodeSamplerInput(input_id=None, node=torch.from_numpy(seeds)))
    return out.node.numpy(), sum(out.num_sampled_nodes[:-1])


def shares(results: dict) -> dict[str, float]:
    """The shares of rows that come from other machines, by how the rows are spread."""
    found = {}
    for row in results["rows"]:
        name = f"by {row['partition']}, {100 * row['local']:.0f} % of edges within communities"
        if row["copied"] in (0.0, 0.01):
            found[f"{name}, {100 * row['copied']:.0f} % copied" if row["copied"] else name] = row["remote"]
    return found


def draw(results: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for local, style in zip(LOCAL, ("--", "-"), strict=True):
        for partition, color in (("hash", "tab:orange"), ("locality", "tab:blue")):
            rows = [row for row in results["rows"] if (row["local"], row["partition"]) == (local, partition)]
            label = f"by {partition}, {100 * local:.0f} % within communities"
            axes.plot(
                range(len(rows)), [100 * row["remote"] for row in rows], style, marker="o", color=color, label=label
            )
    axes.set_xticks(range(len(COPIED)), [f"{100 * share:g} %" for share in COPIED])
    axes.set(xlabel="nodes that every machine has a copy of", ylabel="rows from other machines (%)", ylim=(0, 100))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=BATCHES, help="batches of each partition")
    parser.add_argument("--out", type=Path, default=Path("build/traffic"), help="where the results are written")
    arguments = parser.parse_args()
    rows = [row for local in tqdm(LOCAL, unit="graph") for row in simulate(local, arguments.batches)]
    sizes = {"nodes": NODES, "edges": EDGES, "machines": MACHINES, "community": COMMUNITY}
    results = {**sizes, "batch": BATCH, "fanout": FANOUT, "batches": arguments.batches, "rows": rows}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "traffic.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results, arguments.out / "traffic.png")
    for row in rows:
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})


if __name__ == "__main__":
    main()
