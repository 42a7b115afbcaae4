"""The log-probability of orders in plain PyTorch, on any device; scans take log2 of the longest segment steps."""

from typing import Any

import torch
from torch import Tensor

from torch_goat.ops.segments import Segments, segment_sum
from torch_goat.ops.splitmix import STEP, mix

EPS = 1e-6  # added to the variance of the scores


def log_prob(score: Tensor, place: Tensor, segments: Segments, noise: float) -> tuple[Tensor, Tensor]:
    """See :func:`torch_goat.ops.plackett_luce.order.log_prob`."""
    centred, deviation = standardised(score.double(), segments)
    logit = (centred / (noise * deviation)).gather(1, place)  # [K, E], in the drawn order
    index, ptr, num_places = segments.index, segments.ptr, segments.num_places
    at = torch.arange(num_places, device=score.device)
    rest, step = logit, 1  # the log-sum-exp of the logits from each place on, of 1, 2, 4, ... of them
    while step < num_places:
        later = (at + step).clamp(max=num_places - 1)
        rest = torch.where(at + step < ptr[index + 1], torch.logaddexp(rest, rest[:, later]), rest)
        step *= 2
    decay = (rest - rest.roll(1, dims=1)).exp().where(at > ptr[index], 0.0)
    total, step = torch.ones_like(logit), 1  # at place i, the sum over all p <= i of exp(rest_i - rest_p)
    while step < num_places:
        earlier = (at - step).clamp(min=0)
        total, decay = total + decay * total[:, earlier], decay * decay[:, earlier]
        step *= 2
    gradient = 1 - total * (logit - rest).exp()  # of the logits, in the drawn order
    gradient = torch.empty_like(gradient).scatter_(1, place, gradient)
    slope = segment_sum(gradient * centred, segments) / ptr.diff().clamp(min=1)
    gradient = (gradient - centred * slope[:, index] / deviation**2) / (noise * deviation)
    return segment_sum(logit - rest, segments), gradient.to(score.dtype)


def draw_gumbel(score: Tensor) -> Tensor:
    """Numbers of the standard Gumbel distribution in the shape of the scores, the same for all kernels on a CPU."""
    if score.device.type != "cpu":
        return torch.empty_like(score).exponential_().log_().neg_()
    number = torch.arange(1, score.numel() + 1, device=score.device).view(score.shape)
    return gumbel(mix(draw_seed() + STEP * number), torch.log).to(score.dtype)


def draw_seed() -> int:
    """A seed from PyTorch's generator, which is hashed with the number of each place."""
    return int(torch.randint(-(2**63), 2**63 - 1, (), device="cpu"))


def gumbel(bits: Any, log: Any) -> Any:
    """A number of the standard Gumbel distribution from 64 random bits; numba compiles it, too."""
    uniform = ((bits >> 12 & 0xFFFFFFFFFFFFF) + 0.5) / 4503599627370496.0  # of 52 bits, neither 0 nor 1
    return -log(-log(uniform))


def standardised(score: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """Scores ``[K, E]`` minus the mean of their segment, and the segment's standard deviation at each place."""
    index, size = segments.index, segments.ptr.diff().clamp(min=1)
    centred = score - (segment_sum(score, segments) / size)[:, index]
    variance = segment_sum(centred**2, segments) / size
    return centred, (variance + EPS).sqrt()[:, index]
