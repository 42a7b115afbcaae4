"""The kinds of layer that a network is made of.

A kind is a function that builds the layer for its place in a network. What the function takes by keyword are options of
:class:`ModelOptions`, by their names: its signature says which options a layer reads. The layer maps
``(x, edge_index)`` to new states, or ``(x, edge_index, edge_attr)`` if it was built to read edge features.
"""

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Identity, Module, Parameter
from torch_geometric.nn import (
    MLP,
    BatchNorm,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    LayerNorm,
    MessagePassing,
    PNAConv,
    SAGEConv,
)
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import zeros
from torch_geometric.utils import remove_self_loops

from torch_goat.experiments.models.janossy import JanossyConv
from torch_goat.nn import GOATConv
from torch_goat.ops.neighborhoods import neighborhoods

AGGREGATORS = ("sum", "mean", "min", "max", "var", "std")
SCALERS = ("identity", "amplification", "attenuation", "linear", "inverse_linear")


class Place(NamedTuple):
    """Where a layer stands."""

    number: int  # in the network, from 0
    in_channels: int
    out_channels: int  # of one head
    degree: Tensor | None  # how many nodes of the training graph have 0, 1, 2, ... neighbours
    edge_dim: int | None = None  # the number of edge features, of a kind that reads them


class Part(NamedTuple):
    """What a layer that is given a part of a graph may have to know of the whole."""

    n_id: Tensor  # the numbers of the part's nodes there [n]
    degree: Tensor | None  # the sizes of their closed neighbourhoods there [n], if any layer asks for them


class Sampled(NamedTuple):
    """A part of a graph that a sampler drew hop by hop from a batch of nodes, which stand first."""

    n_id: Tensor  # the numbers of its nodes in the graph [n]
    degree: Tensor | None  # the sizes of their closed neighbourhoods there [n]
    nodes: list[int]  # how many the batch has, how many the first hop found, the second, ...
    edges: list[int]  # how many edges were drawn in the first hop, the second, ...

    def before(self, layers: int) -> tuple[Part, int, int]:
        """What a layer reads that is followed by others: its nodes, how many it computes, and how many edges.

        Args:
            layers: How many layers there are from this one on.
        """
        read, targets, edges = sum(self.nodes[: layers + 1]), sum(self.nodes[:layers]), sum(self.edges[:layers])
        return Part(self.n_id[:read], None if self.degree is None else self.degree[:read]), targets, edges


@cache
def _by_keyword(build: Callable[..., Module]) -> frozenset[str]:
    """What a function takes by keyword alone."""
    parameters = inspect.signature(build).parameters.values()
    return frozenset(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)


class Kind(NamedTuple):
    """A kind of layer."""

    description: str
    build: Callable[..., Module]  # from a place and the options that it reads
    bounded: bool = False  # its output is an RNN's state, within (-1, 1) and of even width: never a network's output
    last: str = ""  # the kind of the last layer in a network of this one, unless said otherwise; "" is this one
    more: frozenset[str] = frozenset()  # options that it reads besides, as the layer's own constructor names them
    edges: bool = False  # whether it reads edge features
    whole: str = ""  # what of the whole graph it must be told with a part of it: a field of Part

    @property
    def reads(self) -> frozenset[str]:
        """The options that the layer reads."""
        return self.more | _by_keyword(self.build)


