"""The log-probability of orders on the CPU, compiled by numba: two passes over each segment."""

# mypy: allow-untyped-defs

import numpy as np
import torch
from torch import Tensor

from torch_goat.ops.compiling import compiled
from torch_goat.ops.plackett_luce.torch import EPS
from torch_goat.ops.ragged_rnn.cpu.threads import run_all
from torch_goat.ops.segments import Segments

_CHUNKS = 8  # of segments, which threads share


def log_prob(score: Tensor, place: Tensor, segments: Segments, noise: float) -> tuple[Tensor, Tensor]:
    """See :func:`torch_goat.ops.plackett_luce.order.log_prob`."""
    result = score.new_empty(score.size(0), segments.num_segments, dtype=torch.double)
    gradient = torch.empty_like(score, memory_format=torch.contiguous_format)
    arrays = [value.contiguous().numpy() for value in (score, place, segments.ptr, result, gradient)]
    cuts = np.linspace(0, segments.num_places, _CHUNKS + 1)[1:-1]  # chunks of about as many places each
    bounds = [0, *np.searchsorted(arrays[2], cuts).tolist(), segments.num_segments]
    run_all(lambda first, last: _segments(*arrays, noise, EPS, bounds[first], bounds[last]), _CHUNKS, score.numel())
    return result, gradient


@compiled
def _segments(score, place, ptr, result, gradient, noise, eps, first, last):
    """Segments ``first`` to ``last`` of all heads."""
    longest = 0
    for segment in range(first, last):
        longest = max(longest, ptr[segment + 1] - ptr[segment])
    logit, rest = np.empty(longest), np.empty(longest)
    for head in range(score.shape[0]):
        for segment in range(first, last):
            begin, size = ptr[segment], ptr[segment + 1] - ptr[segment]
            mean, square = 0.0, 0.0
            for i in range(begin, begin + size):
                mean += score[head, i]
            mean /= max(size, 1)
            for i in range(begin, begin + size):
                square += (score[head, i] - mean) ** 2
            variance = square / max(size, 1) + eps
            scale = noise * np.sqrt(variance)
            # From the end: the log-sum-exp of the logits that are left.
            peak, total, log_prob = -np.inf, 0.0, 0.0
            for i in range(size - 1, -1, -1):
                logit[i] = (score[head, place[head, begin + i]] - mean) / scale
                if logit[i] > peak:
                    total = total * np.exp(peak - logit[i]) + 1
                    peak = logit[i]
                else:
                    total += np.exp(logit[i] - peak)
                rest[i] = peak + np.log(total)
                log_prob += logit[i] - rest[i]
            result[head, segment] = log_prob
            # From the start: the sum over all p <= i of exp(rest_i - rest_p), which gives the gradient of the logit.
            total, slope, before = 0.0, 0.0, np.inf
            for i in range(size):
                total = 1 + total * np.exp(rest[i] - before)
                before = rest[i]
                rest[i] = 1 - total * np.exp(logit[i] - before)
                slope += rest[i] * logit[i]
            slope *= noise**2 / max(size, 1)
            for i in range(size):
                gradient[head, place[head, begin + i]] = (rest[i] - slope * logit[i]) / scale
