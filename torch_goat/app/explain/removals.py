"""Outputs of a network at nodes with some of their neighbours removed."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

from torch_goat.experiments.models import JanossyConv, Network
from torch_goat.nn import GOATConv, Ordering

EDGES_AT_ONCE: Final = 1_000_000  # copied nodes and edges in one forward pass


class Removal(NamedTuple):
    """A node and the neighbours whose edges to it are removed."""

    node: int
    sources: tuple[int, ...]


class _Copies(NamedTuple):
    """Copies of the nodes that removals at one node affect, one copy of each for every removal."""

    node: int
    removed: list[tuple[int, ...]]  # [R]
    affected: Tensor  # [M], the node itself first
    edges: Tensor  # [P], the positions of the edges into them


def forward(network: Network, data: Data) -> tuple[Tensor, list[Ordering]]:
    """The output of a network ``[N, C]`` and the orderings of its GOAT layers."""
    with torch.no_grad():
        out, orderings = network.on(data, return_orderings=True)
    return out.detach(), orderings  # a constant output is a view of a parameter


def outputs_without(network: Network, data: Data, removals: Sequence[Removal]) -> Tensor:
    """The network's output at the node of every removal ``[R, C]``, exactly as if the edges were absent in all layers.

    A removal deletes all edges from the given neighbours to the node, but not the reverse edges. All removals share a
    few forward passes on the surrounding subgraph with a copy of the node for every removal, which has the remaining
    edges and which no other node reads. In networks of more than two layers the output also depends on nodes that read
    the node itself, so these are copied too; as are its neighbours if the first layer is a GCN layer, which divides by
    the degrees of both ends. Networks that sample neighbours or orders at random run once per removal, because copies
    would be sampled differently.

    Args:
        network: The network, in evaluation mode.
        data: The graph.
        removals: The removals; those at the same node should be consecutive.
    """
    if not removals:
        return data.x.new_zeros(0, network.out_channels)
    if _samples(network):
        return torch.cat([_single_output(network, data, removal) for removal in removals])
    data, removals = _subgraph(network, data, removals)
    outputs: list[Tensor] = []
    batch: list[_Copies] = []
    size = 0
    for node, group in groupby(removals, key=lambda removal: removal.node):
        affected, edges = _affected(network, data, node)
        removed = [removal.sources for removal in group]
        each = affected.numel() + edges.numel()
        at_once = max(1, EDGES_AT_ONCE // each)
        for start in range(0, len(removed), at_once):
            part = removed[start : start + at_once]
            if batch and size + len(part) * each > EDGES_AT_ONCE:
                outputs.append(_batch_outputs(network, data, batch))
                batch, size = [], 0
            batch.append(_Copies(node, part, affected, edges))
            size += len(part) * each
    outputs.append(_batch_outputs(network, data, batch))
    return torch.cat(outputs)


def neighbors(data: Data, node: int) -> Tensor:
    """The distinct sources of the edges to a node, except the node itself, in ascending order."""
    found = data.edge_index[0, data.edge_index[1] == node].unique()
    return found[found != node]


def _samples(network: Network) -> bool:
    return any(
        isinstance(layer, JanossyConv)
        or (isinstance(layer, GOATConv) and layer.max_neighbors is not None and layer.neighbor_selection == "random")
        for layer in network.layers
    )


def _single_output(network: Network, data: Data, removal: Removal) -> Tensor:
    """The output of one removal, from a pass on the graph without its edges ``[1, C]``."""
    source, target = data.edge_index
    kept = ~((target == removal.node) & torch.isin(source, source.new_tensor(removal.sources)))
    without = _with_edges(data, data.x, data.edge_index[:, kept], kept)
    return forward(network, without)[0][removal.node].view(1, -1)


def _subgraph(network: Network, data: Data, removals: Sequence[Removal]) -> tuple[Data, list[Removal]]:
    """The part of the graph that the outputs depend on, and the removals with its node indices."""
    nodes = torch.tensor(sorted({removal.node for removal in removals}), device=data.x.device)
    hops = len(network.layers) + any(isinstance(layer, GCNConv) for layer in network.layers)  # degrees of sources
    kept, edge_index, _, mask = k_hop_subgraph(
        nodes, hops, data.edge_index, relabel_nodes=True, num_nodes=data.x.size(0)
    )
    index = {node: place for place, node in enumerate(kept.tolist())}
    renamed = [Removal(index[one.node], tuple(index.get(source, -1) for source in one.sources)) for one in removals]
    return _with_edges(data, data.x[kept], edge_index, mask), renamed


def _with_edges(data: Data, x: Tensor, edge_index: Tensor, chosen: Tensor) -> Data:
    """A graph with other nodes and edges, whose edges have the features and keys of the chosen edges of a graph."""
    of_edges = {key: data[key][chosen] for key in ("edge_attr", "edge_key") if data.get(key) is not None}
    return Data(x=x, edge_index=edge_index, **of_edges)


def _affected(network: Network, data: Data, node: int) -> tuple[Tensor, Tensor]:
    """The nodes whose states a removal changes on the way to the node's output, and the edges into them."""
    source, target = data.edge_index
    layers, gcn_first = len(network.layers), isinstance(network.layers[0], GCNConv)
    own = torch.tensor([node], device=source.device)
    if layers + gcn_first <= 2:  # only the states of the node itself
        return own, (target == node).nonzero().view(-1)
    changed = torch.zeros(data.x.size(0), dtype=torch.bool, device=source.device)
    changed[node] = True
    reads = [changed.clone()]  # the nodes that the output depends on through the last 0, 1, ... layers
    for _ in range(layers - 1):
        before = reads[-1].clone()
        before[source[before[target]]] = True
        reads.append(before)
    affected = changed.clone()
    for layer in range(1, layers):
        if layer > 1 or gcn_first:
            changed[target[changed[source]]] = True
        affected |= changed & reads[layers - layer]
    edges = affected[target].nonzero().view(-1)
    affected[node] = False
    return torch.cat([own, affected.nonzero().view(-1)]), edges


