from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset

from torch_goat.models.layers import KINDS, Place, build_norm
from torch_goat.models.options import ModelOptions
from torch_goat.nn import GOATConv, Ordering

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"elu": F.elu, "relu": F.relu}


class Network(Module):
    """Encoder, layers and linear output, as :class:`~torch_goat.models.ModelOptions` describes them.

    Args:
        options: The network's options.
        in_channels: The width of the input.
        out_channels: The number of classes or of regression targets.
        degree: How many nodes of the training graph have 0, 1, 2, ... neighbours, as
            :func:`~torch_goat.models.degree_histogram` counts them; pna layers need it, others do not look at it.
        edge_dim: The number of edge features, which the attention and GOAT layers of the network read; 0 is none.
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
        if edge_dim and not any(KINDS[kind].edges for kind in options.kinds):
            chain = " -> ".join(options.kinds)
            raise ValueError(f"no layer of this network ({chain}) reads edge features; leave them out.")
        self.options, self.in_channels, self.out_channels, self.edge_dim = options, in_channels, out_channels, edge_dim
        self.encoder = Linear(in_channels, options.input_channels) if options.input_channels else None
        self.layers, self.residuals, self.norms = ModuleList(), ModuleList(), ModuleList()
        width = options.input_channels or in_channels
        for number, kind in enumerate(options.kinds):
            before, last = width, number == options.num_layers - 1
            edges = edge_dim if edge_dim and KINDS[kind].edges else None
            place = Place(number, before, options.channels(number, out_channels), degree, edges)
            values = {name: getattr(options, name) for name in KINDS[kind].reads}
            if last and "heads" in values:
                values |= {"heads": 1, "head_pooling": "cat"}
            self.layers.append(KINDS[kind].build(place, **values))
            width = place.out_channels * (values.get("heads", 1) if values.get("head_pooling") == "cat" else 1)
            if options.residual:
                self.residuals.append(Linear(before, width, bias=False, weight_initializer="glorot"))
            if options.linear_output or not last:
                self.norms.append(build_norm(options.norm, width))
        self.output = Linear(width, out_channels) if options.linear_output else None

    @property
    def num_orderings(self) -> int:
        """The number of GOAT layers, each of which has an ordering."""
        return sum(isinstance(layer, GOATConv) for layer in self.layers)

    def reset_parameters(self) -> None:
        for module in self.children():
            reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        orderings: Sequence[Ordering | None] | None = None,
        return_orderings: bool = False,
    ) -> Any:
        """Runs the network.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges ``[2, E]``.
            edge_attr: Their features ``[E, edge_dim]``, if the network was built to read them.
            orderings: One ordering to replay per GOAT layer (``None``: sort).
            return_orderings: Whether to return ``(out, orderings)``.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"x must have shape [nodes, {self.in_channels}], got {list(x.shape)}.")
        shape = None if edge_attr is None else list(edge_attr.shape)
        if shape != ([edge_index.size(1), self.edge_dim] if self.edge_dim else None):
            raise ValueError(
                f"edge_attr has shape {shape}, but the network reads {self.edge_dim} features of each edge."
            )
        if orderings is not None and len(orderings) != self.num_orderings:
            raise ValueError(f"orderings has {len(orderings)} entries, but there are {self.num_orderings} GOAT layers.")
        replay = iter(orderings or [None] * self.num_orderings)
        used: list[Ordering] = []
        if self.encoder is not None:
            x = self.encoder(x)
        for number, (layer, kind) in enumerate(zip(self.layers, self.options.kinds, strict=True)):
            edges = (edge_attr,) if edge_attr is not None and KINDS[kind].edges else ()
            x = F.dropout(x, p=self.options.dropout, training=self.training)
            if isinstance(layer, GOATConv):
                out = layer(x, edge_index, *edges, ordering=next(replay), return_ordering=return_orderings)
                if return_orderings:
                    out, ordering = out
                    used.append(ordering)
            else:
                out = layer(x, edge_index, *edges)
            if self.residuals:
                out = out + self.residuals[number](x)
            if number < len(self.norms):
                out = _ACTIVATIONS[self.options.activation](self.norms[number](out))
            x = out
        if self.output is not None:
            x = self.output(x)
        return (x, used) if return_orderings else x


def build(
    options: ModelOptions, in_channels: int, out_channels: int, *, degree: Tensor | None = None, edge_dim: int = 0
) -> Network:
    """The network that the options describe; the arguments are those of :class:`Network`."""
    return Network(options, in_channels, out_channels, degree=degree, edge_dim=edge_dim)
