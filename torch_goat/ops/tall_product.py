"""The product of many rows with a small matrix per head."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.checks import transforming
from torch_goat.ops.once import differentiable_once
from torch_goat.ops.ragged_rnn import triton as fused_triton


def tall_product(kernel: str, x: Tensor, matrix: Tensor) -> Tensor:
    """The products ``[K, N, W]`` of rows ``[N, K, C]`` and matrices ``[K, C, W]``.

    With the kernel ``"triton"``, the gradient of the matrices, a sum over all rows, has a kernel of its own: cuBLAS is
    slow for batches of small results.
    """
    exact = x.dtype == matrix.dtype and x.dtype in (torch.float32, torch.float64)
    if not exact or torch.is_autocast_enabled(x.device.type):
        kernel = "torch"
    if kernel != "triton" or torch.compiler.is_compiling() or transforming():
        return torch.bmm(x.transpose(0, 1), matrix)
    return _TallProduct.apply(x, matrix)


class _TallProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return torch.bmm(x.transpose(0, 1), matrix)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        run = partial(_flow_back, ctx.needs_input_grad)
        return differentiable_once("the product with the weights", run, grad, *ctx.saved_tensors)


def _flow_back(
    needed: tuple[bool, bool], grad: Tensor, x: Tensor, matrix: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    grad_x = torch.bmm(grad, matrix.transpose(1, 2)).transpose(0, 1) if needed[0] else None
    if not needed[1]:
        return grad_x, None
    rows, grad = (value if value.stride(-1) == 1 else value.contiguous() for value in (x, grad))
    return grad_x, fused_triton.sum_of_outer_products(rows.transpose(0, 1), grad)
