"""A random graph whose degrees fall as a power of their rank, of any size, on disk.

The first ``r`` of ``N`` nodes have a share of ``(r / N) ** (1 - EXPONENT)`` in the edges, as their targets and again as
their sources, so that a node's neighbours are mostly hubs, as in graphs that grew. These ranks are scattered over the
node numbers. What is random is a hash of the place that it stands at: the same sizes give the same graph, whatever the
number of threads.
"""

from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from numpy.lib.format import open_memmap

EXPONENT = 0.6  # of the degrees by rank; the number of nodes of degree d then falls as d ** -(1 + 1 / EXPONENT)
CLASSES = 40


class Folder(NamedTuple):
    """The graph's arrays, memory-mapped."""

    ptr: np.ndarray  # [N + 1], target t has the edges ptr[t] to ptr[t + 1]
    edge_index: np.ndarray  # [2, E], sorted by target
    x: np.ndarray | None  # [N, F]
    y: np.ndarray | None  # [N]

    @property
    def largest_degree(self) -> int:
        return int(np.diff(self.ptr).max())


@numba.njit(inline="always")
def _mixed(value: np.uint64) -> np.uint64:
    """Splitmix64: a number that looks random, from any other."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@numba.njit(inline="always")
def _uniform(value: np.uint64) -> float:
    return np.float64(_mixed(value) >> np.uint64(11)) * 2.0**-53


@numba.njit(parallel=True)
def _draw_edges(edge_index: np.ndarray, ptr: np.ndarray, step: int, seed: int, exponent: float) -> None:
    num_nodes, power = ptr.size - 1, 1.0 / (1.0 - exponent)
    for edge in numba.prange(edge_index.shape[1]):
        rank = int(num_nodes * _uniform(np.uint64(edge) ^ (np.uint64(seed) << np.uint64(48))) ** power)
        edge_index[0, edge] = rank * step % num_nodes
    for target in numba.prange(num_nodes):
        edge_index[1, ptr[target] : ptr[target + 1]] = target


@numba.njit(parallel=True)
def _draw_nodes(x: np.ndarray, y: np.ndarray, seed: int, classes: int) -> None:
    """Noise, and a one in the column of the class."""
    for node in numba.prange(y.size):
        y[node] = _mixed(np.uint64(node) ^ (np.uint64(seed + 1) << np.uint64(48))) % np.uint64(classes)
        for column in range(x.shape[1]):
            place = np.uint64(node * x.shape[1] + column)
            x[node, column] = _uniform(place ^ (np.uint64(seed + 2) << np.uint64(48))) - 0.5
        x[node, y[node] % x.shape[1]] += 1.0


def pointers(num_nodes: int, num_edges: int) -> tuple[np.ndarray, int]:
    """Where the edges of each target begin ``[N + 1]``, and the step between the numbers of nodes of adjacent rank."""
    share = (np.arange(1, num_nodes + 1) / num_nodes) ** (1 - EXPONENT)
    ends = np.rint(num_edges * share).astype(np.int64)  # [N], by rank
    step = int(num_nodes * 0.618) | 1  # scatters neighbours in rank
    while np.gcd(step, num_nodes) != 1:
        step += 2
    degree = np.empty(num_nodes, np.int64)
    degree[np.arange(num_nodes) * step % num_nodes] = np.diff(ends, prepend=0)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(degree)]), step


def generate(folder: Path, num_nodes: int, num_edges: int, num_features: int = 0, seed: int = 0) -> Folder:
    """Writes a graph into a folder, and opens it.

    Args:
        folder: Where; made if it is not there.
        num_nodes: How many nodes.
        num_edges: How many edges.
        num_features: How many features each node has; with none there are no classes either.
        seed: Another seed, another graph.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ptr, step = pointers(num_nodes, num_edges)
    np.save(folder / "ptr.npy", ptr)
    edge_index = open_memmap(folder / "edge_index.npy", "w+", np.int64, (2, num_edges))
    _draw_edges(edge_index, ptr, step, seed, EXPONENT)
    if num_features:
        x = open_memmap(folder / "x.npy", "w+", np.float32, (num_nodes, num_features))
        y = open_memmap(folder / "y.npy", "w+", np.int64, (num_nodes,))
        _draw_nodes(x, y, seed, CLASSES)
    return opened(folder)


def opened(folder: Path) -> Folder:
    """The graph in a folder, mapped into memory and not read; what is written there does not reach the files."""
    return Folder(*(_mapped(folder / f"{name}.npy") for name in Folder._fields))


def _mapped(path: Path) -> np.ndarray | None:
    return np.load(path, mmap_mode="c") if path.exists() else None
