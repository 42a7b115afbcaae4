"""How two results are compared."""

import torch
from torch import Tensor
from torch.nn import Module


def relative_error(value: Tensor, expected: Tensor) -> float:
    """max|a - b| / max|b|, the measure of every tolerance in the tests."""
    value, expected = value.detach().double(), expected.detach().double()
    assert value.shape == expected.shape
    if value.numel() == 0:
        return 0.0
    return float((value - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def same_up_to_rounding(value: Tensor, expected: Tensor) -> bool:
    """Whether two results of float32 are as near as the order of sums lets them be."""
    return relative_error(value, expected) < 1e-5


def with_gradients(module: Module, out: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    """The output and the gradients of a fixed uneven sum of it, by parameter name and input number."""
    if not out.requires_grad:
        return {"output": out}
    wanted = dict(module.named_parameters()) | {f"input {n}": value for n, value in enumerate(inputs)}
    # All positive: sums that cancel would show the rounding of the sum and not that of the layer.
    uneven = (1.5 + torch.arange(1, out.numel() + 1, dtype=torch.double).sin()).to(out).view_as(out)
    gradients = torch.autograd.grad((out * uneven).sum(), list(wanted.values()), allow_unused=True)
    results = {name: grad for name, grad in zip(wanted, gradients, strict=True) if grad is not None}
    return results | {"output": out}


def assert_close(value: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert value.keys() == expected.keys()
    wrong = {name: error for name in value if (error := relative_error(value[name], expected[name])) > tolerance}
    assert not wrong, wrong
