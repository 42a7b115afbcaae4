import pytest
import torch
import torch.nn.functional as F

from torch_goat.nn.dropout import LARGE, dropout


def features(kind: str, columns: int = 1500) -> torch.Tensor:
    x = torch.randn(LARGE // columns + 1, columns)
    return x * (torch.rand(x.shape) < 0.02) if kind == "words" else x


@pytest.mark.parametrize("p", [0.3, 0.6])
@pytest.mark.parametrize("kind", ["words", "dense"])
def test_elements_are_kept_with_their_probability_and_made_up_for(kind: str, p: float) -> None:
    x = features(kind)
    kept = torch.zeros_like(x)
    draws = 8
    for _ in range(draws):
        out = dropout(x, p, training=True)
        there = out != 0
        torch.testing.assert_close(out[there], x[there] / (1 - p))
        kept += there
    number = int((x != 0).sum())
    assert not kept[x == 0].any()
    deviation = (p * (1 - p) / (number * draws)) ** 0.5
    assert abs(float(kept.sum()) / (number * draws) - (1 - p)) < 5 * deviation
    # Draws of one element are independent: how often it was kept has the variance of a binomial distribution.
    variance = float(kept[x != 0].var())
    assert variance == pytest.approx(draws * p * (1 - p), rel=0.05)
    first, second = kept[:, :-1], kept[:, 1:]  # and so are neighbours in a row
    both = (x[:, :-1] != 0) & (x[:, 1:] != 0)
    correlation = torch.corrcoef(torch.stack([first[both], second[both]]))[0, 1]
    assert abs(float(correlation)) < 5 / int(both.sum()) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["words", "dense"])
def test_gradients_are_of_the_elements_that_were_kept(kind: str, dtype: torch.dtype) -> None:
    x = features(kind).to(dtype).requires_grad_()
    out = dropout(x, 0.5, training=True)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert out.dtype == dtype
    assert torch.equal(out, x.detach() * grad)
    assert set(grad.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("kind", ["words", "dense"])
def test_double_precision_is_kept(kind: str) -> None:
    x = features(kind).double()
    out = dropout(x, 0.3, training=True)
    torch.testing.assert_close(out, torch.where(out != 0, x / 0.7, 0.0), rtol=1e-15, atol=0)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_elsewhere_it_is_pytorchs(p: float) -> None:
    large, small = features("words"), torch.randn(30, 20)
    for x, training in ((large, False), (small, True), (large.t(), True), (large, p != 0.5)):
        torch.manual_seed(3)
        expected = F.dropout(x, p, training)
        torch.manual_seed(3)
        assert torch.equal(dropout(x, p, training), expected)


def test_draws_on_the_device_of_the_input() -> None:
    x = features("dense")
    with torch.device("meta"):
        assert dropout(x, 0.5, training=True).device == x.device


def test_non_finite_elements_stay_non_finite() -> None:
    x = features("words")
    x[3, 4], x[5, 6] = torch.nan, torch.inf
    out = dropout(x, 0.5, training=True)
    assert out[3, 4].isnan()
    assert not out[5, 6].isfinite()
