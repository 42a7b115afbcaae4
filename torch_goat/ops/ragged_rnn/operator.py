"""The ragged RNN as one node of the autograd graph.

As ``W_ih (alpha W_1 h_j) = alpha (W_ih W_1 h_j)``, the input projection runs once per node and not once per edge,
before the operator. ``torch.compile`` and ``torch.export`` see the custom operator ``torch_goat::ragged_rnn``. Eager
calls run the same kernels through an ``autograd.Function``, with a tenth of the overhead.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.once import differentiable_once, no_second_derivative
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn import cpu
from torch_goat.ops.ragged_rnn import torch as steps
from torch_goat.ops.ragged_rnn import triton as fused_triton
from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs, Kernel, RNNWeights
from torch_goat.ops.tall_product import tall_product

KERNELS: dict[str, Kernel] = {"torch": steps, "cpu": cpu, "triton": fused_triton}


def project_and_run(
    kind: str, backend: str, z: Tensor, places: Places, weight: Tensor | None, weights: RNNWeights
) -> Tensor:
    """Projects the states ``z`` ``[S, K, C]`` onto the gates and runs a kernel; ``[T, K, D * H]``."""
    heads, directions, width, channels = weights.weight_ih.shape
    to_gates = weights.weight_ih.view(heads, directions * width, channels).transpose(1, 2)
    projected = tall_product(backend, z, to_gates).view(heads, -1, directions, width)  # [K, S, D, G * H]
    arithmetic = torch.promote_types(projected.dtype, torch.float32)
    weight = None if weight is None else weight.to(arithmetic)
    given = (weights.weight_hh, weights.bias_ih, weights.bias_hh)
    recurrent = [(projected.new_empty(0) if value is None else value).to(arithmetic) for value in given]
    tensors = (projected, places.source, weight, places.ptr, *recurrent)
    save = torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in tensors)
    if torch.compiler.is_compiling():
        return ragged_rnn(*tensors, kind, backend, save)[0]
    return _RaggedRNN.apply(places, kind, backend, save, *tensors)


class _RaggedRNN(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, places: Places, kind: str, backend: str, save: bool, *tensors: Any) -> Tensor:
        projected, _, weight, _, *recurrent = tensors
        out, saved = KERNELS[backend].forward(kind, Inputs(projected, places, weight, *recurrent), save)
        ctx.places, ctx.kind, ctx.backend = places, kind, backend
        ctx.save_for_backward(*tensors, *saved)
        return out.data  # not a view: the caller may write to it, and no saved tensor shares its memory

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        run = partial(_backward, ctx.kind, ctx.backend, ctx.places)
        tensors = ctx.saved_tensors  # read once: activation checkpoints recompute them, and offloading copies them
        found = differentiable_once("the ragged RNN", run, grad, *tensors)
        return None, None, None, None, *_all_gradients(found, tensors[2])


def _backward(kind: str, backend: str, places: Places, grad: Tensor, *tensors: Any) -> Gradients:
    projected, _, weight, _, weight_hh, bias_ih, bias_hh, *saved = tensors
    inputs = Inputs(projected, places, weight, weight_hh, bias_ih, bias_hh)
    return KERNELS[backend].backward(kind, grad.contiguous(), inputs, saved)


def _all_gradients(found: Any, weight: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of ``projected, source, weight, ptr, weight_hh, bias_ih, bias_hh``."""
    grads = Gradients(*found)
    of_weight = None if weight is None else grads.weight
    return grads.projected, None, of_weight, None, grads.weight_hh, grads.bias_ih, grads.bias_hh


# The same as an operator: an opaque call with a schema, shapes for tracing, and another operator as its backward.
_TENSORS = (
    "Tensor projected, Tensor source, Tensor? weight, Tensor ptr, Tensor weight_hh, Tensor bias_ih, Tensor bias_hh"
)


def _inputs(projected: Tensor, source: Tensor, weight: Tensor | None, ptr: Tensor, *recurrent: Tensor) -> Inputs:
    return Inputs(projected, Places.from_ptr(source, ptr), weight, *recurrent)


@torch.library.custom_op(
    "torch_goat::ragged_rnn",
    mutates_args=(),
    schema=f"({_TENSORS}, str kind, str backend, bool save) -> (Tensor, Tensor[])",
)
def ragged_rnn(*arguments: Any) -> tuple[Tensor, list[Tensor]]:
    *tensors, kind, backend, save = arguments
    return KERNELS[backend].forward(kind, _inputs(*tensors), save)


@ragged_rnn.register_fake
def _(*arguments: Any) -> tuple[Tensor, list[Tensor]]:
    *tensors, kind, backend, save = arguments
    inputs = _inputs(*tensors)
    heads, _, directions, width = inputs.projected.shape
    out = inputs.projected.new_empty(inputs.places.ptr.size(0) - 1, heads, directions * (width // GATES[kind]))
    return out, KERNELS[backend].saved_like(kind, inputs) if save else []


@torch.library.custom_op(
    "torch_goat::ragged_rnn_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_TENSORS}, Tensor[] saved, str kind, str backend)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def ragged_rnn_backward(grad: Tensor, *arguments: Any) -> Gradients:
    *tensors, saved, kind, backend = arguments
    return KERNELS[backend].backward(kind, grad, _inputs(*tensors), saved)


@ragged_rnn_backward.register_fake
def _(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    projected, source, _, _, weight_hh, bias_ih, bias_hh = arguments[:7]
    grad_projected, *rest = (torch.empty_like(value) for value in (projected, weight_hh, bias_ih, bias_hh))
    return grad_projected, weight_hh.new_empty(source.shape), *rest


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    *tensors, ctx.kind, ctx.backend, _ = inputs
    ctx.save_for_backward(*tensors, *output[1])


def _flow_back(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    found = ragged_rnn_backward(grad.contiguous(), *tensors[:7], list(tensors[7:]), ctx.kind, ctx.backend)
    return *_all_gradients(found, tensors[2]), None, None, None


torch.library.register_autograd("torch_goat::ragged_rnn", _flow_back, setup_context=_set_up)
torch.library.register_autograd("torch_goat::ragged_rnn_backward", no_second_derivative("the ragged RNN"))
