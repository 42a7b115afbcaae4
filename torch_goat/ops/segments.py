"""Sums over runs: places that stand beside each other, the same ones for every head."""

from typing import Any

import torch
from torch import Tensor


def run_offsets(ptr: Tensor, heads: int, num_places: int) -> Tensor:
    """Where each run of ``[K, E]`` begins, heads behind each other ``[K * T + 1]``, from ``ptr`` ``[T + 1]``."""
    head = torch.arange(0, heads * num_places, num_places, device=ptr.device).view(-1, 1)
    starts = (ptr[:-1] + head).view(-1)
    return torch.cat([starts, starts.new_full((1,), heads * num_places)])


def run_sizes(ptr: Tensor, num_places: int) -> Tensor:
    """The size of the run that each place belongs to ``[E]``."""
    size = ptr.diff()
    return size.repeat_interleave(size, output_size=num_places)


def reduce_runs(how: str, value: Tensor, offsets: Tensor) -> Tensor:
    """Reduces each run of ``value`` ``[K, E]`` to one number ``[K, T]``, in order: equal bits from run to run."""
    # "unsafe" skips a check of the offsets, which would wait for the device.
    return torch.segment_reduce(value.reshape(-1), how, offsets=offsets, unsafe=True).view(value.size(0), -1)


def sum_runs(value: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
    """The sum of each run of ``value`` ``[K, E]``, ``[K, T]``; ``index`` ``[E]`` names the run of a place."""
    return _Sum.apply(value, index, offsets)


class _Sum(torch.autograd.Function):
    """PyTorch's own sum over runs can be differentiated once; the gradient of this one is a plain gather."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        return reduce_runs("sum", value, offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return grad.index_select(1, index), None, None
