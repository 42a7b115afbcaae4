"""Layers and networks, and the objects that they hand out."""

from torch_goat.nn.goat import GOAT
from torch_goat.nn.goat_conv import GOATConv
from torch_goat.nn.goat_net import GOATNet
from torch_goat.ordering import Ordering
from torch_goat.sequence import RNNAggregation

__all__ = ["GOAT", "GOATConv", "GOATNet", "Ordering", "RNNAggregation"]
