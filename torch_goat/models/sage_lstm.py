from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.models.basic_gnn import BasicGNN

from torch_goat.sequence import RNNAggregation


class GraphSAGELSTM(BasicGNN):
    """GraphSAGE with an LSTM that reads the neighbours in a random order, drawn anew in every training step.

    Built on :class:`~torch_goat.nn.RNNAggregation`, so that a node's result does not depend on the degrees of others.
    In evaluation neighbours are read in the order of ``edge_index``. The arguments are those of PyG's ``GraphSAGE``.
    """

    supports_edge_weight: Final[bool] = False
    supports_edge_attr: Final[bool] = False

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> SAGEConv:
        return SAGEConv(in_channels, out_channels, aggr=RNNAggregation(in_channels, in_channels), **kwargs)

    def forward(self, x: Tensor, edge_index: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.training:
            edge_index = edge_index[:, torch.randperm(edge_index.size(1), device=edge_index.device)]
        return super().forward(x, edge_index, *args, **kwargs)
