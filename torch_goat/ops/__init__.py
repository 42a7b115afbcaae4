"""Tensor functions of the paper: neighbourhoods, sorting (equation 2), softmax and RNN over segments (equation 3)."""

from torch_goat.ops.adjacency import to_edges as to_edges
from torch_goat.ops.neighborhoods import Neighborhoods as Neighborhoods
from torch_goat.ops.neighborhoods import neighborhoods as neighborhoods
from torch_goat.ops.places import Places as Places
from torch_goat.ops.ragged_rnn.backends import segment_rnn as segment_rnn
from torch_goat.ops.segments import Segments as Segments
from torch_goat.ops.segments import segment_softmax as segment_softmax
from torch_goat.ops.segments import segment_sum as segment_sum
from torch_goat.ops.selection import keep_random as keep_random
from torch_goat.ops.selection import keep_top as keep_top
from torch_goat.ops.selection import random_order as random_order
from torch_goat.ops.sort import sort_tokens as sort_tokens
from torch_goat.ops.weighted_mean import weighted_mean as weighted_mean
