import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter, UninitializedParameter
from torch.nn.modules.lazy import LazyModuleMixin
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from torch_goat.ops.checks import check_count
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.backends import check_backend, choose, segment_rnn
from torch_goat.ops.ragged_rnn.interface import GATES, TORCH_MODULES, RNNWeights


class RaggedRNN(Module):
    r"""One RNN per head that reads segments of any length and returns their final states.

    The final states of both directions of a bidirectional RNN are concatenated, each ``ceil(out_channels / 2)`` wide;
    if ``out_channels`` is odd, the last column of the backward direction is dropped. The weights of all heads are
    stacked; each head's have the layout of PyTorch's RNNs.

    Args:
        kind: ``"lstm"``, ``"gru"`` or ``"rnn"``.
        in_channels: The size of one input; :class:`LazyRaggedRNN` infers it from the first call.
        out_channels: The size of one final state, both directions together.
        heads: The number of RNNs.
        bidirectional: Whether to read segments in both directions.
        backend: A name of :func:`torch_goat.backends`, or ``"auto"``.
        init: ``"uniform"``, as in PyTorch; or ``"orthogonal"``: orthogonal recurrent matrices, Glorot's input matrices,
            and zero biases except for 1 in the forget gate of an LSTM.
    """

    def __init__(
        self,
        kind: str,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        bidirectional: bool = True,
        backend: str = "auto",
        init: str = "uniform",
    ) -> None:
        super().__init__()
        if kind not in GATES:
            raise ValueError(f"rnn must be one of {sorted(GATES)} or a factory, got {kind!r}.")
        out_channels, heads = check_count("out_channels", out_channels), check_count("heads", heads)
        if init not in ("uniform", "orthogonal"):
            raise ValueError(f"rnn_init must be 'uniform' or 'orthogonal', got {init!r}.")
        self.init = init
        self.kind, self.out_channels, self.heads = kind, out_channels, heads
        self.bidirectional, self.backend = bidirectional, check_backend(backend)
        directions = 2 if bidirectional else 1
        hidden = math.ceil(out_channels / directions)
        shape = (heads, directions, GATES[kind] * hidden)
        self.weight_ih = UninitializedParameter() if in_channels == -1 else Parameter(torch.empty(*shape, in_channels))
        self.weight_hh = Parameter(torch.empty(*shape, hidden))
        self.bias_ih = Parameter(torch.empty(shape))
        self.bias_hh = Parameter(torch.empty(shape))
        self.reset_parameters()

    @property
    def in_channels(self) -> int:
        """The size of one input, or -1 before the first call of a lazy RNN."""
        return -1 if is_uninitialized_parameter(self.weight_ih) else self.weight_ih.size(-1)

    def reset_parameters(self) -> None:
        hidden = self.weight_hh.size(-1)
        if self.init == "uniform":
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))
            return
        with torch.no_grad():
            for matrix in self.weight_hh.view(-1, hidden, hidden):  # every gate of every head and direction
                torch.nn.init.orthogonal_(matrix)
            for matrix in self.weight_ih.view(-1, hidden, self.in_channels):
                torch.nn.init.xavier_uniform_(matrix)
            for bias in (self.bias_ih, self.bias_hh):
                bias.zero_()
            if self.kind == "lstm":
                self.bias_ih[..., hidden : 2 * hidden] = 1

    def forward(self, z: Tensor, places: Places, weight: Tensor | None) -> Tensor:
        """Reads every segment; see :func:`torch_goat.ops.segment_rnn` for the shapes."""
        out = segment_rnn(self.kind, self.backend, z, places, weight, self._weights())
        return out if out.size(-1) == self.out_channels else out[..., : self.out_channels]

    def kernel(self, z: Tensor) -> str:
        """The name of the kernel (or ``"reference"``) that reads such states."""
        return choose(self.backend, z, self.weight_hh.size(-1))

    def as_torch(self, head: int = 0) -> torch.nn.RNNBase:
        """An equivalent ``torch.nn.LSTM``, ``GRU`` or ``RNN`` with a copy of one head's weights.

        The first ``out_channels`` columns of its final states, both directions together, are the result.
        """
        if not 0 <= head < self.heads:
            raise IndexError(f"head must lie between 0 and {self.heads - 1}, got head {head}.")
        like = self.weight_hh
        module = TORCH_MODULES[self.kind](
            self.in_channels, like.size(-1), bidirectional=self.bidirectional, device=like.device, dtype=like.dtype
        )
        with torch.no_grad():
            for name, value in self._weights().of_torch(head).items():
                getattr(module, name).copy_(value)
        return module

    def _weights(self) -> RNNWeights:
        return RNNWeights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.kind!r}, {self.in_channels}, {self.out_channels}, heads={self.heads}, "
            f"bidirectional={self.bidirectional})"
        )


class LazyRaggedRNN(LazyModuleMixin, RaggedRNN):
    """A :class:`RaggedRNN` whose ``in_channels`` are those of the first call."""

    cls_to_become = RaggedRNN

    def __init__(self, kind: str, out_channels: int, **options: Any) -> None:
        super().__init__(kind, -1, out_channels, **options)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, z: Tensor, *_: Any) -> None:
        if isinstance(self.weight_ih, UninitializedParameter):
            self.weight_ih.materialize((*self.bias_ih.shape, z.size(-1)))
            self.reset_parameters()
