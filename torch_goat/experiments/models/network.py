from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, cat
from torch.nn import Identity, Module, ModuleList, ReLU, Sequential
from torch_geometric.data import Data
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset
from torch_geometric.utils import is_torch_sparse_tensor

from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.models.layers import BUILD, Part, Place, Sampled, build_norm
from torch_goat.experiments.models.options import ModelOptions
from torch_goat.nn import GOATConv, Ordering
from torch_goat.nn.dropout import dropout
from torch_goat.ops.adjacency import to_edges
from torch_goat.ops.checks import check_choice

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"elu": F.elu, "relu": F.relu}


class Network(Module):
    """Encoder, layers and linear output, as :class:`~torch_goat.experiments.models.ModelOptions` describes them.

    Args:
        options: The network's options.
        in_channels: The width of the input.
        out_channels: The number of classes or of regression targets.
        degree: The number of nodes of the training graph with 0, 1, 2, ... neighbours (:func:`degree_histogram`), which
            pna layers need.
        edge_dim: The number of edge features, which attention and GOAT layers read; 0 for none.
    """

    def __init__(
        self,
        options: ModelOptions,
        in_channels: int,
        out_channels: int,
        *,
        degree: Tensor | None = None,
        edge_dim: int = 0,
    ) -> None:
        super().__init__()
        if in_channels < 1 or out_channels < 1:
            raise ValueError(f"in_channels and out_channels must be at least 1, got {in_channels} and {out_channels}.")
        if edge_dim < 0:
            raise ValueError(f"edge_dim must be at least 0, got {edge_dim}.")
        if edge_dim and not any(KINDS[kind].edges for kind in options.kinds):
            chain = " -> ".join(options.kinds)
            raise ValueError(f"no layer of this network ({chain}) reads edge features; leave them out.")
        self.options, self.in_channels, self.out_channels, self.edge_dim = options, in_channels, out_channels, edge_dim
        self.encoder = Linear(in_channels, options.input_channels) if options.input_channels else None
        self.layers, self.joins, self.residuals, self.norms = (ModuleList() for _ in range(4))
        width = options.input_channels or in_channels
        for number, kind in enumerate(options.kinds):
            before, last = width, number == len(options.kinds) - 1
            edges = edge_dim if edge_dim and KINDS[kind].edges else None
            place = Place(number, before, options.channels(number, out_channels), degree, edges)
            values = {name: getattr(options, name) for name in KINDS[kind].reads}
            if last and "heads" in values:
                values |= {"heads": options.last_heads, "head_pooling": "cat"}
            self.layers.append(BUILD[kind](place, **values))
            width = place.out_channels * (values.get("heads", 1) if values.get("head_pooling") == "cat" else 1)
            if options.separate_self:
                apart = "separate_self" in values
                self.joins.append(Linear(before + width, width) if apart else Identity())
            if options.residual:
                self.residuals.append(Linear(before, width, bias=False, weight_initializer="glorot"))
            if options.linear_output or not last:
                self.norms.append(build_norm(options.norm, width))
        self.output: Module | None = Linear(width, out_channels) if options.linear_output else None
        if between := options.output_channels:
            self.output = Sequential(Linear(width, between), ReLU(), Linear(between, out_channels))

    @property
    def num_orderings(self) -> int:
        """The number of GOAT layers, each of which has an ordering."""
        return self.options.num_orderings

    def reset_parameters(self) -> None:
        for module in self.children():
            reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        order_by: Tensor | None = None,
        orderings: Sequence[Ordering | None] | None = None,
        return_orderings: bool = False,
        sampled: Sampled | None = None,
    ) -> Any:
        """Runs the network.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges, in any form that :class:`~torch_goat.nn.GOATConv` takes.
            edge_attr: Their features ``[E, edge_dim]``, if the network was built to read them.
            order_by: One number per edge ``[E]``, in whose decreasing order GOAT layers read their neighbours, if the
                network was built with ``given_order``.
            orderings: One ordering to replay per GOAT layer (``None``: sort).
            return_orderings: Whether to return ``(out, orderings)``.
            sampled: How the graph was sampled from a larger one; then the output is that of the batch's nodes.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"x must have shape [nodes, {self.in_channels}], got {list(x.shape)}.")
        if (order_by is not None) != self.options.given_order:
            raise ValueError(
                f"order_by is {'missing' if order_by is None else 'given'}, but the network has given_order="
                f"{self.options.given_order}; pass one number per edge exactly if it is True."
            )
        if order_by is not None and is_torch_sparse_tensor(edge_index):
            raise ValueError("order_by cannot be combined with a sparse adjacency; pass edge_index as [2, E].")
        # PyG's layers need it too: PyTorch's gather and scatter give wrong results for expanded int32 indices.
        edge_index, _ = to_edges(edge_index, None, None, x.size(0), x.size(0))
        shape = None if edge_attr is None else list(edge_attr.shape)
        if shape != ([edge_index.size(1), self.edge_dim] if self.edge_dim else None):
            raise ValueError(
                f"edge_attr has shape {shape}, but the network reads {self.edge_dim} features of each edge."
            )
        if orderings is not None and len(orderings) != self.num_orderings:
            raise ValueError(f"orderings has {len(orderings)} entries, but there are {self.num_orderings} GOAT layers.")
        replay = iter(orderings or [None] * self.num_orderings)
        used: list[Ordering] = []
        x, part, targets = self.encode(x), None, None
        if sampled is not None and len(sampled.edges) != len(self.layers):
            raise ValueError(
                f"{len(sampled.edges)} hops were sampled, but the network has {len(self.layers)} layers; sample one "
                "hop for each layer."
            )
        for number, layer in enumerate(self.layers):
            if sampled is not None:  # each layer computes only the nodes that the next one reads
                part, targets, edges = sampled.before(len(self.layers) - number)
                edge_index, edge_attr = edge_index[:, :edges], None if edge_attr is None else edge_attr[:edges]
                order_by = None if order_by is None else order_by[:edges]
            ordering = next(replay) if isinstance(layer, GOATConv) else None
            held: dict[str, Any] = {"order_by": order_by, "ordering": ordering, "return_ordering": return_orderings}
            x, ordering = self.run_layer(number, x, edge_index, edge_attr, part, targets, **held)
            if ordering is not None:
                used.append(ordering)
        x = self.decode(x)
        return (x, used) if return_orderings else x

    def on(self, data: Data, **options: Any) -> Any:
        """Runs the network on a graph with the features of its edges and, with ``given_order``, their ``edge_key``."""
        order_by = data.get("edge_key") if self.options.given_order else None
        return self(data.x, data.edge_index, data.edge_attr, order_by=order_by, **options)

    @property
    def encodes(self) -> bool:
        """Whether :meth:`encode` changes the input."""
        return self.encoder is not None or self.options.input_gain != 1

    def encode(self, x: Tensor) -> Tensor:
        """Maps the input to the states that the first layer reads."""
        if self.options.input_gain != 1:
            x = self.options.input_gain * x
        return x if self.encoder is None else self.encoder(x)

    def decode(self, x: Tensor) -> Tensor:
        """Maps the states after the last layer to the output."""
        return x if self.output is None else self.output(x)

    def run_layer(
        self,
        number: int,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        part: Part | None = None,
        targets: int | None = None,
        *,
        order_by: Tensor | None = None,
        ordering: Ordering | None = None,
        return_ordering: bool = False,
    ) -> tuple[Tensor, Ordering | None]:
        """Runs a layer with the dropout before it and the node's own state, normalisation and activation after it.

        ``targets`` is how many nodes to compute, the first ones; all of them if ``None``. Returns the states after the
        layer, and the ordering of a GOAT layer if requested.
        """
        layer, kind = self.layers[number], KINDS[self.options.kinds[number]]
        edges = (edge_attr,) if edge_attr is not None and kind.edges else ()
        whole = {kind.whole: getattr(part, kind.whole)} if part is not None and kind.whole else {}
        x = dropout(x, self.options.dropout, self.training)
        used, own = None, x[:targets]
        if isinstance(layer, GOATConv):
            states = x if targets is None else (x, own)
            whole |= {} if order_by is None else {"order_by": order_by}
            out = layer(states, edge_index, *edges, ordering=ordering, return_ordering=return_ordering, **whole)
            if return_ordering:
                out, used = out
        else:
            out = layer(x, edge_index, *edges, **whole)[:targets]
        if self.joins and "separate_self" in kind.reads:
            out = self.joins[number](cat([own, out], dim=-1))
        if self.residuals:
            out = out + self.residuals[number](own)
        if number < len(self.norms):
            out = _ACTIVATIONS[self.options.activation](self.norms[number](out))
        return out, used


def paper_network(
    in_channels: int,
    hidden_channels: int,
    out_channels: int,
    heads: int = 1,
    *,
    second: Literal["gat", "gcn"] = "gat",
    input_channels: int = 0,
    second_channels: int = 0,
    dropout: float = 0.5,
    **options: Any,
) -> Network:
    """Builds the paper's network: an optional linear encoder, a GOAT layer, ELU, and a GAT or GCN layer.

    Args:
        in_channels: The width of the input.
        hidden_channels: The width of one head of the GOAT layer.
        out_channels: The number of classes or of regression targets.
        heads: The number of heads of the GOAT layer.
        second: The second layer, ``"gat"`` (one head) or ``"gcn"``.
        input_channels: The width of the encoder; 0 for none.
        second_channels: The width of the second layer, followed by ELU and a linear output, as the paper does for
            regression; with 0 the second layer gives the output.
        dropout: The dropout probability of the input of both layers and of the attention coefficients.
        **options: Further fields of :class:`ModelOptions`, for example ``name="goat-paper"`` for the paper's equations
            exactly.
    """
    check_choice("second", second, "gat", "gcn")
    options.setdefault("attention_dropout", dropout)
    chosen = ModelOptions(
        **options,
        last=second,
        hidden_channels=hidden_channels,
        heads=heads,
        input_channels=input_channels,
        last_channels=second_channels,
        dropout=dropout,
    )
    return Network(chosen, in_channels, out_channels)
