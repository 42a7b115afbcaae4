"""Sums over runs: places that stand beside each other, the same ones for every head."""

import torch
from torch import Tensor


def run_offsets(ptr: Tensor, heads: int, num_places: int) -> Tensor:
    """Where each run of ``[K, E]`` begins, heads behind each other ``[K * T + 1]``, from ``ptr`` ``[T + 1]``."""
    head = torch.arange(0, heads * num_places, num_places, device=ptr.device).view(-1, 1)
    starts = (ptr[:-1] + head).view(-1)
    return torch.cat([starts, starts.new_full((1,), heads * num_places)])


def reduce_runs(how: str, value: Tensor, offsets: Tensor) -> Tensor:
    """Reduces each run of ``value`` ``[K, E]`` to one number ``[K, T]``, in order: equal bits from run to run."""
    # "unsafe" skips a check of the offsets, which would wait for the device.
    return torch.segment_reduce(value.reshape(-1), how, offsets=offsets, unsafe=True).view(value.size(0), -1)
