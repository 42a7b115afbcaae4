from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.memory import derived
from torch_goat.ops.segments import reduce_runs, run_offsets


def take(value: Tensor, index: Tensor, ascending: bool = False) -> Tensor:
    """Columns of ``value`` ``[K, N]`` by index ``[E]``, with a gradient that is equal from run to run.

    Args:
        value: What to take from.
        index: Which columns to take.
        ascending: Whether the index is sorted.
    """
    if value.is_cuda and value.requires_grad:
        return _Take.apply(value, index, ascending)
    return value.gather(1, index.expand(value.size(0), -1))


class _Take(torch.autograd.Function):
    """On a GPU, a gather's own gradient adds with atomics, in the order of the moment; this one sorts and adds runs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, index: Tensor, ascending: bool) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size, ctx.ascending = value.size(1), ascending
        return value.gather(1, index.expand(value.size(0), -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        order, offsets = derived(index, "columns", _columns, ctx.ascending, grad.size(0), ctx.size)
        if order is not None:
            grad = grad.index_select(1, order)
        return reduce_runs("sum", grad, offsets), None, None


def _columns(index: Tensor, ascending: bool, heads: int, size: int) -> tuple[Tensor | None, Tensor]:
    """The places of each column behind each other (``None``: as they are), and where its run begins, for all heads."""
    order = None
    if not ascending:
        index, order = index.sort(stable=True)
    ptr = torch.searchsorted(index, torch.arange(size + 1, device=index.device))
    return order, run_offsets(ptr, heads, index.numel())
