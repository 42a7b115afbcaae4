from typing import Protocol

from torch import Tensor


class Kernel(Protocol):
    """What a module of :mod:`torch_goat.sequence.kernels` offers to be a backend.

    It reads ``gates[p] = weight[k, p] * projected[k, source[k, p], d] + bias_ih`` for the places ``p`` of each run,
    forwards in direction 0 and backwards in direction 1, and returns the final states ``[T, K, D * H]`` in the dtype
    of ``projected``. A run of no places gives zeros.

    Shapes: ``projected [K, S, D, G * H]``, ``source [K, E]``, ``weight [K, E]`` or ``None`` (ones), ``ptr [T + 1]``,
    ``weight_hh [K, D, G * H, H]``, ``bias_ih`` and ``bias_hh`` ``[K, D, G * H]``. All but ``projected`` are in the
    dtype of the arithmetic, float32 or float64. ``saved`` is whatever the kernel's own backward wants back.
    """

    @property
    def DESCRIPTION(self) -> str:
        """The kernel in half a sentence."""

    @property
    def MAX_HIDDEN(self) -> int:
        """The largest hidden width per direction; wider ones are left to the kernel ``torch``."""

    def devices(self) -> tuple[str, ...]:
        """The types of device whose tensors the kernel reads."""

    def unavailable(self) -> str | None:
        """Why the kernel cannot run on this machine, or ``None``."""

    def forward(
        self,
        kind: str,
        projected: Tensor,
        source: Tensor,
        weight: Tensor | None,
        ptr: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor,
        bias_hh: Tensor,
        save: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        """The final states and, if ``save``, what the backward needs."""

    def backward(
        self,
        kind: str,
        grad: Tensor,
        projected: Tensor,
        source: Tensor,
        weight: Tensor | None,
        ptr: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor,
        bias_hh: Tensor,
        saved: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Gradients of ``projected``, ``weight`` ``[K, E]``, ``weight_hh``, ``bias_ih`` and ``bias_hh``."""

    def saved_like(self, kind: str, projected: Tensor, source: Tensor, ptr: Tensor, weight_hh: Tensor) -> list[Tensor]:
        """Empty tensors shaped as ``saved``, for tracing without data."""
