from collections.abc import Sequence
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.dense.linear import Linear

from torch_goat.nn.dropout import dropout as drop
from torch_goat.nn.goat_conv import GOATConv
from torch_goat.nn.ordering import Ordering


class GOATNet(Module):
    r"""The paper's network: an optional linear input, a GOAT layer, ELU, and a GAT or GCN layer.

    For classification the second layer gives the classes; for regression it gives ``second_channels`` and a linear
    layer follows.

    Args:
        in_channels: The width of the input, or ``-1`` to take it from the first call.
        hidden_channels: The width of one head of the GOAT layer.
        out_channels: The number of classes or of regression targets.
        heads: The number of heads of the GOAT layer.
        second: The second layer, ``"gat"`` (one head) or ``"gcn"``.
        input_channels: The width of a linear layer before the GOAT layer; none if ``None``.
        second_channels: The width of the second layer before a linear output; none, and no linear output, if ``None``.
        dropout: The probability of dropping an input element of either layer, and a coefficient of the attentions.
        **kwargs: Options of :class:`~torch_goat.nn.GOATConv`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        heads: int = 1,
        *,
        second: Literal["gat", "gcn"] = "gat",
        input_channels: int | None = None,
        second_channels: int | None = None,
        dropout: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if second not in ("gat", "gcn"):
            raise ValueError(f"second must be 'gat' or 'gcn', got {second!r}.")
        for name, width in (("input_channels", input_channels), ("second_channels", second_channels)):
            if width is not None and width < 1:
                raise ValueError(f"{name} must be at least 1 or None, got {width}.")
        if kwargs.get("edge_dim") is not None:
            raise ValueError(f"GOATNet reads no edge features, got edge_dim={kwargs['edge_dim']}; use GOAT for them.")
        self.dropout = dropout
        self.lin_in = None if input_channels is None else Linear(in_channels, input_channels)
        self.goat = GOATConv(input_channels or in_channels, hidden_channels, heads, dropout=dropout, **kwargs)
        width = hidden_channels * (heads if self.goat.head_pooling == "cat" else 1)
        last = second_channels or out_channels
        self.second = GATConv(width, last, dropout=dropout) if second == "gat" else GCNConv(width, last)
        self.lin_out = None if second_channels is None else Linear(second_channels, out_channels)

    def reset_parameters(self) -> None:
        for module in (self.lin_in, self.goat, self.second, self.lin_out):
            if module is not None:
                module.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        *,
        orderings: Sequence[Ordering] | None = None,
        return_orderings: bool = False,
    ) -> Any:
        """Runs the network.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges.
            orderings: One ordering to replay, as the network has one GOAT layer.
            return_orderings: Whether to return ``(out, orderings)``.
        """
        if orderings is not None and len(orderings) != 1:
            raise ValueError(f"orderings has {len(orderings)} entries, but there is 1 GOAT layer.")
        if self.lin_in is not None:
            x = self.lin_in(x)
        x = drop(x, self.dropout, self.training)
        replay = None if orderings is None else orderings[0]
        x = self.goat(x, edge_index, ordering=replay, return_ordering=return_orderings)
        x, ordering = x if return_orderings else (x, None)
        x = drop(F.elu(x), self.dropout, self.training)
        x = self.second(x, edge_index)
        if self.lin_out is not None:
            x = self.lin_out(F.elu(x))
        return (x, [ordering]) if return_orderings else x
