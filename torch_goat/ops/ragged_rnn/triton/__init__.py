"""The ragged RNN fused in Triton: the whole recurrence of a segment in one program; and the weighted mean.

Triton is optional: it is imported on first use, not with the package.
"""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_goat.lazy import lazy_names
from torch_goat.ops.ragged_rnn.interface import SCANS, Gradients, Inputs

if TYPE_CHECKING:
    from torch_goat.ops.ragged_rnn.triton.mean import weighted_sum as weighted_sum
    from torch_goat.ops.ragged_rnn.triton.mean import weighted_sum_backward as weighted_sum_backward
    from torch_goat.ops.ragged_rnn.triton.products import sum_of_outer_products as sum_of_outer_products

_LAZY = {"mean": ("weighted_sum", "weighted_sum_backward"), "products": ("sum_of_outer_products",)}
__getattr__, __dir__ = lazy_names(__name__, _LAZY)

DESCRIPTION = "the recurrence fused in Triton kernels, on NVIDIA GPUs"


def max_hidden(arithmetic: torch.dtype) -> int:
    if arithmetic == torch.float64 or not torch.cuda.is_available():  # the interpreter runs one program at a time
        return 64
    from torch_goat.ops.ragged_rnn.triton.wide_launch import device_of, max_hidden

    return max_hidden(device_of(torch.device("cuda", torch.cuda.current_device())))


def devices() -> tuple[str, ...]:
    return ("cuda", "cpu") if _interpreted() else ("cuda",)


def unavailable() -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not torch.cuda.is_available() and not _interpreted():
        return "there is no CUDA device"
    return None


def _interpreted() -> bool:
    """Whether Triton interprets its kernels in Python, on any device, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _kernels(kind: str) -> Any:
    from torch_goat.ops.ragged_rnn.triton import launch, scan

    return scan if kind in SCANS else launch


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    return _kernels(kind).forward(kind, inputs, save)


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    return _kernels(kind).backward(kind, grad, inputs, saved)


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    return _kernels(kind).saved_like(kind, inputs)
