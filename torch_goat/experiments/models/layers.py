"""The layers of a network.

Every kind in :data:`KINDS` has a function that builds the layer for its place in a network, from the options of
:class:`ModelOptions` that the kind reads. The layer maps ``(x, edge_index)`` to new states, or
``(x, edge_index, edge_attr)`` if it was built to read edge features.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Identity, Module, Parameter
from torch_geometric import nn as pyg
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import zeros
from torch_geometric.utils import remove_self_loops

from torch_goat.experiments.models.fitted import Constant, Trees
from torch_goat.experiments.models.janossy import JanossyConv
from torch_goat.nn import GOATConv
from torch_goat.ops.neighborhoods import neighborhoods


class Place(NamedTuple):
    """The place of a layer in a network."""

    number: int  # in the network, from 0
    in_channels: int
    out_channels: int  # of one head
    degree: Tensor | None  # the number of nodes of the training graph with 0, 1, 2, ... neighbours
    edge_dim: int | None = None  # the number of edge features, for a kind that reads them


class Part(NamedTuple):
    """What a layer needs to know about the whole graph when it is applied to a part of it."""

    n_id: Tensor  # the part's nodes in the numbering of the whole graph [n]
    degree: Tensor | None  # the sizes of their closed neighbourhoods there [n], if any layer needs them


class Sampled(NamedTuple):
    """A part of a graph that was sampled hop by hop from a batch of nodes, which come first."""

    n_id: Tensor  # its nodes in the numbering of the whole graph [n]
    degree: Tensor | None  # the sizes of their closed neighbourhoods there [n]
    nodes: list[int]  # the number of nodes in the batch, found in the first hop, the second, ...
    edges: list[int]  # the number of edges sampled in the first hop, the second, ...

    def before(self, layers: int) -> tuple[Part, int, int]:
        """The input of the layer with this many layers from it to the last: nodes, how many it computes, edges."""
        read, targets, edges = sum(self.nodes[: layers + 1]), sum(self.nodes[:layers]), sum(self.edges[:layers])
        return Part(self.n_id[:read], None if self.degree is None else self.degree[:read]), targets, edges


class NodeLinear(Linear):
    """A linear map of each node's own state, which ignores the edges."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x)


class GraphConvolution(pyg.GCNConv):
    """PyG's ``GCNConv``, also for parts of a graph, whose degrees are those of the whole graph."""

    checks: bool | None = None  # as in GOATConv

    def forward(self, x: Tensor, edge_index: Tensor, degree: Tensor | None = None) -> Tensor:
        """Runs the layer; ``degree`` has the sizes of the closed neighbourhoods in the whole graph ``[N]``, if any.

        Sampled edges are scaled up, so that their sum has the right expectation.
        """
        if degree is None:
            source, target = edge_index = _closed(edge_index, x.size(0), self.checks)
            scale = x.new_zeros(x.size(0)).index_add(0, target, x.new_ones(target.size(0))).pow(-0.5)
            return self.propagate(edge_index, x=self.lin(x), edge_weight=scale[source] * scale[target]) + self.bias
        edge_index, _ = remove_self_loops(edge_index)
        source, target = edge_index
        there = torch.bincount(target, minlength=x.size(0)).clamp(min=1)
        scale, times = degree.to(x.dtype).rsqrt(), (degree - 1).to(x.dtype) / there
        states = self.lin(x)
        out = self.propagate(edge_index, x=states, edge_weight=scale[source] * scale[target] * times[target])
        return out + states * scale.square().view(-1, 1) + self.bias


class _Closed(pyg.MessagePassing):
    """An attention layer of PyG that takes edges with self loops from a cache.

    PyG adds them in every call, and waits for the device to count them. With edge features it still does, since those
    of a self loop are computed from its neighbours'. Without ``closed`` there are none.
    """

    checks: bool | None = None  # as in GOATConv

    def __init__(self, *widths: int, edge_dim: int | None, closed: bool = True, **options: Any) -> None:
        super().__init__(*widths, edge_dim=edge_dim, add_self_loops=closed and edge_dim is not None, **options)
        self._cached = closed and edge_dim is None

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        edge_index = _closed(edge_index, x.size(0), self.checks) if self._cached else edge_index
        return super().forward(x, edge_index, edge_attr)


class GraphAttention(_Closed, pyg.GATConv):
    """PyG's ``GATConv``."""


class DynamicGraphAttention(_Closed, pyg.GATv2Conv):
    """PyG's ``GATv2Conv``."""


class MeanSAGE(pyg.SAGEConv):
    """PyG's ``SAGEConv`` with the mean, which projects before averaging if that is narrower.

    The mean of projected states is the projected mean. PyG averages first, in the full width for every edge, which does
    not fit on a GPU for graphs with many edges and thousands of features.
    """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.in_channels <= self.out_channels:
            return super().forward(x, edge_index)
        states = F.linear(x, self.lin_l.weight)
        return self.propagate(edge_index, x=(states, states), size=None) + self.lin_l.bias + self.lin_r(x)


