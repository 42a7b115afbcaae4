"""The weighted mean of neighbour states, which attention gives without a sequence model."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.once import differentiable_once, no_second_derivative
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn import cpu
from torch_goat.ops.ragged_rnn import triton as fused_triton
from torch_goat.ops.segments import gather_columns, segment_sum, sorted_columns

_FUSED: dict[str, Any] = {"cpu": cpu, "triton": fused_triton}


def weighted_mean(kernel: str, z: Tensor, places: Places, weight: Tensor) -> Tensor:
    """The weighted sums ``[T, K, C]`` of states over segments, zero for an empty segment.

    Args:
        kernel: The kernel of the RNN that reads the same places: ``"cpu"`` or ``"triton"``; any other is plain PyTorch.
        z: The states of the source nodes, per head ``[S, K, C]``.
        places: The sources at all places.
        weight: The weight of each place ``[K, E]``.
    """
    if kernel not in _FUSED:
        return _in_torch(z, places, weight)
    arithmetic = torch.promote_types(z.dtype, weight.dtype)
    z, weight = z.to(arithmetic), weight.to(arithmetic)
    if torch.compiler.is_compiling():
        return operator(z, places.source, weight, places.ptr, kernel)
    return _Mean.apply(z, weight, places.source, places, kernel)


def _in_torch(z: Tensor, places: Places, weight: Tensor) -> Tensor:
    num_sources, heads, channels = z.shape
    index = places.source + num_sources * torch.arange(heads, device=z.device).view(-1, 1)  # [K, E]
    index = index.reshape(-1)
    states = gather_columns(  # [C, K * E]
        z.permute(2, 1, 0).reshape(channels, -1), index, lambda: sorted_columns(index, heads * num_sources, channels)
    )
    means = segment_sum((states * weight.reshape(1, -1)).view(channels * heads, -1), places.segments)  # [C * K, T]
    return means.view(channels, heads, -1).permute(2, 1, 0)


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, source: Tensor, places: Places, kernel: str) -> Tensor:
        ctx.save_for_backward(z, weight, source)
        ctx.places, ctx.kernel = places, kernel
        return _FUSED[kernel].weighted_sum(z, places, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, weight, _ = ctx.saved_tensors
        run = partial(_FUSED[ctx.kernel].weighted_sum_backward, places=ctx.places)
        return *differentiable_once("the weighted mean", run, grad, z, weight), None, None, None


# The same as an operator for torch.compile and torch.export.
@torch.library.custom_op("torch_goat::weighted_mean", mutates_args=())
def operator(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor, kernel: str) -> Tensor:
    return _FUSED[kernel].weighted_sum(z, Places.from_ptr(source, ptr), weight)


@operator.register_fake
def _(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor, kernel: str) -> Tensor:
    return z.new_empty(ptr.size(0) - 1, z.size(1), z.size(2))


@torch.library.custom_op("torch_goat::weighted_mean_backward", mutates_args=())
def operator_backward(
    grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor, kernel: str
) -> tuple[Tensor, Tensor]:
    return _FUSED[kernel].weighted_sum_backward(grad, z, weight, Places.from_ptr(source, ptr))


@operator_backward.register_fake
def _(grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor, kernel: str) -> tuple[Tensor, Tensor]:
    return z.new_empty(z.shape), weight.new_empty(weight.shape)


def _flow_back(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_z, grad_weight = operator_backward(grad, *ctx.saved_tensors, ctx.kernel)
    return grad_z, None, grad_weight, None, None


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.kernel = inputs
    ctx.save_for_backward(*tensors)


operator.register_autograd(_flow_back, setup_context=_set_up)
operator_backward.register_autograd(no_second_derivative("the weighted mean"))
