"""The sequence model: RNNs that read runs of any length without padding, and the backends that compute them."""

from torch_goat.sequence.aggregation import RNNAggregation
from torch_goat.sequence.backends import BACKENDS, backends
from torch_goat.sequence.mean import weighted_mean
from torch_goat.sequence.packed import PackedRNN
from torch_goat.sequence.rnn import RaggedRNN

__all__ = ["BACKENDS", "PackedRNN", "RNNAggregation", "RaggedRNN", "backends", "weighted_mean"]
