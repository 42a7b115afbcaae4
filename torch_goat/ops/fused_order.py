"""Scores of GAT, their order and the coefficients in Triton: Eq. 1 to 3 up to the RNN, in few launches.

On a small graph a step takes the time of its launches. This does in five of them, and a sort, what the functions in
``sort.py`` and ``segments.py`` do in some thirty. Nothing here synchronises with the device.
"""

# mypy: allow-untyped-defs

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_goat.ops.launches import cdiv, on_device
from torch_goat.ops.neighborhoods import Neighborhoods
from torch_goat.ops.once import differentiable_once
from torch_goat.ops.ragged_rnn.triton.mean import split_longest
from torch_goat.ops.ties import resolve_ties

_BLOCK = 512  # places of a program that has no segments
_LONG = {"SEGMENTS": 1, "PLACES": 1024, "num_warps": 8}  # of a program that has one
_SHORT = {"SEGMENTS": 4, "PLACES": 32, "num_warps": 1}  # of a program that has several


def order_and_weigh(
    of_source: Tensor, of_target: Tensor, negative_slope: float, x: Tensor, hood: Neighborhoods
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tokens in order, their sources, scores and coefficients, ``[K, E]`` each.

    Args:
        of_source: Each node's share of its scores as a source ``[K, S]``, float32.
        of_target: Its share as a target ``[K, T]``, float32.
        negative_slope: The slope of LeakyReLU, which must be positive.
        x: The input states of the layer ``[S, F]``, which break ties.
        hood: The neighbourhoods.
    """
    return _OrderAndWeigh.apply(of_source, of_target, negative_slope, x.detach(), hood)


class _OrderAndWeigh(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, of_source: Tensor, of_target: Tensor, negative_slope: float, x: Tensor, hood: Neighborhoods
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        heads, num_tokens = of_source.size(0), hood.num_places
        score, key = of_source.new_empty(heads, num_tokens), hood.source.new_empty(heads, num_tokens)
        grid = (cdiv(num_tokens, _BLOCK), heads)
        shares = (of_source, of_target, *of_source.stride(), *of_target.stride())
        with on_device(score):
            score_kernel[grid](
                *shares,
                hood.source,
                hood.target,
                score,
                key,
                num_tokens,
                hood.num_targets,
                negative_slope,
                BLOCK=_BLOCK,
            )
            key, place = key.view(-1).sort(stable=True)
            token, resolved = torch.empty_like(place), torch.empty_like(place)
            tied = torch.empty_like(place, dtype=torch.int8)
            token_kernel[(cdiv(place.numel(), _BLOCK),)](
                key, place, token, resolved, tied, place.numel(), num_tokens, BLOCK=_BLOCK
            )
            shape = (heads, num_tokens)
            token = resolve_ties(token.view(shape), tied.view(shape), x, hood.source, resolved.view(shape))
            source, alpha, ordered = torch.empty_like(token), torch.empty_like(score), torch.empty_like(score)
            for first, programs, is_long in split_longest(hood, _SHORT["SEGMENTS"]):
                weigh_kernel[(programs, heads)](
                    *(token, hood.source, score, hood.ptr, hood.by_length, source, ordered, alpha),
                    *(first, hood.num_targets, num_tokens),
                    **(_LONG if is_long else _SHORT),
                )
        ctx.mark_non_differentiable(token, source)
        ctx.save_for_backward(token, ordered, alpha)
        ctx.negative_slope, ctx.hood = negative_slope, hood
        ctx.set_materialize_grads(False)
        return token, source, ordered, alpha

    @staticmethod
    def backward(
        ctx: Any, _: None, __: None, grad_score: Tensor | None, grad_alpha: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        def run(*tensors: Any) -> tuple[Tensor, Tensor]:
            return _flow_back(ctx.hood, ctx.negative_slope, *tensors)

        if grad_score is None and grad_alpha is None:
            return None, None, None, None, None
        found = differentiable_once("the fused order", run, grad_score, grad_alpha, *ctx.saved_tensors)
        return *found, None, None, None


def _flow_back(
    hood: Neighborhoods,
    negative_slope: float,
    grad_score: Tensor | None,
    grad_alpha: Tensor | None,
    token: Tensor,
    score: Tensor,
    alpha: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of the shares of sources and targets."""
    heads, num_tokens = token.shape
    by_token, of_target = torch.empty_like(score), score.new_empty(heads, hood.num_targets)
    grads = tuple(None if grad is None else grad.contiguous() for grad in (grad_score, grad_alpha))
    with on_device(score):
        for first, programs, is_long in split_longest(hood, _SHORT["SEGMENTS"]):
            back_kernel[(programs, heads)](
                *(*grads, token, score, alpha, hood.ptr, hood.by_length, by_token, of_target),
                *(first, hood.num_targets, num_tokens, negative_slope),
                **(_LONG if is_long else _SHORT),
            )
    return hood.sum_by_source(by_token), of_target


@triton.jit(do_not_specialize=["num_tokens", "num_targets", "slope"])
def score_kernel(
    of_source,
    of_target,
    source_head,
    source_step,
    target_head,
    target_step,
    source,
    target,
    score,
    key,
    num_tokens,
    num_targets,
    slope,
    BLOCK: tl.constexpr,
):
    """Eq. 1, and a key that sorts heads and targets from small to large and scores from large to small."""
    head = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < num_tokens
    own = tl.load(target + token, inside, 0)
    value = tl.load(of_source + head * source_head + tl.load(source + token, inside, 0) * source_step, inside, 0.0)
    value += tl.load(of_target + head * target_head + own * target_step, inside, 0.0)
    value = tl.where(value > 0, value, value * slope)
    at = head * num_tokens + token
    tl.store(score + at, value, inside)
    bits = tl.where(value == 0, 0.0, value).to(tl.int32, bitcast=True)  # -0 equals 0
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    tl.store(key + at, ((head * num_targets + own) << 32) - rising, inside)


@triton.jit(do_not_specialize=["num_places", "num_tokens"])
def token_kernel(key, place, token, resolved, tied, num_places, num_tokens, BLOCK: tl.constexpr):
    """The tokens in the order of the keys, twice, and whether a token has the key of the one before it."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < num_places
    own = tl.load(place + at, inside, 0) % num_tokens
    tl.store(token + at, own, inside)
    tl.store(resolved + at, own, inside)
    same = tl.load(key + at, inside, 0) == tl.load(key + at - 1, inside & (at > 0), -1)
    tl.store(tied + at, (same & (at > 0)).to(tl.int8), inside)


@triton.jit
def block_of_targets(order, ptr, first, num_targets, SEGMENTS: tl.constexpr):
    """Targets of similar length from a rank on, their first place and length, ``[SEGMENTS, 1]``."""
    rank = first + tl.program_id(0) * SEGMENTS + tl.arange(0, SEGMENTS)[:, None]
    present = rank < num_targets
    target = tl.load(order + rank, present, 0)
    start = tl.load(ptr + target, present, 0)
    return target, start, (tl.load(ptr + target + 1, present, 0) - start).to(tl.int32), present


@triton.jit(do_not_specialize=["first", "num_targets", "num_tokens"])
def weigh_kernel(
    token,
    source,
    score,
    ptr,
    order,
    ordered_source,
    ordered_score,
    alpha,
    first,
    num_targets,
    num_tokens,
    SEGMENTS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Sources, scores and coefficients in order; the first score of a segment is the highest."""
    head = tl.program_id(1).to(tl.int64)
    _target, start, length, _present = block_of_targets(order, ptr, first, num_targets, SEGMENTS)
    slot = tl.arange(0, PLACES)[None, :]
    score += head * num_tokens
    at = head * num_tokens + start + slot  # [SEGMENTS, PLACES]
    longest = tl.max(length)
    peak = tl.load(score + tl.load(token + head * num_tokens + start, length > 0, 0), length > 0, 0.0)
    total = tl.zeros([SEGMENTS, PLACES], tl.float32)
    for step in range(0, longest, PLACES):
        inside = step + slot < length
        own = tl.load(token + at + step, inside, 0)
        value = tl.load(score + own, inside, 0.0)
        tl.store(ordered_score + at + step, value, inside)
        tl.store(ordered_source + at + step, tl.load(source + own, inside, 0), inside)
        total += tl.where(inside, tl.exp(value - peak), 0.0)
    total = tl.where(length > 0, tl.sum(total, axis=1)[:, None], 1.0)
    for step in range(0, longest, PLACES):
        inside = step + slot < length
        value = tl.load(ordered_score + at + step, inside, 0.0)  # what this thread has written
        tl.store(alpha + at + step, tl.exp(value - peak) / total, inside)


@triton.jit(do_not_specialize=["first", "num_targets", "num_tokens", "slope"])
def back_kernel(
    grad_score,
    grad_alpha,
    token,
    score,
    alpha,
    ptr,
    order,
    by_token,
    of_target,
    first,
    num_targets,
    num_tokens,
    slope,
    SEGMENTS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """The gradients of the scores before LeakyReLU, by token and added up by target."""
    head = tl.program_id(1).to(tl.int64)
    target, start, length, present = block_of_targets(order, ptr, first, num_targets, SEGMENTS)
    slot = tl.arange(0, PLACES)[None, :]
    at = head * num_tokens + start + slot
    longest = tl.max(length)
    total = tl.zeros([SEGMENTS, PLACES], tl.float32)
    if grad_alpha is not None:
        for step in range(0, longest, PLACES):
            inside = step + slot < length
            total += tl.load(grad_alpha + at + step, inside, 0.0) * tl.load(alpha + at + step, inside, 0.0)
    mean = tl.sum(total, axis=1)[:, None]
    added = tl.zeros([SEGMENTS, PLACES], tl.float32)
    for step in range(0, longest, PLACES):
        inside = step + slot < length
        grad = tl.zeros([SEGMENTS, PLACES], tl.float32)
        if grad_alpha is not None:
            grad += tl.load(alpha + at + step, inside, 0.0) * (tl.load(grad_alpha + at + step, inside, 0.0) - mean)
        if grad_score is not None:
            grad += tl.load(grad_score + at + step, inside, 0.0)
        grad = tl.where(tl.load(score + at + step, inside, 0.0) > 0, grad, grad * slope)
        added += tl.where(inside, grad, 0.0)
        tl.store(by_token + head * num_tokens + tl.load(token + at + step, inside, 0), grad, inside)
    tl.store(of_target + head * num_targets + target, tl.sum(added, axis=1)[:, None], present)
