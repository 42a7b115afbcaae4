"""The weighted mean of neighbour states, which attention gives without a sequence model."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.once import differentiable_once, no_second_derivative
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn import triton as fused_triton
from torch_goat.ops.segments import gather_columns, segment_sum, sorted_columns


def weighted_mean(kernel: str, z: Tensor, places: Places, weight: Tensor) -> Tensor:
    """The weighted sums ``[T, K, C]`` of states over segments, zero for an empty segment.

    Args:
        kernel: The kernel of the RNN that reads the same places: ``"triton"``, or any other for plain PyTorch.
        z: The states of the source nodes, per head ``[S, K, C]``.
        places: The sources at all places.
        weight: The weight of each place ``[K, E]``.
    """
    if kernel != "triton":
        return _in_torch(z, places, weight)
    arithmetic = torch.promote_types(z.dtype, weight.dtype)
    z, weight = z.to(arithmetic), weight.to(arithmetic)
    if torch.compiler.is_compiling():
        return operator(z, places.source, weight, places.ptr)
    return _Mean.apply(z, weight, places.source, places)


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
    def forward(ctx: Any, z: Tensor, weight: Tensor, source: Tensor, places: Places) -> Tensor:
        ctx.save_for_backward(z, weight, source)
        ctx.places = places
        return fused_triton.weighted_sum(z, places, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, weight, _ = ctx.saved_tensors
        run = partial(fused_triton.weighted_sum_backward, places=ctx.places)
        return *differentiable_once("the weighted mean", run, grad, z, weight), None, None


# The same as an operator for torch.compile and torch.export.
@torch.library.custom_op("torch_goat::weighted_mean", mutates_args=())
def operator(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    return fused_triton.weighted_sum(z, Places.from_ptr(source, ptr), weight)


@operator.register_fake
def _(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    return z.new_empty(ptr.size(0) - 1, z.size(1), z.size(2))


@torch.library.custom_op("torch_goat::weighted_mean_backward", mutates_args=())
def operator_backward(grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    return fused_triton.weighted_sum_backward(grad, z, weight, Places.from_ptr(source, ptr))


@operator_backward.register_fake
def _(grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    return z.new_empty(z.shape), weight.new_empty(weight.shape)


def _flow_back(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_z, grad_weight = operator_backward(grad, *ctx.saved_tensors)
    return grad_z, None, grad_weight, None


operator.register_autograd(_flow_back, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
operator_backward.register_autograd(no_second_derivative("the weighted mean"))
