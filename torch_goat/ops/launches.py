"""What all launches of Triton kernels need on the host, where a launch may take longer than its kernel."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor


def on_device(tensor: Tensor) -> Any:
    """The device context in which kernels that read this tensor are launched."""
    elsewhere = tensor.is_cuda and tensor.get_device() != torch.cuda.current_device()
    return torch.cuda.device(tensor.device) if elsewhere else nullcontext()


# Triton's own functions can be called in kernels, too, and take one to two microseconds per call on the host.
def cdiv(number: int, size: int) -> int:
    """The number of blocks of a size that cover so many elements."""
    return -(-number // size)


def next_power_of_2(number: int) -> int:
    """The smallest power of two that is not below a positive number."""
    return 1 << (number - 1).bit_length()
