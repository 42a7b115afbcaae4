"""The ragged RNN fused in Triton: the whole recurrence of a segment in one program; and the weighted mean.

Triton is optional: it is imported on first use, not with the package.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.interface import Gradients, Inputs

DESCRIPTION = "the recurrence fused in Triton kernels, on NVIDIA GPUs"


def max_hidden(arithmetic: torch.dtype) -> int:
    return 64 if arithmetic == torch.float64 else 128  # beyond, a block does not fit a multiprocessor's memory


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


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    return _module("launch").forward(kind, inputs, save)


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    return _module("launch").backward(kind, grad, inputs, saved)


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    return _module("launch").saved_like(kind, inputs)


def weighted_sum(z: Tensor, places: Places, weight: Tensor) -> Tensor:
    """:func:`torch_goat.ops.weighted_mean`; states and weights have the same dtype, float32 or float64."""
    return _module("mean").forward(z, places, weight)


def weighted_sum_backward(grad: Tensor, z: Tensor, weight: Tensor, places: Places) -> tuple[Tensor, Tensor]:
    """The gradients of ``z`` and ``weight``."""
    return _module("mean").backward(grad, z, weight, places)


def _module(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
