"""The ragged RNN as one node of autograd's graph, with kernels that compute it.

As ``W_ih (alpha W_1 h_j) = alpha (W_ih W_1 h_j)``, the input projection runs once per node and not once per edge,
before the operator; in it, a step gathers one row, scales it and goes on.

``torch.compile`` and ``torch.export`` see the custom operator ``torch_goat::ragged_rnn``. Eager calls take the same
kernels through an ``autograd.Function``, whose overhead is a tenth.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.cells import RNNWeights
from torch_goat.ops.ragged_rnn.kernels import KERNELS, Gradients, Inputs

_TENSORS = len(Inputs._fields)
_INPUTS = ", ".join(f"Tensor{'?' * (name == 'weight')} {name}" for name in Inputs._fields)


def project_and_run(
    kind: str, backend: str, z: Tensor, source: Tensor, weight: Tensor | None, ptr: Tensor, weights: RNNWeights
) -> Tensor:
    """Projects the states ``z`` ``[S, K, C]`` onto the gates and runs a kernel over them; ``[T, K, D * H]``."""
    heads, directions, width, channels = weights.weight_ih.shape
    to_gates = weights.weight_ih.view(heads, directions * width, channels).transpose(1, 2)
    projected = torch.bmm(z.transpose(0, 1), to_gates).view(heads, -1, directions, width)  # [K, S, D, G * H]
    arithmetic = torch.promote_types(projected.dtype, torch.float32)
    weight = None if weight is None else weight.to(arithmetic)
    recurrent = (value.to(arithmetic) for value in (weights.weight_hh, weights.bias_ih, weights.bias_hh))
    inputs = Inputs(projected, source, weight, ptr, *recurrent)
    save = torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in inputs)
    if torch.compiler.is_compiling():
        return ragged_rnn(*inputs, kind, backend, save)[0]
    return _Run.apply(*inputs, kind, backend, save)


def _keep(ctx: Any, arguments: tuple[Any, ...], saved: list[Tensor]) -> None:
    *tensors, ctx.kind, ctx.backend, _ = arguments
    ctx.save_for_backward(*tensors, *saved)


def _flow_back(ctx: Any, grad: Tensor, gradients: Callable) -> tuple[Tensor | None, ...]:
    """The gradients of all arguments of the operator, by the given function."""
    tensors = ctx.saved_tensors
    inputs, saved = Inputs(*tensors[:_TENSORS]), tensors[_TENSORS:]
    found = Gradients(*gradients(grad.contiguous(), *inputs, list(saved), ctx.kind, ctx.backend))
    weight = None if inputs.weight is None else found.weight
    return found.projected, None, weight, None, found.weight_hh, found.bias_ih, found.bias_hh, None, None, None


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("the ragged RNN has no second derivative; use backend='reference' for double backward.")


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, kind, backend, save = arguments
        out, saved = KERNELS[backend].forward(kind, Inputs(*tensors), save)
        _keep(ctx, arguments, saved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Gradients are on only for those who will differentiate again, and they hear of it when they do.
        return _flow_back(ctx, grad, _RunBack.apply if torch.is_grad_enabled() else _run_back)


def _run_back(grad: Tensor, *arguments: Any) -> Gradients:
    *tensors, saved, kind, backend = arguments
    return KERNELS[backend].backward(kind, grad, Inputs(*tensors), saved)


class _RunBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, *arguments: Any) -> Gradients:
        return _run_back(grad, *arguments)

    backward = staticmethod(_refuse)


# The same as an operator: an opaque call with a schema, shapes for tracing, and the backward as another one.


@torch.library.custom_op(
    "torch_goat::ragged_rnn",
    mutates_args=(),
    schema=f"({_INPUTS}, str kind, str backend, bool save) -> (Tensor, Tensor[])",
)
def ragged_rnn(*arguments: Any) -> tuple[Tensor, list[Tensor]]:
    *tensors, kind, backend, save = arguments
    return KERNELS[backend].forward(kind, Inputs(*tensors), save)


@ragged_rnn.register_fake
def _(*arguments: Any) -> tuple[Tensor, list[Tensor]]:
    *tensors, kind, backend, save = arguments
    inputs = Inputs(*tensors)
    heads, _, directions, _ = inputs.projected.shape
    out = inputs.projected.new_empty(inputs.ptr.size(0) - 1, heads, directions * inputs.weight_hh.size(-1))
    return out, KERNELS[backend].saved_like(kind, inputs) if save else []


@torch.library.custom_op(
    "torch_goat::ragged_rnn_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_INPUTS}, Tensor[] saved, str kind, str backend)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def ragged_rnn_backward(grad: Tensor, *arguments: Any) -> Gradients:
    return _run_back(grad, *arguments)


@ragged_rnn_backward.register_fake
def _(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    inputs = Inputs(*arguments[:_TENSORS])
    like = (inputs.projected, None, inputs.weight_hh, inputs.bias_ih, inputs.bias_hh)
    return tuple(
        inputs.weight_hh.new_empty(inputs.source.shape) if value is None else torch.empty_like(value) for value in like
    )


torch.library.register_autograd(
    "torch_goat::ragged_rnn",
    lambda ctx, grad, _: _flow_back(ctx, grad, ragged_rnn_backward),
    setup_context=lambda ctx, inputs, output: _keep(ctx, inputs, output[1]),
)
torch.library.register_autograd("torch_goat::ragged_rnn_backward", _refuse)
