"""Layers and networks, and the objects that they hand out."""

from torch_goat.nn.goat import GOAT
from torch_goat.nn.goat_conv import GOATConv
from torch_goat.nn.goat_net import GOATNet
from torch_goat.nn.ordering import Ordering
from torch_goat.nn.rnn_aggregation import RNNAggregation

__all__ = ["GOAT", "GOATConv", "GOATNet", "Ordering", "RNNAggregation"]
