"""What a network would say of a node if it did not read some of its neighbours."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

from torch_goat.experiments.models import JanossyConv, Network
from torch_goat.nn import GOATConv, Ordering

EDGES_AT_ONCE: Final = 1_000_000  # how many copied edges one forward pass reads


class Graph(NamedTuple):
    """What a network reads."""

    x: Tensor  # [N, F]
    edge_index: Tensor  # [2, E]
    edge_attr: Tensor | None = None  # [E, D]

    @classmethod
    def of(cls, data: Data) -> "Graph":
        """What a network reads of a PyG graph."""
        return cls(data.x, data.edge_index, data.get("edge_attr"))

    def run(self, network: Network) -> Tensor:
        """The network's output ``[N, C]``."""
        return self.run_with_orderings(network)[0]

    def run_with_orderings(self, network: Network) -> tuple[Tensor, list[Ordering]]:
        """The network's output ``[N, C]``, and how each GOAT layer reads the neighbours."""
        features = {} if self.edge_attr is None else {"edge_attr": self.edge_attr}
        with torch.no_grad():
            return network(self.x, self.edge_index, return_orderings=True, **features)


class Removal(NamedTuple):
    """A node, and neighbours whose edges to it are taken away."""

    node: int
    sources: tuple[int, ...]


class _Block(NamedTuple):
    """Removals at one node, and what they can change on the way to its output."""

    node: int
    sources: list[tuple[int, ...]]
    members: Tensor  # [M], the nodes that change, the node itself first
    edges: Tensor  # [P], the edges into them

    @property
    def size(self) -> int:
        """How many nodes and edges are copied."""
        return len(self.sources) * (self.members.numel() + self.edges.numel())


def outputs_without(network: Network, graph: Graph, removals: Sequence[Removal]) -> Tensor:
    """The network's output at a node for every removal, the edges being absent from every layer ``[R, C]``.

    All edges from the named neighbours to the node are taken away, in this direction alone: the neighbours still read
    the node. Instead of one graph per removal there is one graph in which the node stands once more for every removal,
    read by nobody, without those edges. With more than two layers the nodes through which it reads its own state are
    copied with it, and where the first layer is a GCN layer, which divides by the degrees of both ends, those of one
    step more. Networks that draw neighbours or orders at random draw by the numbers of the nodes, so that copies would
    draw others; they run once for every removal.

    Args:
        network: The network, in evaluation.
        graph: The graph.
        removals: What to take away.
    """
    if not removals:
        return graph.x.new_zeros(0, network.out_channels)
    if _draws(network):
        return torch.cat([_one(network, graph, removal) for removal in removals])
    by_node: dict[int, list[int]] = {}
    for number, removal in enumerate(removals):
        by_node.setdefault(removal.node, []).append(number)
    result: Tensor | None = None
    for numbers in _portions(network, graph, removals, by_node):
        out = _together(network, graph, [removals[number] for number in numbers])
        if result is None:
            result = out.new_empty(len(removals), out.size(1))
        result[torch.tensor(numbers, device=out.device)] = out
    assert result is not None
    return result


def neighbors(graph: Graph, node: int) -> Tensor:
    """The nodes with an edge to a node, each once, without itself, ascending."""
    found = graph.edge_index[0, graph.edge_index[1] == node].unique()
    return found[found != node]


def _draws(network: Network) -> bool:
    return any(
        isinstance(layer, JanossyConv)
        or (isinstance(layer, GOATConv) and layer.max_neighbors is not None and layer.neighbor_selection == "random")
        for layer in network.layers
    )


def _divides_by_degrees(network: Network) -> bool:
    return any(isinstance(layer, GCNConv) for layer in network.layers)


def _one(network: Network, graph: Graph, removal: Removal) -> Tensor:
    """The output at the node of one removal, on the whole graph ``[1, C]``."""
    source, target = graph.edge_index
    gone = (target == removal.node) & torch.isin(source, source.new_tensor(removal.sources))
    features = None if graph.edge_attr is None else graph.edge_attr[~gone]
    return Graph(graph.x, graph.edge_index[:, ~gone], features).run(network)[removal.node].view(1, -1)


def _portions(
    network: Network, graph: Graph, removals: Sequence[Removal], by_node: dict[int, list[int]]
) -> Iterator[list[int]]:
    """The numbers of the removals, in portions that a forward pass can hold."""
    portion: list[int] = []
    size = 0
    for node, numbers in by_node.items():
        block = _block(network, graph, node, [removals[numbers[0]].sources])
        for number in numbers:
            if portion and size + block.size > EDGES_AT_ONCE:
                yield portion
                portion, size = [], 0
            portion.append(number)
            size += block.size
    yield portion


