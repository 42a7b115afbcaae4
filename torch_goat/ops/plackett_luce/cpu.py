"""Drawing orders and their log-probability on the CPU, compiled by numba: a few passes over each segment."""

# mypy: allow-untyped-defs

from functools import partial

import numpy as np
import torch
from numba import njit
from torch import Tensor

from torch_goat.ops import segment_sort, splitmix
from torch_goat.ops.compiling import compiled
from torch_goat.ops.plackett_luce import torch as steps
from torch_goat.ops.segments import Segments
from torch_goat.ops.threads import run_all

_CHUNKS = 8  # of segments, which threads share
_mix, _gumbel = (njit(inline="always")(function) for function in (splitmix.mix, steps.gumbel))


def draw_order(score: Tensor, segments: Segments, noise: float) -> tuple[Tensor, Tensor]:
    """See :func:`torch_goat.ops.plackett_luce.order.draw_order`."""
    place = score.new_empty(score.shape, dtype=torch.long)
    return place, _run(score, place, segments, noise, steps.draw_seed())[1]


def log_prob(score: Tensor, place: Tensor, segments: Segments, noise: float) -> tuple[Tensor, Tensor]:
    """See :func:`torch_goat.ops.plackett_luce.order.log_prob`."""
    return _run(score, place, segments, noise, None)


def _run(score: Tensor, place: Tensor, segments: Segments, noise: float, seed: int | None) -> tuple[Tensor, Tensor]:
    result = score.new_empty(score.size(0), segments.num_segments, dtype=torch.double)
    gradient = torch.empty_like(score, memory_format=torch.contiguous_format)
    arrays = [value.contiguous().numpy() for value in (score, place, segments.ptr, result, gradient)]
    cuts = np.linspace(0, segments.num_places, _CHUNKS + 1)[1:-1]  # chunks of about as many places each
    bounds = [0, *np.searchsorted(arrays[2], cuts).tolist(), segments.num_segments]
    options = (noise, steps.EPS, seed is not None, seed or 0)
    run_all(lambda first, last: _segments(*arrays, *options, bounds[first], bounds[last]), _CHUNKS, score.numel())
    return result, gradient


@partial(compiled, files=(__file__, segment_sort.__file__, splitmix.__file__, steps.__file__))
def _segments(score, place, ptr, result, gradient, noise, eps, draw, seed, first, last):
    """Segments ``first`` to ``last`` of all heads; draws the order ``place`` on request."""
    longest = 0
    for segment in range(first, last):
        longest = max(longest, ptr[segment + 1] - ptr[segment])
    logit, own, fall, left = np.empty((4, longest))
    value, keys = np.empty(longest, np.float32), np.empty((2, longest), np.int64)
    for head in range(score.shape[0]):
        for segment in range(first, last):
            begin, end = ptr[segment], ptr[segment + 1]
            size = end - begin
            mean, square = 0.0, 0.0
            for at in range(begin, end):
                mean += score[head, at]
            mean /= max(size, 1)
            for at in range(begin, end):
                square += (score[head, at] - mean) ** 2
            scale = noise * np.sqrt(square / max(size, 1) + eps)
            order = place[head, begin:end]
            if draw:
                for i in range(size):
                    bits = _mix(seed + splitmix.STEP * (head * score.shape[1] + begin + i + 1))
                    value[i] = (score[head, begin + i] - mean) / scale + _gumbel(bits, np.log)
                key = segment_sort.sort_places(value, keys, size)
                for i in range(size):
                    order[i] = begin + (key[i] & 0xFFFFFFFF)
            # From the end: the exponentials of the logits that are left, relative to the largest of them: this place's
            # own, the factor by which a new largest one lowers those before, and their sum.
            peak, total, product, log_prob = -np.inf, 0.0, 1.0, 0.0
            for i in range(size - 1, -1, -1):
                logit[i] = (score[head, order[i]] - mean) / scale
                ratio = np.exp(-abs(logit[i] - peak))
                own[i], fall[i] = (1.0, ratio) if logit[i] > peak else (ratio, 1.0)
                peak = max(peak, logit[i])
                total = total * fall[i] + own[i]
                left[i] = total
                log_prob += logit[i] - peak
                product *= total
                if product > 1e200:  # one logarithm of many sums
                    log_prob, product = log_prob - np.log(product), 1.0
            result[head, segment] = log_prob - np.log(product)
            # From the start: the sum over all p <= i of exp(rest_i - rest_p), where rest is the logarithm of what is
            # left, gives the gradient of the logit, which takes the place of its own exponential.
            chain, decay, slope = 0.0, 0.0, 0.0
            for i in range(size):
                chain = 1 + chain * decay * left[i]
                decay = fall[i] / left[i]
                own[i] = 1 - chain * own[i] / left[i]
                slope += own[i] * logit[i]
            slope *= noise**2 / max(size, 1)
            for i in range(size):
                gradient[head, order[i]] = (own[i] - slope * logit[i]) / scale
