"""Random graphs of any size with power-law degrees, written to disk.

The first ``r`` of ``N`` nodes have a share of ``(r / N) ** (1 - EXPONENT)`` of the edges, as targets and as sources,
so that most neighbours are hubs. Ranks are scattered over the node numbers. All randomness is a hash of the position:
the same sizes give the same graph for any number of threads.
"""

from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from numpy.lib.format import open_memmap

from torch_goat.ops import splitmix

EXPONENT = 0.6  # of the degrees by rank; the number of nodes of degree d then falls as d ** -(1 + 1 / EXPONENT)
CLASSES = 40
STEP = splitmix.STEP
_mix = numba.njit(inline="always")(splitmix.mix)


class Folder(NamedTuple):
    """The graph's edges, memory-mapped."""

    indptr: np.ndarray  # [N + 1], target t has the sources indices[indptr[t] : indptr[t + 1]]
    indices: np.ndarray  # [E]

    @property
    def largest_degree(self) -> int:
        return int(np.diff(self.indptr).max())

    @property
    def edge_index(self) -> np.ndarray:
        """All edges, in memory ``[2, E]``."""
        return np.stack([self.indices, np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))])


@numba.njit(inline="always")
def _mixed(position: int) -> np.uint64:
    """A number that looks random, from any other."""
    return np.uint64(_mix(np.int64(position) + STEP))


@numba.njit(inline="always")
def _uniform(position: int) -> float:
    return np.float64(_mixed(position) >> np.uint64(11)) * 2.0**-53


@numba.njit(parallel=True)
def _draw_sources(source: np.ndarray, num_nodes: int, step: int) -> None:
    power = 1.0 / (1.0 - EXPONENT)
    for edge in numba.prange(source.size):
        rank = int(num_nodes * _uniform(edge) ** power)
        source[edge] = rank * step % num_nodes


@numba.njit(parallel=True)
def _draw_nodes(x: np.ndarray, y: np.ndarray) -> None:
    """Noise, and a one in the column of the class."""
    for node in numba.prange(y.size):
        y[node] = _mixed(node ^ (1 << 48)) % np.uint64(CLASSES)
        for column in range(x.shape[1]):
            x[node, column] = _uniform((node * x.shape[1] + column) ^ (2 << 48)) - 0.5
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


def generate(folder: Path, num_nodes: int, num_edges: int, num_features: int = 0) -> Folder:
    """Writes a graph into a folder, as ``torch_goat.data.loader.open_graph`` reads it, and opens its edges.

    Args:
        folder: Where; made if it is not there.
        num_nodes: How many nodes.
        num_edges: How many edges.
        num_features: How many features each node has; with none there are no classes either.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ptr, step = pointers(num_nodes, num_edges)
    np.save(folder / "indptr.npy", ptr)
    source = open_memmap(folder / "indices.npy", "w+", np.int64, (num_edges,))
    _draw_sources(source, num_nodes, step)
    if num_features:
        x = open_memmap(folder / "x.npy", "w+", np.float32, (num_nodes, num_features))
        y = open_memmap(folder / "y.npy", "w+", np.int64, (num_nodes,))
        _draw_nodes(x, y)
    return Folder(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in Folder._fields))
