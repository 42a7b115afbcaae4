from typing import NamedTuple, Protocol

from torch import Tensor, dtype


class Inputs(NamedTuple):
    """What a kernel reads. All but ``projected`` are in the dtype of the arithmetic, float32 or float64."""

    projected: Tensor  # [K, S, D, G * H], the states of the sources on the gates
    source: Tensor  # [K, E], the source at each place
    weight: Tensor | None  # [K, E], the coefficient that scales it; None is one everywhere
    ptr: Tensor  # [T + 1], the runs of the targets
    weight_hh: Tensor  # [K, D, G * H, H]
    bias_ih: Tensor  # [K, D, G * H]
    bias_hh: Tensor  # [K, D, G * H]

    def contiguous(self) -> "Inputs":
        return Inputs(*(None if value is None else value.contiguous() for value in self))  # type: ignore[arg-type]


class Gradients(NamedTuple):
    """What a kernel's backward gives; no two of them share memory."""

    projected: Tensor
    weight: Tensor  # [K, E], also where the input is None
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor


class Kernel(Protocol):
    """What a module of :mod:`torch_goat.ops.ragged_rnn.kernels` offers to be a backend.

    It reads ``weight[k, p] * projected[k, source[k, p], d] + bias_ih`` at the places ``p`` of each run, forwards in
    direction 0 and backwards in direction 1, and returns the final states ``[T, K, D * H]`` in the dtype of
    ``projected``. A run of no places gives zeros.
    """

    @property
    def DESCRIPTION(self) -> str:
        """The kernel in half a sentence."""

    def max_hidden(self, arithmetic: dtype) -> int:
        """The largest hidden width per direction; wider ones are left to the kernel ``torch``."""

    def devices(self) -> tuple[str, ...]:
        """The types of device whose tensors the kernel reads."""

    def unavailable(self) -> str | None:
        """Why the kernel cannot run on this machine, or ``None``."""

    def forward(self, kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
        """The final states and, if ``save``, what the backward wants back."""

    def backward(self, kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
        """The gradients, from that of the final states."""

    def saved_like(self, kind: str, inputs: Inputs) -> list[Tensor]:
        """Empty tensors shaped as what the forward saves, for tracing without data."""
