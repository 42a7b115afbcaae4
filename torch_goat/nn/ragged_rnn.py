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
from torch_goat.ops.ragged_rnn.interface import GATES, SCANS, TORCH_MODULES, RNNWeights

# The biases, by gate, that let a state keep most of itself.
_KEEP = {"lstm": {1: 1}, "mingru": {0: -1}, "minlstm": {0: -1, 1: 1}}


class RaggedRNN(Module):
    r"""One RNN per head that reads segments of any length and returns their final states.

    The final states of both directions of a bidirectional RNN are concatenated, each ``ceil(out_channels / 2)`` wide;
    if ``out_channels`` is odd, the last column of the backward direction is dropped. The weights of all heads are
    stacked; those of each head have the layout of PyTorch's RNNs.

    Besides PyTorch's cells there are the minGRU and minLSTM of `"Were RNNs All We Needed?"
    <https://arxiv.org/abs/2410.01201>`_, whose gates depend on the input alone:

    .. math::
        \mathbf{h}_t = (1 - \mathbf{z}_t) \odot \mathbf{h}_{t-1} + \mathbf{z}_t \odot (\mathbf{W}_n \mathbf{x}_t +
        \mathbf{b}_n), \quad \mathbf{z}_t = \sigma(\mathbf{W}_z \mathbf{x}_t + \mathbf{b}_z)

    and, in a minLSTM, :math:`\mathbf{z}_t = \mathbf{i}_t / (\mathbf{i}_t + \mathbf{f}_t)` with an input and a forget
    gate. They have no recurrent weights (``weight_hh`` and ``bias_hh`` are ``None``). Width therefore costs only
    elementwise work, and a long segment is not a chain of dependent steps. The gates in ``weight_ih`` and ``bias_ih``
    are :math:`z, n` for a minGRU and :math:`i, f, n` for a minLSTM.

    Args:
        kind: ``"lstm"``, ``"gru"``, ``"rnn"``, ``"mingru"`` or ``"minlstm"``.
        in_channels: The size of one input; :class:`LazyRaggedRNN` infers it from the first call.
        out_channels: The size of one final state, both directions together.
        heads: The number of RNNs.
        bidirectional: Whether to read segments in both directions.
        backend: A name of :func:`torch_goat.backends`, or ``"auto"``.
        init: ``"uniform"``, as in PyTorch; or ``"orthogonal"``: orthogonal recurrent matrices, Glorot's input matrices
            and zero biases, except for 1 in the forget gate of an LSTM or minLSTM and -1 in the input gate of a minLSTM
            and the update gate of a minGRU. With these, a state keeps :math:`\sigma(1)`, 73 %, of itself in a step.
    """

    weight_hh: Parameter | None
    bias_hh: Parameter | None

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
        recurrent = kind not in SCANS
        self.register_parameter("weight_hh", Parameter(torch.empty(*shape, hidden)) if recurrent else None)
        self.bias_ih = Parameter(torch.empty(shape))
        self.register_parameter("bias_hh", Parameter(torch.empty(shape)) if recurrent else None)
        self.reset_parameters()

    @property
    def in_channels(self) -> int:
        """The size of one input, or -1 before the first call of a lazy RNN."""
        return -1 if is_uninitialized_parameter(self.weight_ih) else self.weight_ih.size(-1)

    @property
    def hidden(self) -> int:
        """The width of one direction."""
        return self.bias_ih.size(-1) // GATES[self.kind]

    def reset_parameters(self) -> None:
        hidden = self.hidden
        if self.init == "uniform":
            for parameter in self.parameters():
                torch.nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))
            return
        with torch.no_grad():
            if self.weight_hh is not None and self.bias_hh is not None:
                for matrix in self.weight_hh.view(-1, hidden, hidden):  # every gate of every head and direction
                    torch.nn.init.orthogonal_(matrix)
                self.bias_hh.zero_()
            for matrix in self.weight_ih.view(-1, hidden, self.in_channels):
                torch.nn.init.xavier_uniform_(matrix)
            self.bias_ih.zero_()
            for gate, bias in _KEEP.get(self.kind, {}).items():
                self.bias_ih[..., gate * hidden : (gate + 1) * hidden] = bias

    def forward(self, z: Tensor, places: Places, weight: Tensor | None) -> Tensor:
        """Reads every segment; see :func:`torch_goat.ops.segment_rnn` for the shapes."""
        out = segment_rnn(self.kind, self.backend, z, places, weight, self._weights())
        return out if out.size(-1) == self.out_channels else out[..., : self.out_channels]

    def kernel(self, z: Tensor) -> str:
        """The name of the kernel (or ``"reference"``) that reads such states."""
        return choose(self.backend, z, self._weights().recurrent_width)

    def as_torch(self, head: int = 0) -> torch.nn.RNNBase:
        """An equivalent ``torch.nn.LSTM``, ``GRU`` or ``RNN`` with a copy of one head's weights.

        The first ``out_channels`` columns of its final states, both directions together, are the result.
        """
        if self.kind in SCANS:
            raise ValueError(
                f"as_torch needs one of {sorted(TORCH_MODULES)}, got {self.kind!r}, for which torch.nn has no module; "
                "backend='reference' runs it in plain PyTorch."
            )
        if not 0 <= head < self.heads:
            raise IndexError(f"head must lie between 0 and {self.heads - 1}, got head {head}.")
        like = self.bias_ih
        module = TORCH_MODULES[self.kind](
            self.in_channels, self.hidden, bidirectional=self.bidirectional, device=like.device, dtype=like.dtype
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
