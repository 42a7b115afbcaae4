"""The graphs of the benchmarks: real edges if the data directory has them, otherwise random ones of the same size."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected


class Graph(NamedTuple):
    name: str
    num_nodes: int
    num_features: int
    edge_index: Tensor  # [2, E]

    @property
    def largest_degree(self) -> int:
        return int(torch.bincount(self.edge_index[1]).max())


def _cora(root: Path) -> np.ndarray:
    with open(root / "LINQS/cora/cora.content") as file:
        number = {line.split(maxsplit=1)[0]: row for row, line in enumerate(file)}
    cites = np.loadtxt(root / "LINQS/cora/cora.cites", dtype=str)
    return np.array([[number[paper] for paper in pair] for pair in cites]).T


def _computers(root: Path) -> np.ndarray:
    with np.load(root / "Amazon/Computers/raw/amazon_electronics_computers.npz") as arrays:
        degree = np.diff(arrays["adj_indptr"])
        return np.stack([np.repeat(np.arange(len(degree)), degree), arrays["adj_indices"]])


def _arxiv(root: Path) -> np.ndarray:
    with np.load(root / "ogbn_arxiv/arxiv_graph.npz") as arrays:
        return arrays["edge_index"]


# Name -> reader, nodes, features (the width of the real ones; the values are random), undirected edges, largest degree.
_KNOWN = {
    "Cora": (_cora, 2708, 1433, 5278, 168),
    "Computers": (_computers, 13752, 767, 245861, 2992),
    "ogbn-arxiv": (_arxiv, 169343, 128, 1157799, 13161),
}


def load(name: str, data: str | None) -> Graph:
    """A graph by name, made undirected without self loops or multi-edges; random if its files are not in ``data``."""
    if name == "small":
        edges = torch.randint(100, (2, 500), generator=torch.Generator().manual_seed(0))
        return Graph("100 nodes, checks off", 100, 16, edges)
    read, num_nodes, num_features, num_edges, largest = _KNOWN[name]
    try:
        edges = torch.from_numpy(read(Path(data or os.environ.get("TORCH_GOAT_DATA", ""))).astype(np.int64))
    except FileNotFoundError:
        edge_index = power_law(num_nodes, 2 * num_edges, largest)
        return Graph(f"{name}-sized", num_nodes, num_features, edge_index)
    edges = edges[:, edges[0] != edges[1]]
    return Graph(name, num_nodes, num_features, to_undirected(edges, num_nodes=num_nodes))


def load_data(name: str, data: str | None, classes: int) -> tuple[str, Data, torch.Generator]:
    """The name of a graph, the graph with random features and classes, and the generator that drew them."""
    graph, generator = load(name, data), torch.Generator().manual_seed(0)
    x = torch.rand(graph.num_nodes, graph.num_features, generator=generator)
    y = torch.randint(classes, (graph.num_nodes,), generator=generator)
    return graph.name, Data(x=x, edge_index=graph.edge_index, y=y), generator


def power_law(num_nodes: int, num_edges: int, largest: int) -> Tensor:
    """Random edges into degrees that fall as a power of the rank, the first of them ``largest`` ``[2, num_edges]``."""
    rank = torch.arange(1, num_nodes + 1, dtype=torch.double)
    low, high = 0.0, 4.0
    for _ in range(60):  # the exponent that gives the wanted number of edges
        exponent = (low + high) / 2
        total = float((largest * rank**-exponent).clamp(min=1).sum())
        low, high = (exponent, high) if total > num_edges else (low, exponent)
    degree = (largest * rank**-low).clamp(min=1).round().long()
    target = torch.repeat_interleave(degree)[:num_edges]
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(num_nodes, target.shape, generator=generator)
    return torch.stack([source, target])
