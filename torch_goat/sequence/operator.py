"""The ragged RNN as one operator of PyTorch: kernels compute it, autograd and ``torch.compile`` see a single node.

As ``W_ih (alpha W_1 h_j) = alpha (W_ih W_1 h_j)``, the input projection runs once per node and not once per edge,
before the operator; in it, a step gathers one row, scales it and goes on.
"""

from typing import Any

import torch
from torch import Tensor

from torch_goat.sequence.cells import RNNWeights
from torch_goat.sequence.kernels import KERNELS

_INPUTS = (
    "Tensor projected, Tensor source, Tensor? weight, Tensor ptr, Tensor weight_hh, Tensor bias_ih, Tensor bias_hh"
)


def project_and_run(
    kind: str, backend: str, z: Tensor, source: Tensor, weight: Tensor | None, ptr: Tensor, weights: RNNWeights
) -> Tensor:
    """Projects the states ``z`` ``[S, K, C]`` onto the gates and runs a kernel over them; ``[T, K, D * H]``."""
    heads, directions, width, channels = weights.weight_ih.shape
    to_gates = weights.weight_ih.view(heads, directions * width, channels).transpose(1, 2)
    projected = torch.bmm(z.transpose(0, 1), to_gates).view(heads, -1, directions, width)  # [K, S, D, G * H]
    arithmetic = torch.promote_types(projected.dtype, torch.float32)
    if weight is not None:
        weight = weight.to(arithmetic)
    recurrent = [value.to(arithmetic) for value in (weights.weight_hh, weights.bias_ih, weights.bias_hh)]
    save = torch.is_grad_enabled() and any(
        value.requires_grad for value in (projected, weight, *recurrent) if value is not None
    )
    out, _ = ragged_rnn(projected, source, weight, ptr, *recurrent, kind, backend, save)
    return out


@torch.library.custom_op(
    "torch_goat::ragged_rnn",
    mutates_args=(),
    schema=f"({_INPUTS}, str kind, str backend, bool save) -> (Tensor, Tensor[])",
)
def ragged_rnn(
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    kind: str,
    backend: str,
    save: bool,
) -> tuple[Tensor, list[Tensor]]:
    return KERNELS[backend].forward(kind, projected, source, weight, ptr, weight_hh, bias_ih, bias_hh, save)


@ragged_rnn.register_fake
def _(
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    kind: str,
    backend: str,
    save: bool,
) -> tuple[Tensor, list[Tensor]]:
    heads, _, directions, _ = projected.shape
    out = projected.new_empty(ptr.size(0) - 1, heads, directions * weight_hh.size(-1))
    return out, KERNELS[backend].saved_like(kind, projected, source, ptr, weight_hh) if save else []


@torch.library.custom_op(
    "torch_goat::ragged_rnn_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_INPUTS}, Tensor[] saved, str kind, str backend)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def ragged_rnn_backward(
    grad: Tensor,
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    saved: list[Tensor],
    kind: str,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return KERNELS[backend].backward(kind, grad, projected, source, weight, ptr, weight_hh, bias_ih, bias_hh, saved)


@ragged_rnn_backward.register_fake
def _(
    grad: Tensor,
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    saved: list[Tensor],
    kind: str,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_weight = weight_hh.new_empty(source.shape)
    recurrent, *biases = (torch.empty_like(value) for value in (weight_hh, bias_ih, bias_hh))
    return torch.empty_like(projected), grad_weight, recurrent, biases[0], biases[1]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, list[Tensor]]) -> None:
    *tensors, ctx.kind, ctx.backend, _ = inputs
    ctx.num_inputs = len(tensors)
    ctx.save_for_backward(*tensors, *output[1])


def _differentiate(ctx: Any, grad: Tensor, _: list[Tensor]) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    inputs, kept = saved[: ctx.num_inputs], list(saved[ctx.num_inputs :])
    grads = ragged_rnn_backward(grad.contiguous(), *inputs, kept, ctx.kind, ctx.backend)
    projected, weight, *recurrent = grads
    return projected, None, None if inputs[2] is None else weight, None, *recurrent, None, None, None


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("the ragged RNN has no second derivative; use backend='reference' for double backward.")


torch.library.register_autograd("torch_goat::ragged_rnn", _differentiate, setup_context=_keep)
torch.library.register_autograd("torch_goat::ragged_rnn_backward", _refuse)
