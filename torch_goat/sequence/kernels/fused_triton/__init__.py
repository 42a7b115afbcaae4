"""The ragged RNN fused in Triton: the whole recurrence of a run in one program, both ways.

Triton is optional: it is imported with the first use and not with the package.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

DESCRIPTION = "the recurrence fused in Triton kernels, on NVIDIA GPUs"

MAX_HIDDEN = 128


def devices() -> tuple[str, ...]:
    return ("cuda", "cpu") if _interpreted() else ("cuda",)


def unavailable() -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not torch.cuda.is_available() and not _interpreted():
        return "there is no CUDA device"
    return None


def _interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on any device: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def forward(
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
    from torch_goat.sequence.kernels.fused_triton import launch

    return launch.forward(kind, projected, source, weight, ptr, weight_hh, bias_ih, bias_hh, save)


def backward(
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
    from torch_goat.sequence.kernels.fused_triton import launch

    return launch.backward(kind, grad, projected, source, weight, ptr, weight_hh, bias_ih, bias_hh, saved)


def saved_like(kind: str, projected: Tensor, source: Tensor, ptr: Tensor, weight_hh: Tensor) -> list[Tensor]:
    from torch_goat.sequence.kernels.fused_triton import launch

    return launch.saved_like(kind, projected, source, ptr, weight_hh)
