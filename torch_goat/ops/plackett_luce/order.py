r"""A gradient for the order in which neighbours are read: the layer's order is compared with another, drawn at random.

Sorting passes no gradient to the scores. Let :math:`\ell_j = (a_j - \bar a) / (\sigma\, s_a)` be the scores of a
neighbourhood, standardised and divided by a noise :math:`\sigma`. Adding Gumbel noise and sorting draws an order
:math:`\pi` of the Plackett-Luce distribution

.. math::
    \log P(\pi) = \sum_{p} \Big(\ell_{\pi(p)} - \log \sum_{q \geq p} e^{\ell_{\pi(q)}}\Big).

The RNN reads that order, too, without gradient. With :math:`g = \partial L / \partial h`, its result :math:`h'` instead
of :math:`h` would change the loss by :math:`r = \langle g, h' - h \rangle` to first order. Adding
:math:`r\, \nabla \log P(\pi)` to the gradient of the scores is the REINFORCE estimate of the gradient of
:math:`\mathbb{E}_\pi \langle g, h(\pi) \rangle`, with the layer's own order as its baseline.
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.plackett_luce import torch as steps
from torch_goat.ops.segments import Segments
from torch_goat.ops.sort import sort_segments


def draw_order(kernel: str, score: Tensor, segments: Segments, noise: float | Tensor) -> tuple[Tensor, Tensor]:
    """Draws an order of each segment from PyTorch's generator, more likely the closer it is to decreasing scores.

    Args:
        kernel: The kernel of the RNN that reads the same places: ``"triton"``, ``"cpu"``, or any other for PyTorch.
        score: The scores at all places ``[K, E]``, float32 or float64.
        segments: The segments of places.
        noise: The noise, positive. In compiled code, a tensor without dimensions on the CPU can change between calls.

    Returns:
        The places in the drawn order, and the gradient of its log-probability with respect to the scores ``[K, E]``.
    """
    score = score.detach()
    if torch.compiler.is_compiling():
        return _operator(score, segments.ptr, kernel, torch.as_tensor(noise, dtype=torch.double))
    return _draw(kernel, score, segments, float(noise))


def _draw(kernel: str, score: Tensor, segments: Segments, noise: float) -> tuple[Tensor, Tensor]:
    noise = min(max(noise, 1e-6), 1e6)  # below, the order is that of the scores; above, all orders are equally likely
    if kernel == "cpu":
        return _backend(kernel).draw_order(score, segments, noise)
    centred, deviation = steps.standardised(score, segments)
    gumbel = steps.draw_gumbel(score)
    place = sort_segments(torch.addcdiv(gumbel, centred, deviation, value=1 / noise), segments)
    return place, log_prob(kernel, score, place, segments, noise)[1]


def log_prob(kernel: str, score: Tensor, place: Tensor, segments: Segments, noise: float) -> tuple[Tensor, Tensor]:
    """The log-probability ``[K, T]``, float64, of the order ``place`` ``[K, E]`` of each segment, and its gradient.

    The gradient ``[K, E]`` is that with respect to the scores, through their mean and variance. If all scores of a
    segment of size n are equal, no component exceeds ``(1 + log n) / (noise * sqrt(EPS))``.
    """
    return _backend(kernel).log_prob(score, place, segments, noise)


def _backend(kernel: str) -> Any:
    # Triton and numba are optional: imported on first use.
    return import_module(f"torch_goat.ops.plackett_luce.{kernel}") if kernel in ("cpu", "triton") else steps


# For torch.compile and torch.export, drawing is an opaque operator.
@torch.library.custom_op("torch_goat::draw_order", mutates_args=())
def _operator(score: Tensor, ptr: Tensor, kernel: str, noise: Tensor) -> tuple[Tensor, Tensor]:
    return _draw(kernel, score, Segments(ptr, score.size(1)), float(noise))


@_operator.register_fake
def _(score: Tensor, ptr: Tensor, kernel: str, noise: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(score, dtype=torch.long), torch.empty_like(score)


def compare(out: Tensor, other: Tensor, score: Tensor, gradient: Tensor, segments: Segments) -> Tensor:
    """``out``, whose backward pass also gives the scores ``[K, E]`` the gradient of the order.

    Args:
        out: The result of the RNN ``[T, K, C]``.
        other: Its result in the other order.
        score: The scores at all places ``[K, E]``.
        gradient: The gradient of the other order's log-probability, from :func:`draw_order`.
        segments: The segments of places.
    """
    return _Compare.apply(out, other - out.detach(), score, gradient, segments.index)


class _Compare(torch.autograd.Function):
    @staticmethod
    def forward(out: Tensor, change: Tensor, score: Tensor, gradient: Tensor, index: Tensor) -> Tensor:
        return out.clone()  # a view could not be written to

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        _, change, _, gradient, index = inputs
        ctx.save_for_backward(change, gradient, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        change, gradient, index = ctx.saved_tensors
        credit = (grad.to(gradient.dtype) * change).sum(dim=-1).t()  # [K, T], what the other order does to the loss
        return grad, None, credit[:, index] * gradient, None, None
