"""The log-probability of a drawn order and its gradient, by every backend, against PyTorch's in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.backends import AVAILABLE, COMPILED, device_of
from tests.compare import relative_error
from torch_goat.ops.plackett_luce.order import draw_order, log_prob
from torch_goat.ops.plackett_luce.torch import EPS
from torch_goat.ops.segments import Segments


def expected(score: Tensor, place: Tensor, ptr: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """By ``logcumsumexp`` and autograd, one segment after the other."""
    score = score.double().requires_grad_()
    result = score.new_zeros(score.size(0), ptr.numel() - 1) + 0 * score.sum()
    for segment, (begin, end) in enumerate(zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)):
        if begin < end:
            part = score[:, begin:end]
            spread = (part.var(dim=1, correction=0, keepdim=True) + EPS).sqrt()
            logit = ((part - part.mean(dim=1, keepdim=True)) / spread / noise).gather(1, place[:, begin:end] - begin)
            rest = logit.flip(1).logcumsumexp(dim=1).flip(1)
            result[:, segment] = (logit - rest).sum(dim=1)
    return result.detach(), torch.autograd.grad(result.sum(), score)[0]


def check(backend: str, score: Tensor, lengths: list[int], noise: float, limit: float) -> None:
    ptr, device = torch.tensor([0, *lengths]).cumsum(0), device_of(backend)
    segments = Segments(ptr.to(device), score.size(1))
    place, gradient = draw_order(backend, score.to(device), segments, noise)
    assert torch.equal(place.cpu().sort(dim=1).values, torch.arange(score.size(1)).expand_as(score))
    assert torch.equal(torch.bucketize(place.cpu(), ptr[1:], right=True)[0], segments.index.cpu())
    log_probs, same = log_prob(backend, score.to(device), place, segments, noise)
    assert torch.equal(gradient, same)
    of_log_prob, of_score = expected(score, place.cpu(), ptr, noise)
    assert relative_error(log_probs.cpu(), of_log_prob) < limit
    assert relative_error(gradient.cpu(), of_score) < limit


@pytest.mark.parametrize("noise", [0.02, 0.2, 2.0])
@pytest.mark.parametrize("backend", AVAILABLE)
def test_equals_float64(backend: str, noise: float) -> None:
    lengths = [1, 0, 2, 5, 70, 33]
    check(backend, torch.randn(2, 111), lengths, noise, 1e-6)
    check(backend, torch.randn(2, 111, dtype=torch.double), lengths, noise, 1e-10)


@pytest.mark.parametrize("noise", [0.02, 2.0])
@pytest.mark.parametrize("backend", COMPILED)
def test_equals_float64_for_a_hub(backend: str, noise: float) -> None:
    score = torch.randn(1, 100_005)
    score[0, 7] = 300.0  # an outlier: with n neighbours, up to sqrt(n) deviations
    check(backend, score, [5, 100_000], noise, 1e-5)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.floats(0.02, 2.0), st.integers(0, 99))
def test_equals_float64_for_any_lengths(lengths: list[int], noise: float, seed: int) -> None:
    torch.manual_seed(seed)
    score = torch.randn(2, sum(lengths)).round(decimals=1)  # with equal scores
    for backend in COMPILED:
        check(backend, score, lengths, noise, 1e-5)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_equal_scores_have_a_bounded_gradient(backend: str) -> None:
    device, size, noise = device_of(backend), 40, 0.1
    segments = Segments(torch.tensor([0, size], device=device), size)
    _, gradient = draw_order(backend, torch.full((3, size), 0.7, device=device), segments, noise)
    # The logit of the place i has the gradient 1 - 1/n - 1/(n - 1) - ... - 1/(n - i + 1), at least -log n.
    assert gradient.abs().max() <= (1 + torch.tensor(size).log()) / (noise * EPS**0.5)


@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_orders_are_drawn_with_their_probability(backend: str) -> None:
    scores, draws, noise = torch.tensor([0.3, -1.0, 0.4], dtype=torch.double), 20_000, 0.8
    segments = Segments(torch.arange(draws + 1) * 3, 3 * draws)
    place, _ = draw_order(backend, scores.repeat(1, draws), segments, noise)
    found, counts = (place.view(-1, 3) % 3).unique(dim=0, return_counts=True)  # [6, 3]
    orders = (found + 3 * torch.arange(6).view(-1, 1)).view(1, -1)
    log_probs, _ = log_prob(backend, scores.repeat(1, 6), orders, Segments(torch.arange(7) * 3, 18), noise)
    probability = log_probs[0].exp()
    assert probability.sum() == pytest.approx(1.0)
    error = (probability * (1 - probability) / draws).sqrt()
    assert ((counts / draws - probability).abs() < 4 * error).all()