def _together(network: Network, graph: Graph, removals: Sequence[Removal]) -> Tensor:
    """The outputs of a portion in one forward pass ``[R, C]``; removals at one node stand beside each other."""
    depth = len(network.layers) + _divides_by_degrees(network)
    nodes = torch.tensor(list(dict.fromkeys(removal.node for removal in removals)), device=graph.x.device)
    kept, edge_index, place, mask = k_hop_subgraph(
        nodes, depth, graph.edge_index, relabel_nodes=True, num_nodes=graph.x.size(0)
    )
    base = Graph(graph.x[kept], edge_index, None if graph.edge_attr is None else graph.edge_attr[mask])
    new_number = torch.full((graph.x.size(0),), -1, dtype=torch.long, device=graph.x.device)
    new_number[kept] = torch.arange(kept.numel(), device=graph.x.device)
    states, edges, features, first = [base.x], [edge_index], [base.edge_attr], []
    count = kept.numel()
    for node in place.tolist():
        number = int(kept[node])
        gone = [removal.sources for removal in removals if removal.node == number]
        local = [tuple(new_number[list(sources)].tolist()) for sources in gone]
        block = _block(network, base, node, local)
        copied, which, own = _copies(block, edge_index, count, kept.numel())
        states.append(base.x[block.members].repeat(len(local), 1))
        edges.append(copied)
        features.append(None if base.edge_attr is None else base.edge_attr[which])
        first.append(own)
        count += len(local) * block.members.numel()
    attributes = None if base.edge_attr is None else torch.cat([one for one in features if one is not None])
    out = Graph(torch.cat(states), torch.cat(edges, dim=1), attributes).run(network)
    return out[torch.cat(first)]


def _block(network: Network, graph: Graph, node: int, sources: list[tuple[int, ...]]) -> _Block:
    """The nodes whose states a removal changes on the way to the node's output, and the edges that they read."""
    source, target = graph.edge_index
    layers, sooner = len(network.layers), isinstance(network.layers[0], GCNConv)
    own = torch.tensor([node], device=source.device)
    if layers + sooner <= 2:  # the node's own states alone
        return _Block(node, sources, own, (target == node).nonzero().view(-1))
    after, before = (torch.zeros(graph.x.size(0), dtype=torch.bool, device=source.device) for _ in range(2))
    after[node] = before[node] = True
    changed = after.clone()
    reads = [before]  # the nodes whose states the output depends on through 0, 1, ... layers
    for _ in range(layers - 1):
        before = before.clone()
        before[source[before[target]]] = True
        reads.append(before)
    for layer in range(1, layers):
        if layer > 1 or sooner:  # what a layer gives differs wherever what it reads does
            after[target[after[source]]] = True
        changed |= after & reads[layers - layer]
    edges = changed[target].nonzero().view(-1)
    changed[node] = False
    return _Block(node, sources, torch.cat([own, changed.nonzero().view(-1)]), edges)


def _copies(block: _Block, edge_index: Tensor, start: int, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The edges of the copies, the edges that they are copies of, and the node's own copies.

    Args:
        block: The removals.
        edge_index: The edges of the graph that is copied from.
        start: The number of the first copy.
        num_nodes: How many nodes that graph has.
    """
    device = edge_index.device
    members, edges = block.members, block.edges
    source, target = edge_index[:, edges]  # [P]
    rank = torch.full((num_nodes,), -1, dtype=torch.long, device=device)
    rank[members] = torch.arange(members.numel(), device=device)
    offset = start + members.numel() * torch.arange(len(block.sources), device=device).view(-1, 1)  # [R, 1]
    inside = rank[source] >= 0
    new_source = torch.where(inside, offset + rank[source], source)  # [R, P]
    new_target = offset + rank[target]
    longest = max(map(len, block.sources))
    padded = torch.tensor([[*one, *[-1] * (longest - len(one))] for one in block.sources], device=device)  # [R, S]
    own = target == block.node
    gone = torch.zeros(len(block.sources), edges.numel(), dtype=torch.bool, device=device)
    gone[:, own] = (source[own].view(1, -1, 1) == padded.view(len(block.sources), 1, -1)).any(dim=-1)
    which = edges.expand_as(new_source)[~gone]
    return torch.stack([new_source[~gone], new_target[~gone]]), which, offset.view(-1)