class NodeLinear(Linear):
    """A linear map of each node's own state: a layer that reads no edges."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x)


class GraphConvolution(GCNConv):
    """PyG's ``GCNConv``, whose weights are made of degrees, for parts of a graph too."""

    def forward(self, x: Tensor, edge_index: Tensor, degree: Tensor | None = None) -> Tensor:
        """Runs the layer.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges ``[2, E]``.
            degree: The sizes of the nodes' closed neighbourhoods in the graph that this is a part of ``[N]``. Where
                only some of a node's edges are there, each stands for several, so that their sum is right on average.
        """
        if degree is None:
            source, target = edge_index = _closed(edge_index, x.size(0))
            scale = x.new_zeros(x.size(0)).index_add(0, target, x.new_ones(target.size(0))).pow(-0.5)
            return self.propagate(edge_index, x=self.lin(x), edge_weight=scale[source] * scale[target]) + self.bias
        edge_index, _ = remove_self_loops(edge_index)
        source, target = edge_index
        there = torch.bincount(target, minlength=x.size(0)).clamp(min=1)
        scale, times = degree.to(x.dtype).rsqrt(), (degree - 1).to(x.dtype) / there
        states = self.lin(x)
        out = self.propagate(edge_index, x=states, edge_weight=scale[source] * scale[target] * times[target])
        return out + states * scale.square().view(-1, 1) + self.bias


