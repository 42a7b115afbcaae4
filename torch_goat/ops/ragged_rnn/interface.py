"""What all backends share: the cells, their weights, and the interface of a kernel."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from torch_goat.ops.places import Places

# The number of gates in one weight matrix, in PyTorch's order: i f g o | r z n | h; and z n | i f n of the scans.
GATES = {"lstm": 4, "gru": 3, "rnn": 1, "mingru": 2, "minlstm": 3}
# The cells of "Were RNNs All We Needed?" (https://arxiv.org/abs/2410.01201). Their gates depend on the input alone, and
# h' = (1 - z) h + z n is linear in the state: reading a segment is an associative scan, without recurrent weights.
#     mingru:   z = sigmoid(z)
#     minlstm:  z = sigmoid(i) / (sigmoid(i) + sigmoid(f)) = sigmoid(softplus(-f) - softplus(-i))
SCANS = ("mingru", "minlstm")
TORCH_MODULES: dict[str, Callable[..., torch.nn.RNNBase]] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn": torch.nn.RNN,
}


class RNNWeights(NamedTuple):
    """The weights of K heads and D directions, each in the layout of one layer of PyTorch's RNNs."""

    weight_ih: Tensor  # [K, D, G * H, C]
    weight_hh: Tensor | None  # [K, D, G * H, H]; None: a scan has none
    bias_ih: Tensor  # [K, D, G * H]
    bias_hh: Tensor | None  # [K, D, G * H]; None: a scan has none

    @property
    def recurrent_width(self) -> int:
        """The width of the recurrent matrices, 0 without them."""
        return 0 if self.weight_hh is None else self.weight_hh.size(-1)

    def of_torch(self, head: int) -> dict[str, Tensor]:
        """One head's weights by the parameter names of ``torch.nn.LSTM``, ``GRU`` and ``RNN``."""
        return {
            f"{name}_l0{suffix}": value[head, direction]
            for name, value in self._asdict().items()
            if value is not None
            for direction, suffix in enumerate(["", "_reverse"][: self.weight_ih.size(1)])
        }


class Inputs(NamedTuple):
    """The inputs of a kernel. All but ``projected`` have the dtype of the arithmetic, float32 or float64."""

    projected: Tensor  # [K, S, D, G * H], the states of the sources, projected onto the gates
    places: Places  # the source at each place [K, E], in one segment per target
    weight: Tensor | None  # [K, E], the coefficient of each place; None: all are one
    weight_hh: Tensor  # [K, D, G * H, H]; empty in a scan
    bias_ih: Tensor  # [K, D, G * H]
    bias_hh: Tensor  # [K, D, G * H]; empty in a scan


class Gradients(NamedTuple):
    """The gradients of a kernel's inputs; no two share memory."""

    projected: Tensor
    weight: Tensor  # [K, E], also if the input is None
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor


class Kernel(Protocol):
    """The functions of a backend module.

    A kernel reads ``weight[k, p] * projected[k, source[k, p], d] + bias_ih`` at the places ``p`` of each segment,
    forwards in direction 0 and backwards in direction 1, and returns the final states ``[T, K, D * H]`` in the dtype of
    ``projected``. An empty segment gives zeros.
    """

    @property
    def DESCRIPTION(self) -> str: ...
    def max_hidden(self, arithmetic: torch.dtype) -> int: ...  # of recurrent matrices; wider: `torch`
    def devices(self) -> tuple[str, ...]: ...  # the supported device types
    def unavailable(self) -> str | None: ...  # why the kernel cannot run on this machine, or None
    # The final states and, if `save`, the tensors that the backward needs.
    def forward(self, kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]: ...
    # The gradients of the inputs, from that of the final states.
    def backward(self, kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients: ...
    # Empty tensors with the shapes of those that the forward saves, for tracing.
    def saved_like(self, kind: str, inputs: Inputs) -> list[Tensor]: ...
