"""The mean of states over runs, weighted: what attention gives without a sequence model.

Where the RNN runs in Triton, so does this: no state is written out place by place. As with the RNN,
``torch.compile`` and ``torch.export`` see a custom operator, and eager calls take the same kernel more directly.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils.sparse import ptr2index

from torch_goat.ops.memory import derived
from torch_goat.ops.ragged_rnn import triton as fused_triton
from torch_goat.ops.segments import run_offsets, sum_runs
from torch_goat.ops.take import take


def weighted_mean(kernel: str, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    """The weighted sums ``[T, K, C]`` of states over runs, zero for a run of no places.

    Args:
        kernel: The kernel of the RNN that reads the same runs: ``"triton"``, or any other for plain PyTorch.
        z: The states of the source nodes, per head ``[S, K, C]``.
        source: Which of them stands at each place, per head ``[K, E]``.
        weight: The weight that it has there ``[K, E]``.
        ptr: The runs of the targets ``[T + 1]``.
    """
    if source.numel() == 0:
        return z.new_zeros(ptr.numel() - 1, *z.shape[1:])
    if kernel != "triton":
        return _plain(z, source, weight, ptr)
    arithmetic = torch.promote_types(z.dtype, weight.dtype)
    run = fused_mean if torch.compiler.is_compiling() else _Run.apply
    return run(z.to(arithmetic), source, weight.to(arithmetic), ptr)


def _plain(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    num_sources, heads, channels = z.shape
    index = source + num_sources * torch.arange(heads, device=source.device).view(-1, 1)  # [K, E]
    states = take(z.permute(2, 1, 0).reshape(channels, -1), index.reshape(-1))  # [C, K * E]
    offsets = derived(ptr, "offsets", run_offsets, channels * heads, source.size(1))
    index = derived(ptr, "runs", ptr2index, source.size(1))
    means = sum_runs((states * weight.reshape(1, -1)).view(channels * heads, -1), index, offsets)  # [C * K, T]
    return means.view(channels, heads, -1).permute(2, 1, 0)


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("the weighted mean has no second derivative; use backend='reference' for double backward.")


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return fused_triton.weighted_sum(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Gradients are on only for those who will differentiate again, and they hear of it when they do.
        run = _RunBack.apply if torch.is_grad_enabled() else fused_triton.weighted_sum_backward
        grad_z, grad_weight = run(grad, *ctx.saved_tensors)
        return grad_z, None, grad_weight, None


class _RunBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        return fused_triton.weighted_sum_backward(*arguments)

    backward = staticmethod(_refuse)


@torch.library.custom_op("torch_goat::weighted_mean", mutates_args=())
def fused_mean(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    return fused_triton.weighted_sum(z, source, weight, ptr)


@fused_mean.register_fake
def _(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    return z.new_empty(ptr.size(0) - 1, z.size(1), z.size(2))


@torch.library.custom_op("torch_goat::weighted_mean_backward", mutates_args=())
def fused_mean_backward(grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    return fused_triton.weighted_sum_backward(grad, z, source, weight, ptr)


@fused_mean_backward.register_fake
def _(grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    return z.new_empty(z.shape), weight.new_empty(weight.shape)


def _flow_back(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_z, grad_weight = fused_mean_backward(grad, *ctx.saved_tensors)
    return grad_z, None, grad_weight, None


fused_mean.register_autograd(_flow_back, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
fused_mean_backward.register_autograd(_refuse)
