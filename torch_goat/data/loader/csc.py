from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore

from torch_goat.ops.checks import check_range

_INTEGER = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
CHUNK = 1 << 24  # edges per step, so that those of a memory-mapped file need not fit into memory


class CSC(NamedTuple):
    """The edges of a graph, grouped by target."""

    ptr: Tensor  # [N + 1]: the edges into node t are ptr[t] to ptr[t + 1]
    source: Tensor  # [E]: their sources
    edge: Tensor | None  # [E]: the position of each edge in the graph's edge_index; None if it is the same

    @property
    def num_nodes(self) -> int:
        return self.ptr.numel() - 1

    @classmethod
    def of(cls, data: Any) -> "CSC":
        """Groups the edges of a PyG ``Data``, or of a pair of a ``FeatureStore`` and a ``GraphStore``, by target; edges
        that are already sorted by target are not copied, and a ``CSC`` is returned as it is."""
        if isinstance(data, CSC):
            return data
        if isinstance(data, Data) and data.get("edge_index") is not None:
            return group(data.edge_index, (data.num_nodes, data.num_nodes))
        pair = isinstance(data, list | tuple) and len(data) == 2 and isinstance(data[0], FeatureStore)
        store = data[1] if pair else data
        if isinstance(store, Data) and store.get("adj_t") is not None:
            raise TypeError("sampling needs edge_index, but the graph has adj_t; do not apply ToSparseTensor.")
        attributes = store.get_all_edge_attrs() if isinstance(store, GraphStore) else []
        if len({attribute.edge_type for attribute in attributes}) != 1 or attributes[0].edge_type is not None:
            raise TypeError(
                f"sampling needs a homogeneous Data or a pair of a FeatureStore and a GraphStore with a single edge "
                f"type, got {type(data).__name__}."
            )
        source, ptr, edge = store.csc()
        _check(ptr, source)
        if isinstance(store, Data) and ptr.numel() - 1 != store.num_nodes:
            raise ValueError(
                f"the edges are grouped for {ptr.numel() - 1} nodes, but the graph has {store.num_nodes}; take "
                "subgraphs before grouping the edges."
            )
        return cls(ptr, source, edge)

    def into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of all edges into some nodes, node by node ``[e]``, and the in-degree of each ``[n]``."""
        first = self.ptr[nodes]
        count = self.ptr[nodes + 1] - first
        return spans(first, count), count

    def edge_index(self) -> Tensor:
        """The edges as ``[2, E]``, sorted by target, in memory."""
        return torch.stack([self.source.long(), torch.repeat_interleave(self.ptr.diff())])


def spans(first: Tensor, count: Tensor) -> Tensor:
    """Concatenates the ranges ``first[i] .. first[i] + count[i] - 1``."""
    shift = (first - count.cumsum(0) + count).repeat_interleave(count)
    return shift + torch.arange(shift.numel())


def edges_of(data: Data) -> Tensor:
    """The ``edge_index`` of a graph ``[2, E]``, sorted by target if the graph only has grouped edges."""
    edges = data.get("edge_index")
    return CSC.of(data).edge_index() if edges is None else edges.long()


def check_edges(data: Data) -> None:
    """Raises an error if an edge has an endpoint that is not a node; edges may be in memory or in files."""
    edges = data.get("edge_index")
    if edges is None:
        CSC.of(data)
        return
    edges = _plain(edges)
    if edges.dim() != 2 or edges.size(0) != 2 or edges.dtype not in _INTEGER:
        raise ValueError(
            f"data.edge_index must be an integer tensor of shape [2, num_edges], got {edges.dtype} of shape "
            f"{list(edges.shape)}."
        )
    check_range("data.edge_index", edges, data.num_nodes)


def _check(ptr: Tensor, source: Tensor) -> None:
    """Validates what a store or a file returned."""
    for name, value in (("ptr", ptr), ("source", source)):
        if value.dim() != 1 or value.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"{name} must be an integer vector, got {value.dtype} of shape {list(value.shape)}.")
    if ptr.numel() == 0 or int(ptr[0]) != 0 or int(ptr[-1]) != source.numel() or not _ascending(ptr):
        raise ValueError(f"ptr must ascend from 0 to the number of edges, {source.numel()}.")
    check_range("the list of sources", source, ptr.numel() - 1)


def group(edge_index: Tensor, num_nodes: tuple[int, int]) -> CSC:
    """Groups the edges between numbers of sources and targets by target."""
    edges, edge = _plain(edge_index).cpu(), None
    source, target = edges
    for end, size in zip(edges, num_nodes, strict=True):
        check_range("edge_index", end, size)
    if not _ascending(target):
        target, edge = target.sort(stable=True)
        source = source[edge]
    ptr = torch.zeros(num_nodes[1] + 1, dtype=torch.long)
    for part in target.split(CHUNK):
        ptr[1:] += torch.bincount(part, minlength=num_nodes[1])
    return CSC(ptr.cumsum(0), source, edge)


def _plain(edge_index: Tensor) -> Tensor:
    """The tensor of PyG's ``EdgeIndex``, or the tensor itself."""
    return edge_index.as_tensor() if hasattr(edge_index, "as_tensor") else edge_index


def _ascending(values: Tensor) -> bool:
    parts = (values[start : start + CHUNK + 1] for start in range(0, values.numel() - 1, CHUNK))
    return all(bool((part[1:] >= part[:-1]).all()) for part in parts)  # differences of unsigned integers would wrap
