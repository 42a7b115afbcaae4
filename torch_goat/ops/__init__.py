"""Tensor functions of the paper: neighbourhoods, sorting (equation 2), softmax and RNN over segments (equation 3)."""

from torch_goat.ops.adjacency import to_edges
from torch_goat.ops.neighborhoods import Neighborhoods, neighborhoods
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.backends import segment_rnn
from torch_goat.ops.segments import Segments, segment_softmax, segment_sum
from torch_goat.ops.selection import keep_random, keep_top, random_order
from torch_goat.ops.sort import sort_tokens
from torch_goat.ops.weighted_mean import weighted_mean

__all__ = [
    "Neighborhoods",
    "Places",
    "Segments",
    "keep_random",
    "keep_top",
    "neighborhoods",
    "random_order",
    "segment_rnn",
    "segment_softmax",
    "segment_sum",
    "sort_tokens",
    "to_edges",
    "weighted_mean",
]
