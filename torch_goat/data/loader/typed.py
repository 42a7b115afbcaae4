"""Sampling from any graph, also with several types of nodes and edges or with times, with :mod:`.draws`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from torch_goat.data.loader.csc import CSC, group
from torch_goat.data.loader.draws import draw, number
from torch_goat.ops.splitmix import mix

Type = str | None  # of nodes; a homogeneous graph has one type, None


class Relation(NamedTuple):
    """The edges of one type, grouped by target, with ascending times within a group."""

    edge_type: tuple[str, str, str] | None  # None: the edges of a homogeneous graph
    csc: CSC
    fanout: tuple[int, ...]
    # The distinct times of the edges or of their sources [T], and for each edge, its target times T + 1 plus the place
    # of its time among these, ascending [E]; None: edges that are never too late.
    times: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def ends(self) -> tuple[Type, Type]:
        """The types of sources and targets."""
        return (None, None) if self.edge_type is None else (self.edge_type[0], self.edge_type[2])


class TypedSample(NamedTuple):
    """Nodes by type, edges by relation, and how many of them each hop added."""

    node: dict[Type, np.ndarray]
    batch: dict[Type, np.ndarray]  # the seed that each node was sampled for
    edges: list[tuple[np.ndarray, np.ndarray, np.ndarray]]  # source, target (positions in node), position in the CSC
    sizes: dict[Type, list[int]]  # per hop, first the seeds
    counts: list[list[int]]


def relations_of(
    data: Data | HeteroData, fanout: Sequence[int] | Mapping[Any, Sequence[int]], time_attr: str | None
) -> tuple[dict[Type, int], list[Relation], dict[Type, Tensor]]:
    """The numbers of nodes by type, the relations, and the times of nodes by type."""
    hetero = isinstance(data, HeteroData)
    sizes: dict[Type, int] = (
        {kind: data[kind].num_nodes for kind in data.node_types} if hetero else {None: data.num_nodes}
    )
    node_time, edge_times = _times(data, sizes, time_attr)
    relations = []
    edge_types: list[Any] = data.edge_types if hetero else [None]
    if not edge_types:
        raise ValueError("the graph has no edges of any type to sample.")
    for edge_type in edge_types:
        store = data[edge_type] if hetero else data
        if store.get("edge_index") is None:
            raise TypeError(f"sampling needs edge_index, which the edges {edge_type!r} do not have.")
        source, target = (edge_type[0], edge_type[2]) if hetero else (None, None)
        csc = group(store.edge_index, (sizes[source], sizes[target]))
        position = torch.arange(csc.source.numel()) if csc.edge is None else csc.edge
        time = edge_times[edge_type][position] if edge_type in edge_times else None
        if time is None and source in node_time:
            time = node_time[source][csc.source.long()]
        hops = fanout[edge_type] if isinstance(fanout, Mapping) else fanout
        relation = Relation(edge_type, csc, tuple(hops))
        if time is not None:
            distinct, place = np.unique(time.numpy(), return_inverse=True)
            key = torch.repeat_interleave(csc.ptr.diff()) * (len(distinct) + 1) + torch.from_numpy(place)
            key, order = key.sort(stable=True)  # so that the edges that a time allows are the first of a target
            csc = CSC(csc.ptr, csc.source[order], position[order])
            relation = relation._replace(csc=csc, times=(distinct, key.numpy()))
        relations.append(relation)
    return sizes, relations, node_time


def _times(
    data: Data | HeteroData, sizes: dict[Type, int], time_attr: str | None
) -> tuple[dict[Type, Tensor], dict[Any, Tensor]]:
    """The times of nodes by type and of edges by type, of those that have any."""
    if time_attr is None:
        return {}, {}
    hetero = isinstance(data, HeteroData)
    stores = {kind: data[kind] for kind in [*data.node_types, *data.edge_types]} if hetero else {None: data}
    times = {kind: store[time_attr] for kind, store in stores.items() if time_attr in store}
    if not times:
        raise ValueError(f"time_attr={time_attr!r} is neither an attribute of nodes nor of edges of this graph.")
    nodes: dict[Type, Tensor] = {}
    edges: dict[Any, Tensor] = {}
    for kind, time in times.items():
        of_edges = isinstance(kind, tuple) or (kind is None and data.is_edge_attr(time_attr))
        wanted = stores[kind].num_edges if of_edges else sizes[kind]
        if not isinstance(time, Tensor) or time.shape != (wanted,) or bool(torch.isnan(time).any()):
            shape = list(time.shape) if isinstance(time, Tensor) else type(time).__name__
            raise ValueError(f"{time_attr} must hold {wanted} times without NaN, got {shape}.")
        (edges if of_edges else nodes)[kind] = time.cpu()
    return nodes, edges


def sample_typed(
    sizes: Mapping[Type, int],
    relations: Sequence[Relation],
    seeds: Mapping[Type, np.ndarray],
    seed_time: np.ndarray | None,
    key: np.ndarray,
    last: bool = False,
) -> TypedSample:
    """Samples neighbours hop by hop, along every relation into the nodes that the hop before added.

    Args:
        sizes: The numbers of nodes by type.
        relations: The edges.
        seeds: The seeds by type, in the order in which seeds are numbered.
        seed_time: The time of each seed ``[B]``: every seed then has a sample of its own, in which no edge is later;
            ``None``: one sample for all.
        key: The key of the batch ``[1]``.
        last: Whether to take the latest edges instead of drawing.
    """
    node = {kind: seeds.get(kind, np.empty(0, np.int64)) for kind in sizes}
    start = np.cumsum([0, *(values.size for values in seeds.values())])
    numbers = {kind: np.arange(begin, end) for kind, begin, end in zip(seeds, start, start[1:], strict=False)}
    batch = {kind: numbers.get(kind, np.empty(0, np.int64)) for kind in sizes}
    if seed_time is None:
        batch = {kind: np.zeros_like(values) for kind, values in batch.items()}
    begin = dict.fromkeys(sizes, 0)
    edges: list[list[tuple[np.ndarray, ...]]] = [[] for _ in relations]
    hop_sizes = {kind: [values.size] for kind, values in node.items()}
    for hop in range(max(len(relation.fanout) for relation in relations)):
        end = {kind: values.size for kind, values in node.items()}
        for index, relation in enumerate(relations):
            source, target = relation.ends
            new = slice(begin[target], end[target])
            targets, which = node[target][new], batch[target][new]
            first = relation.csc.ptr.numpy()[targets]
            degree = relation.csc.ptr.numpy()[targets + 1] - first
            if relation.times is not None and seed_time is not None:
                distinct, key_of_edge = relation.times
                allowed = np.searchsorted(distinct, seed_time[which], side="right")
                degree = np.searchsorted(key_of_edge, targets * (len(distinct) + 1) + allowed) - first
            own_key = key if relation.edge_type is None and seed_time is None else mix(key + index)
            place, count = draw(first, degree, which * sizes[target] + targets, relation.fanout[hop], own_key, last)
            # A node is sampled once for each seed with a sample of its own.
            known = batch[source] * sizes[source] + node[source]
            found = np.repeat(which, count) * sizes[source] + relation.csc.source.numpy()[place].astype(np.int64)
            fresh, row = number(known, found)
            edges[index].append((row, np.repeat(np.arange(new.start, new.stop), count), place))
            node[source] = np.concatenate([node[source], fresh % max(sizes[source], 1)])
            batch[source] = np.concatenate([batch[source], fresh // max(sizes[source], 1)])
        for kind in sizes:
            hop_sizes[kind].append(node[kind].size - end[kind])
        begin = end
    joined = [tuple(np.concatenate(parts) for parts in zip(*hops, strict=True)) for hops in edges]
    counts = [[place.size for *_, place in hops] for hops in edges]
    return TypedSample(node, batch, joined, hop_sizes, counts)  # type: ignore[arg-type]
