"""The ragged RNN fused in Triton: the whole recurrence of a run in one program, both ways; and the mean of runs.

Triton is optional: it is imported with the first use and not with the package.
"""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

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
    """Whether Triton runs its kernels in Python, on any device: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    from torch_goat.ops.ragged_rnn.triton import launch

    return launch.forward(kind, inputs, save)


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    from torch_goat.ops.ragged_rnn.triton import launch

    return launch.backward(kind, grad, inputs, saved)


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    from torch_goat.ops.ragged_rnn.triton import launch

    return launch.saved_like(kind, inputs)


def weighted_sum(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    """The kernel of :mod:`torch_goat.ops.weighted_mean`; states and weights have one dtype, float32 or float64."""
    from torch_goat.ops.ragged_rnn.triton import mean

    return mean.forward(z, source, weight, ptr)


def weighted_sum_backward(
    grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of ``z`` and ``weight``, from that of the sums."""
    from torch_goat.ops.ragged_rnn.triton import mean

    return mean.backward(grad, z, source, weight, ptr)
