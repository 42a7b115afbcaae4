"""Layers and networks for PyTorch Geometric."""

from torch_goat.nn.goat import GOAT as GOAT
from torch_goat.nn.goat_conv import GOATConv as GOATConv
from torch_goat.nn.headwise_mlp import HeadwiseMLP as HeadwiseMLP
from torch_goat.nn.ordering import Ordering as Ordering
from torch_goat.nn.rnn_aggregation import RNNAggregation as RNNAggregation
from torch_goat.ops.neighborhoods import Neighborhoods as Neighborhoods
