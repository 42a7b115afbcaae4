import math

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from torch_goat.ops.ragged_rnn.backends import check_backend, choose, run
from torch_goat.ops.ragged_rnn.cells import GATES, TORCH_MODULES, RNNWeights


class RaggedRNN(Module):
    r"""Independent RNNs, one per head, that read runs of any length and give their final states.

    A bidirectional RNN gives each direction half of ``out_channels`` and concatenates both final states. The weights
    of all heads are stacked, and each head's are laid out as PyTorch lays out its own.

    Args:
        kind: ``"lstm"``, ``"gru"`` or ``"rnn"``.
        in_channels: The width of one element.
        out_channels: The width of one final state, both directions together.
        heads: The number of RNNs.
        bidirectional: Whether every run is read from both ends.
        backend: A name of :func:`torch_goat.backends`, or ``"auto"``.
        init: ``"uniform"`` draws the weights as PyTorch's RNNs do; ``"orthogonal"`` draws orthogonal recurrent
            matrices, Glorot's input matrices and no biases, but one for the forget gate of an LSTM.
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
        if out_channels < 1 or heads < 1:
            raise ValueError(f"out_channels and heads must be at least 1, got {out_channels} and {heads}.")
        if bidirectional and out_channels % 2:
            raise ValueError(
                f"out_channels={out_channels} is odd, but a bidirectional RNN gives each direction half of it; "
                f"choose an even width or bidirectional=False."
            )
        if init not in ("uniform", "orthogonal"):
            raise ValueError(f"rnn_init must be 'uniform' or 'orthogonal', got {init!r}.")
        self.init = init
        self.kind, self.in_channels, self.out_channels, self.heads = kind, in_channels, out_channels, heads
        self.bidirectional, self.backend = bidirectional, check_backend(backend)
        directions = 2 if bidirectional else 1
        hidden = out_channels // directions
        shape = (heads, directions, GATES[kind] * hidden)
        self.weight_ih = Parameter(torch.empty(*shape, in_channels))
        self.weight_hh = Parameter(torch.empty(*shape, hidden))
        self.bias_ih = Parameter(torch.empty(shape))
        self.bias_hh = Parameter(torch.empty(shape))
        self.reset_parameters()

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

    def forward(self, z: Tensor, source: Tensor, weight: Tensor | None, ptr: Tensor) -> Tensor:
        """Reads every run; see :func:`torch_goat.ops.ragged_rnn.backends.run` for the shapes."""
        # The kernels are compiled for int64, or for whatever comes first and then for nothing else.
        return run(self.kind, self.backend, z, source.long(), weight, ptr.long(), self._weights())

    def kernel(self, z: Tensor) -> str:
        """The name of what reads such states: a kernel, or ``"reference"``."""
        return choose(self.backend, z, self.weight_hh.size(-1))

    def as_torch(self, head: int = 0) -> torch.nn.RNNBase:
        """An equivalent ``torch.nn.LSTM``, ``GRU`` or ``RNN`` with a copy of one head's weights."""
        if not 0 <= head < self.heads:
            raise IndexError(f"head {head} is not one of the {self.heads} heads.")
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
