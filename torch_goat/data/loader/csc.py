from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore

from torch_goat.ops.checks import check_range

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_CHUNK = 1 << 24  # edges that are looked at at a time, so that those of a file need not be in memory


class CSC(NamedTuple):
    """The edges of a graph, grouped by target: what a sampler reads."""

    ptr: Tensor  # [N + 1], the edges into node t are those from ptr[t] to ptr[t + 1]
    source: Tensor  # [E], their sources
    edge: Tensor | None  # [E], the place of each in the graph's own list of edges; None where it is the same

    @property
    def num_nodes(self) -> int:
        return self.ptr.numel() - 1

    @classmethod
    def of(cls, data: Any) -> "CSC":
        """Groups the edges of a graph; nothing is copied if they are sorted by target already.

        Args:
            data: A PyG ``Data``, or a pair of a ``FeatureStore`` and a ``GraphStore``.
        """
        if isinstance(data, CSC):
            return data
        if isinstance(data, Data) and data.get("edge_index") is not None:
            return _of_edges(data.edge_index, data.num_nodes)
        store = data[1] if _is_pair(data) else data
        if isinstance(store, Data) and store.get("adj_t") is not None:
            raise TypeError(
                "sampling reads edge_index, but the graph has its edges as adj_t; leave ToSparseTensor out."
            )
        attributes = store.get_all_edge_attrs() if isinstance(store, GraphStore) else []
        if len({attribute.edge_type for attribute in attributes}) != 1 or attributes[0].edge_type is not None:
            raise TypeError(
                f"sampling reads a Data or a pair of a FeatureStore and a GraphStore with nodes and edges of one type, "
                f"got {type(data).__name__}."
            )
        source, ptr, edge = store.csc()
        _check(ptr, source)
        if isinstance(store, Data) and ptr.numel() - 1 != store.num_nodes:
            raise ValueError(
                f"the edges are grouped for {ptr.numel() - 1} nodes, but the graph has {store.num_nodes}; a part of a "
                "graph is taken before its edges are grouped."
            )
        return cls(ptr, source, edge)

    def into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The places of all edges into some nodes, one node after the other, and how many each has."""
        first = self.ptr[nodes]
        count = self.ptr[nodes + 1] - first
        place = (first - count.cumsum(0) + count).repeat_interleave(count)
        return place + torch.arange(place.numel()), count

    def edge_index(self) -> Tensor:
        """The edges as ``[2, E]``, by target, in memory."""
        return torch.stack([self.source.long(), torch.repeat_interleave(self.ptr.diff())])


def edges_of(data: Data) -> Tensor:
    """The edges of a graph ``[2, E]``, as it lists them, or by target where it has them grouped alone."""
    edges = data.get("edge_index")
    return CSC.of(data).edge_index() if edges is None else edges.long()


def check_edges(data: Data) -> None:
    """Refuses edges of nodes that are not there, in one look at them, be they in memory or in files."""
    edges = data.get("edge_index")
    if edges is None:
        CSC.of(data)
        return
    edges = edges.as_tensor() if hasattr(edges, "as_tensor") else edges
    if edges.dim() != 2 or edges.size(0) != 2 or edges.dtype not in _WHOLE:
        raise ValueError(
            f"data.edge_index must have a row of sources and one of targets, whole numbers; got {edges.dtype} of shape "
            f"{list(edges.shape)}."
        )
    check_range("data.edge_index", edges, data.num_nodes)


def _is_pair(data: Any) -> bool:
    return (
        isinstance(data, list | tuple)
        and len(data) == 2
        and isinstance(data[0], FeatureStore)
        and isinstance(data[1], GraphStore)
    )


def _check(ptr: Tensor, source: Tensor) -> None:
    """Refuses what a store or a file gives if it is no graph."""
    for name, value in (("ptr", ptr), ("source", source)):
        if value.dim() != 1 or value.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"the edges by target must be two lists of whole numbers, but {name} is {value.dtype} of shape "
                f"{list(value.shape)}."
            )
    if ptr.numel() == 0 or int(ptr[0]) != 0 or int(ptr[-1]) != source.numel() or not _ascending(ptr):
        raise ValueError(
            f"the list that says where each node's edges begin must rise from 0 to their number, {source.numel()}."
        )
    check_range("the list of sources", source, ptr.numel() - 1)


def _of_edges(edge_index: Tensor, num_nodes: int) -> CSC:
    edge_index = edge_index.as_tensor() if hasattr(edge_index, "as_tensor") else edge_index
    source, target = edge_index.cpu()
    check_range("edge_index", source, num_nodes)
    check_range("edge_index", target, num_nodes)
    edge = None
    if not _ascending(target):
        target, edge = target.sort(stable=True)
        source = source[edge]
    ptr = torch.zeros(num_nodes + 1, dtype=torch.long)
    for part in target.split(_CHUNK):
        ptr[1:] += torch.bincount(part, minlength=num_nodes)
    return CSC(ptr.cumsum(0), source, edge)


def _ascending(values: Tensor) -> bool:
    parts = (values[start : start + _CHUNK + 1] for start in range(0, values.numel() - 1, _CHUNK))
    return all(bool((part[1:] >= part[:-1]).all()) for part in parts)  # no difference, which unsigned numbers lack