class _Closed(MessagePassing):
    """An attention layer of PyG whose edges get their self loops from what is kept of a graph.

    PyG would make them in every call, and wait for the device to count them. With edge features it still does, since
    those of a self loop come from its neighbours'.
    """

    def __init__(self, *widths: int, edge_dim: int | None, **options: Any) -> None:
        super().__init__(*widths, edge_dim=edge_dim, add_self_loops=edge_dim is not None, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        edge_index = edge_index if self.add_self_loops else _closed(edge_index, x.size(0))
        return super().forward(x, edge_index, edge_attr)


class GraphAttention(_Closed, GATConv):
    """PyG's ``GATConv``."""


class DynamicGraphAttention(_Closed, GATv2Conv):
    """PyG's ``GATv2Conv``."""


class MeanSAGE(SAGEConv):
    """PyG's ``SAGEConv`` with the mean, which projects before it averages where that is narrower.

    The mean of projected states is the projected mean. PyG averages first, with the whole width for every edge, which
    does not fit a GPU for graphs of many edges and thousands of features.
    """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.in_channels <= self.out_channels:
            return super().forward(x, edge_index)
        states = F.linear(x, self.lin_l.weight)
        return self.propagate(edge_index, x=(states, states), size=None) + self.lin_l.bias + self.lin_r(x)


class SumOfHeads(Module):
    """An attention layer of PyG whose heads are added up, a way of joining them that PyG does not have.

    Args:
        conv: The layer, built to average its heads and without a bias.
    """

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__()
        self.conv = conv
        self.bias = Parameter(torch.empty(conv.out_channels))
        zeros(self.bias)

    def reset_parameters(self) -> None:
        self.conv.reset_parameters()
        zeros(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return self.conv.heads * self.conv(x, edge_index, edge_attr) + self.bias


def _closed(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The edges with one self loop at every node, behind the others."""
    return neighborhoods(edge_index, (num_nodes, num_nodes), add_self_loops=True).edge_index


def build_norm(norm: str, channels: int) -> Module:
    """A normalisation by its name in the options; a single node in training is normalised as in evaluation."""
    if norm == "batch":
        return BatchNorm(channels, allow_single_element=True)
    return LayerNorm(channels, mode="node") if norm == "layer" else Identity()


def degree_histogram(edge_index: Tensor, num_nodes: int) -> Tensor:
    """How many nodes have 0, 1, 2, ... incoming edges: what PNA is told of the training graph.

    Args:
        edge_index: The edges ``[2, E]``.
        num_nodes: The number of nodes.
    """
    return torch.bincount(torch.bincount(edge_index[1], minlength=num_nodes))


def _mlp(place: Place) -> Module:
    return NodeLinear(place.in_channels, place.out_channels)


def _gcn(place: Place) -> Module:
    return GraphConvolution(place.in_channels, place.out_channels)


def _sage_mean(place: Place) -> Module:
    return MeanSAGE(place.in_channels, place.out_channels)


def _sage_max(place: Place) -> Module:
    return SAGEConv(place.in_channels, place.out_channels, aggr="max")


def _sage_lstm(place: Place, *, rnn: str, backend: str) -> Module:
    return JanossyConv(place.in_channels, place.out_channels, rnn=rnn, backend=backend)


def _janossy(
    place: Place, *, permutation_lengths: tuple[int, ...], permutations: int, rnn: str, backend: str
) -> Module:
    length = permutation_lengths[min(place.number, len(permutation_lengths) - 1)]
    return JanossyConv(place.in_channels, place.out_channels, length, permutations, rnn, backend)


def _gin(place: Place, *, activation: str, norm: str) -> Module:
    widths = [place.in_channels, place.out_channels, place.out_channels]
    return GINConv(MLP(widths, act=activation, norm=build_norm(norm, place.out_channels)))


def _attention(
    conv: Callable[..., MessagePassing], place: Place, *, heads: int, head_pooling: str, attention_dropout: float
) -> Module:
    build = partial(
        conv, place.in_channels, place.out_channels, heads, dropout=attention_dropout, edge_dim=place.edge_dim
    )
    return SumOfHeads(build(concat=False, bias=False)) if head_pooling == "sum" else build(concat=head_pooling == "cat")


def _pna(place: Place, *, aggregators: tuple[str, ...], scalers: tuple[str, ...]) -> Module:
    if place.degree is None:
        raise ValueError("a pna layer needs the degrees of the training graph; pass degree=degree_histogram(...).")
    if int(place.degree[1:].sum()) == 0:
        raise ValueError("a pna layer scales by the mean degree, but the graph of its degree histogram has no edges.")
    return PNAConv(place.in_channels, place.out_channels, list(aggregators), list(scalers), place.degree)


def _goat(
    conv: Callable[..., GOATConv],
    place: Place,
    *,
    heads: int,
    head_pooling: str,
    attention: str,
    rnn: str,
    bidirectional: bool,
    max_neighbors: int,
    neighbor_selection: str,
    attention_dropout: float,
    backend: str,
    **more: Any,
) -> Module:
    return conv(
        place.in_channels,
        place.out_channels,
        heads,
        head_pooling=head_pooling,
        attention=attention,
        rnn=rnn,
        bidirectional=bidirectional,
        max_neighbors=max_neighbors or None,
        neighbor_selection=neighbor_selection,
        dropout=attention_dropout,
        edge_dim=place.edge_dim,
        backend=backend,
        **more,
    )


KINDS: dict[str, Kind] = {
    "mlp": Kind("linear maps of each node alone, without the graph", _mlp),
    "gcn": Kind("graph convolution: the mean over neighbours, weighted by degrees", _gcn, whole="degree"),
    "sage-mean": Kind("GraphSAGE with the mean over neighbours", _sage_mean),
    "sage-max": Kind("GraphSAGE with the maximum over neighbours", _sage_max),
    "sage-lstm": Kind("GraphSAGE with an LSTM that reads all neighbours in a random order", _sage_lstm, whole="n_id"),
    "gin": Kind("graph isomorphism network: an MLP on the sum over neighbours", _gin),
    "gat": Kind("graph attention", partial(_attention, GraphAttention), edges=True),
    "gatv2": Kind("graph attention with dynamic scores", partial(_attention, DynamicGraphAttention), edges=True),
    "pna": Kind("principal neighbourhood aggregation: several aggregators, scaled by degree", _pna),
    "janossy": Kind("Janossy pooling: the mean of RNNs over sampled orders of some neighbours", _janossy, whole="n_id"),
    "goat": Kind(
        "graph ordering attention",
        partial(_goat, GOATConv),
        bounded=True,
        last="gat",
        more=frozenset({"add_self_loops", "mean_residual", "scaling", "state_norm", "state_dropout", "rnn_init"}),
        edges=True,
        whole="n_id",
    ),
    "goat-paper": Kind(
        "graph ordering attention, the paper's equations exactly",
        partial(_goat, GOATConv.paper),
        bounded=True,
        last="gat",
        edges=True,
        whole="n_id",
    ),
}
