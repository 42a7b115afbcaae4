from typing import Any

import torch
from torch import Tensor


def coefficients(score: Tensor, target: Tensor, ptr: Tensor) -> Tensor:
    """The coefficients of Eq. 3: the softmax of scores within each neighbourhood.

    A neighbourhood is summed in the order in which it stands, so sorted scores give a result that does not depend on
    the order of the edges, to the last bit.

    Args:
        score: The scores by place ``[K, E]``.
        target: The target of each place ``[E]``, ascending.
        ptr: Where each target's run begins ``[T + 1]``.
    """
    if score.numel() == 0:
        return score
    return _Softmax.apply(score, target.expand_as(score), ptr.diff().repeat(score.size(0)))


class _Softmax(torch.autograd.Function):
    """Softmax of ``[K, E]`` within runs: ``index`` ``[K, E]`` names the run of a place, ``length`` ``[K * T]``."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, index: Tensor, length: Tensor) -> Tensor:
        peak = _reduce("max", score, length)  # [K, T]
        weight = (score - peak.gather(1, index)).exp_()
        weight /= _reduce("sum", weight, length).gather(1, index)
        ctx.save_for_backward(weight, index, length)
        return weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        weight, index, length = ctx.saved_tensors
        flow = grad * weight
        total = _reduce("sum", flow, length).gather(1, index)
        return torch.addcmul(flow, weight, total, value=-1), None, None


def _reduce(how: str, value: Tensor, length: Tensor) -> Tensor:
    """Reduces each run of ``value`` ``[K, E]`` to one number ``[K, T]``, in order."""
    flat = value.reshape(-1)
    # "unsafe" only skips a check of the lengths, which would wait for the device.
    return torch.segment_reduce(flat, how, lengths=length, unsafe=True).view(value.size(0), -1)
