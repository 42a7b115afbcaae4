from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.memory import derived
from torch_goat.ops.segments import reduce_runs, run_offsets


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
    return _Softmax.apply(score, target.expand_as(score), derived(ptr, "offsets", run_offsets, *score.shape))


class _Softmax(torch.autograd.Function):
    """Softmax of ``[K, E]`` within runs: ``index`` ``[K, E]`` names the run of a place."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        peak = reduce_runs("max", score, offsets)  # [K, T]
        weight = (score - peak.gather(1, index)).exp_()
        # Not in place: PyTorch 2.11's compiler loses the gradient of an output that was written to.
        weight = weight / reduce_runs("sum", weight, offsets).gather(1, index)
        ctx.save_for_backward(weight, index, offsets)
        return weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        weight, index, offsets = ctx.saved_tensors
        flow = grad * weight
        total = reduce_runs("sum", flow, offsets).gather(1, index)
        return torch.addcmul(flow, weight, total, value=-1), None, None