class SumOfHeads(Module):
    """A PyG attention layer, built to average its heads and without a bias, whose heads are summed instead."""

    def __init__(self, conv: pyg.MessagePassing) -> None:
        super().__init__()
        self.conv = conv
        self.bias = Parameter(torch.empty(conv.out_channels))
        zeros(self.bias)

    def reset_parameters(self) -> None:
        self.conv.reset_parameters()
        zeros(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return self.conv.heads * self.conv(x, edge_index, edge_attr) + self.bias


def _closed(edge_index: Tensor, num_nodes: int, checks: bool | None) -> Tensor:
    """The edges with one self loop at every node, after the others."""
    return neighborhoods(edge_index, (num_nodes, num_nodes), add_self_loops=True, checks=checks).edge_index


def build_norm(norm: str, channels: int) -> Module:
    """Builds a normalisation by its name; a single node is normalised as in evaluation, also in training."""
    if norm == "batch":
        return pyg.BatchNorm(channels, allow_single_element=True)
    return pyg.LayerNorm(channels, mode="node") if norm == "layer" else Identity()


def degree_histogram(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Counts the nodes with 0, 1, 2, ... incoming edges, which PNA needs of the training graph.

    Args:
        edge_index: The edges ``[2, E]``.
        num_nodes: The number of nodes.
    """
    return torch.bincount(torch.bincount(edge_index[1], minlength=num_nodes))


def _plain(conv: Callable[..., Module], place: Place, **options: Any) -> Module:
    return conv(place.in_channels, place.out_channels, **options)


def _janossy(place: Place, *, permutation_lengths: tuple[int, ...], **options: Any) -> Module:
    length = permutation_lengths[min(place.number, len(permutation_lengths) - 1)]
    return JanossyConv(place.in_channels, place.out_channels, length, **options)


def _gin(place: Place, *, activation: str, norm: str) -> Module:
    widths = [place.in_channels, place.out_channels, place.out_channels]
    return pyg.GINConv(pyg.MLP(widths, act=activation, norm=build_norm(norm, place.out_channels)))


def _attention(
    conv: Callable[..., pyg.MessagePassing],
    place: Place,
    *,
    heads: int,
    head_pooling: str,
    attention_dropout: float,
    separate_self: bool,
) -> Module:
    widths = place.in_channels, place.out_channels, heads
    build = partial(conv, *widths, dropout=attention_dropout, edge_dim=place.edge_dim, closed=not separate_self)
    return SumOfHeads(build(concat=False, bias=False)) if head_pooling == "sum" else build(concat=head_pooling == "cat")


def _pna(place: Place, *, aggregators: tuple[str, ...], scalers: tuple[str, ...]) -> Module:
    if place.degree is None:
        raise ValueError("a pna layer needs the degrees of the training graph; pass degree=degree_histogram(...).")
    if int(place.degree[1:].sum()) == 0:
        raise ValueError("a pna layer scales by the mean degree, but the graph of its degree histogram has no edges.")
    return pyg.PNAConv(place.in_channels, place.out_channels, list(aggregators), list(scalers), place.degree)


def _goat(
    conv: Callable[..., GOATConv],
    place: Place,
    *,
    max_neighbors: int,
    attention_dropout: float,
    separate_self: bool = False,
    **options: Any,
) -> Module:
    if separate_self:
        options["add_self_loops"] = False
    options |= {"max_neighbors": max_neighbors or None, "dropout": attention_dropout, "edge_dim": place.edge_dim}
    return conv(place.in_channels, place.out_channels, **options)


BUILD: dict[str, Callable[..., Module]] = {
    "constant": lambda place: Constant(place.out_channels),
    "linear": lambda place, **fit: _plain(NodeLinear, place),
    "trees": lambda place, **fit: Trees(place.out_channels),
    "mlp": partial(_plain, NodeLinear),
    "gcn": partial(_plain, GraphConvolution),
    "sage-mean": partial(_plain, MeanSAGE),
    "sage-max": partial(_plain, partial(pyg.SAGEConv, aggr="max")),
    "sage-lstm": partial(_plain, JanossyConv),
    "gin": _gin,
    "gat": partial(_attention, GraphAttention),
    "gatv2": partial(_attention, DynamicGraphAttention),
    "pna": _pna,
    "janossy": _janossy,
    "goat": partial(_goat, GOATConv),
    "goat-paper": partial(_goat, GOATConv.paper),
}
"""Builds the layer of a kind, from its place and the options that it reads, by keyword; fits read theirs later."""
