"""Layers and networks for PyTorch Geometric."""

from torch_goat.nn.goat import GOAT
from torch_goat.nn.goat_conv import GOATConv
from torch_goat.nn.ordering import Ordering
from torch_goat.nn.rnn_aggregation import RNNAggregation
from torch_goat.ops.neighborhoods import Neighborhoods

__all__ = ["GOAT", "GOATConv", "Neighborhoods", "Ordering", "RNNAggregation"]