def _batch_outputs(network: Network, data: Data, batch: Sequence[_Copies]) -> Tensor:
    """The outputs of several removals from one forward pass on the graph with all copies ``[R, C]``."""
    x, edge_index, positions, outputs = [data.x], [data.edge_index], [torch.arange(data.edge_index.size(1))], []
    num_nodes = data.x.size(0)
    for copies in batch:
        count = copies.affected.numel()  # the other affected nodes follow the copy of the node
        first = num_nodes + count * torch.arange(len(copies.removed), device=data.x.device)  # [R]
        edges, position = _copied_edges(copies, data, first)
        x.append(data.x[copies.affected].repeat(len(copies.removed), 1))
        edge_index.append(edges)
        positions.append(position)
        outputs.append(first)
        num_nodes += count * len(copies.removed)
    copied = _with_edges(data, torch.cat(x), torch.cat(edge_index, dim=1), torch.cat(positions))
    return forward(network, copied)[0][torch.cat(outputs)]


def _copied_edges(copies: _Copies, data: Data, first: Tensor) -> tuple[Tensor, Tensor]:
    """The edges of the copies and the positions of their originals; ``first`` ``[R]`` are the copies of the node."""
    device = data.x.device
    source, target = data.edge_index[:, copies.edges]  # [P]
    rank = torch.full((data.x.size(0),), -1, dtype=torch.long, device=device)
    rank[copies.affected] = torch.arange(copies.affected.numel(), device=device)
    first = first.view(-1, 1)
    new_source = torch.where(rank[source] >= 0, first + rank[source], source)  # [R, P]
    new_target = first + rank[target]
    longest = max(map(len, copies.removed))
    removed = torch.tensor([[*one, *[-1] * (longest - len(one))] for one in copies.removed], device=device)  # [R, S]
    own = target == copies.node
    kept = torch.ones(len(copies.removed), copies.edges.numel(), dtype=torch.bool, device=device)
    kept[:, own] = (source[own].view(1, -1, 1) != removed.view(len(copies.removed), 1, -1)).all(dim=-1)
    return torch.stack([new_source[kept], new_target[kept]]), copies.edges.expand_as(new_source)[kept]
