"""The log-probability of orders in Triton. Nothing here synchronises with the device.

A program has some segments of similar length side by side and passes over ``PLACES`` places of each at a time, longest
segments first, in float64: logits of small noise are too large for differences of float32.
"""

# mypy: allow-untyped-defs

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_goat.ops.launches import cdiv, on_device
from torch_goat.ops.plackett_luce.torch import EPS
from torch_goat.ops.segments import Segments

_SEGMENTS, _PLACES, _WARPS = 4, 32, 1
_NOTHING = tl.constexpr(-1e300)  # the logarithm of nothing, finite so that differences of two are no NaN


def log_prob(score: Tensor, place: Tensor, segments: Segments, noise: float) -> tuple[Tensor, Tensor]:
    """See :func:`torch_goat.ops.plackett_luce.order.log_prob`."""
    score, place = score.contiguous(), place.contiguous()
    heads, num_places = score.shape
    num_targets = segments.num_segments
    high = float(np.float32(noise))  # a kernel takes numbers in float32: the noise is the sum of two
    result = score.new_empty(heads, num_targets, dtype=torch.double)
    gradient, rest = torch.empty_like(score), torch.empty_like(score, dtype=torch.double)
    if num_targets:
        tensors = (score, place, segments.ptr, segments.by_length, result, gradient, rest)
        with on_device(score):
            log_prob_kernel[(cdiv(num_targets, _SEGMENTS), heads)](
                *tensors, num_targets, num_places, high, noise - high, EPS, _SEGMENTS, _PLACES, num_warps=_WARPS
            )
    return result, gradient


@triton.jit
def add_logs(a, b):
    """log(exp(a) + exp(b)) of finite numbers."""
    high = tl.maximum(a, b)
    return high + tl.log(1 + tl.exp(tl.minimum(a, b) - high))


@triton.jit
def chain(decay, total, next_decay, next_total):
    """Two steps of ``total = decay * total + 1`` as one."""
    return decay * next_decay, total * next_decay + next_total


@triton.jit(do_not_specialize=["num_targets", "num_places", "high", "low"])
def log_prob_kernel(
    score,
    place,
    ptr,
    order,
    result,
    gradient,
    rest,
    num_targets,
    num_places,
    high,
    low,
    EPS: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Writes ``result`` ``[K, T]`` and ``gradient`` ``[K, E]`` of one head; ``order`` has the segments by length.

    ``rest`` ``[K, E]`` is scratch memory.
    """
    head = tl.program_id(1).to(tl.int64)
    rank = tl.program_id(0) * SEGMENTS + tl.arange(0, SEGMENTS)[:, None]  # [SEGMENTS, 1]
    present = rank < num_targets
    target = tl.load(order + rank, present, 0)
    start = tl.load(ptr + target, present, 0)
    length = tl.where(present, (tl.load(ptr + target + 1, present, 0) - start).to(tl.int32), 0)
    slot = tl.arange(0, PLACES)[None, :]
    longest = tl.max(length)
    size = tl.maximum(length, 1).to(tl.float64)
    noise = tl.zeros([SEGMENTS, 1], tl.float64) + high + low
    score += head * num_places
    place += head * num_places + start
    gradient += head * num_places
    rest += head * num_places + start

    added = tl.zeros([SEGMENTS, PLACES], tl.float64)
    for step in range(0, longest, PLACES):
        added += tl.load(score + start + step + slot, step + slot < length, 0.0).to(tl.float64)
    mean = tl.sum(added, axis=1)[:, None] / size
    added = tl.zeros([SEGMENTS, PLACES], tl.float64)
    for step in range(0, longest, PLACES):
        inside = step + slot < length
        value = tl.load(score + start + step + slot, inside, 0.0).to(tl.float64) - mean
        added += tl.where(inside, value * value, 0.0)
    scale = noise * tl.sqrt(tl.sum(added, axis=1)[:, None] / size + EPS)

    # From the end: the log-sum-exp of the logits that are left.
    left = tl.full([SEGMENTS, 1], _NOTHING, tl.float64)
    log_probs = tl.zeros([SEGMENTS, PLACES], tl.float64)
    last = (longest - 1) // PLACES * PLACES
    for back in range(0, longest, PLACES):
        at = last - back + slot
        inside = at < length
        value = tl.load(score + tl.load(place + at, inside, 0), inside, 0.0).to(tl.float64)
        logit = tl.where(inside, (value - mean) / scale, _NOTHING)
        sums = add_logs(tl.associative_scan(logit, 1, add_logs, reverse=True), left)
        tl.store(rest + at, sums, inside)
        log_probs += tl.where(inside, logit - sums, 0.0)
        left = tl.max(sums, axis=1)[:, None]
    tl.store(result + head * num_targets + target, tl.sum(log_probs, axis=1)[:, None], present)

    # From the start: the sum over all p <= i of exp(rest_i - rest_p), which gives the gradient of the logit.
    tl.debug_barrier()  # threads read what others wrote
    carried = tl.zeros([SEGMENTS, 1], tl.float64)
    previous = tl.full([SEGMENTS, 1], float("inf"), tl.float64)
    products = tl.zeros([SEGMENTS, PLACES], tl.float64)
    for step in range(0, longest, PLACES):
        at = step + slot
        inside = at < length
        sums = tl.load(rest + at, inside, 0.0)
        before = tl.where(slot > 0, tl.load(rest + at - 1, inside & (slot > 0), 0.0), previous)
        decay = tl.exp(tl.where(inside, sums - before, _NOTHING))
        decay, total = tl.associative_scan((decay, tl.full([SEGMENTS, PLACES], 1.0, tl.float64)), 1, chain)
        total += decay * carried
        final = slot == PLACES - 1
        carried = tl.sum(tl.where(final, total, 0.0), axis=1)[:, None]
        previous = tl.sum(tl.where(final, sums, 0.0), axis=1)[:, None]
        value = tl.load(score + tl.load(place + at, inside, 0), inside, 0.0).to(tl.float64)
        logit = (value - mean) / scale
        share = 1 - total * tl.exp(tl.where(inside, logit - sums, _NOTHING))
        products += tl.where(inside, share * logit, 0.0)
        tl.debug_barrier()  # before a place is overwritten that another thread reads
        tl.store(rest + at, share, inside)
    tl.debug_barrier()
    slope = noise * noise * tl.sum(products, axis=1)[:, None] / size
    for step in range(0, longest, PLACES):
        at = step + slot
        inside = at < length
        index = tl.load(place + at, inside, 0)
        logit = (tl.load(score + index, inside, 0.0).to(tl.float64) - mean) / scale
        value = (tl.load(rest + at, inside, 0.0) - slope * logit) / scale
        tl.store(gradient + index, value.to(gradient.dtype.element_ty), inside)
