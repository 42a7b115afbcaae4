"""What is special to the fused CPU kernel; what all kernels share is tested for all of them."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.compare import relative_error
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn import cpu
from torch_goat.ops.ragged_rnn import torch as steps
from torch_goat.ops.ragged_rnn.cpu import wide
from torch_goat.ops.ragged_rnn.interface import GATES, Inputs

needs_numba = pytest.mark.skipif(cpu.unavailable() is not None, reason="numba is not installed")

# Ends of groups, of stretches, and empty segments.
LENGTHS = [0, 3, 1, 70, 2, 0, 33, 32, 64, 65, 5, 1, 1, 7, 2, 0]


def make_inputs(
    heads: int = 2, lengths: list[int] = LENGTHS, scale: float = 1.0, kind: str = "lstm", hidden: int = 4
) -> tuple[list[Any], Tensor]:
    """The tensors of an RNN in two directions, in float64, and a gradient of its output."""
    generator = torch.Generator().manual_seed(0)

    def randn(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    ptr = torch.tensor([0, *lengths]).cumsum(0)
    places, width = int(ptr[-1]), GATES[kind] * hidden
    projected = scale * randn(heads, 9, 2, width)
    source = torch.randint(9, (heads, places), generator=generator)
    weight = torch.rand(heads, places, generator=generator, dtype=torch.float64)
    recurrent = [hidden**-0.5 * randn(heads, 2, width, *last) for last in ((hidden,), (), ())]
    return [projected, Places.from_ptr(source, ptr), weight, *recurrent], randn(len(lengths), heads, 2 * hidden)


def run(kernel: object, inputs: list[Any], grad: Tensor, kind: str = "lstm") -> list[Tensor]:
    out, saved = kernel.forward(kind, Inputs(*inputs), True)
    return [out, *kernel.backward(kind, grad, Inputs(*inputs), saved)]


def error(values: list[Tensor], expected: list[Tensor]) -> float:
    return max(map(relative_error, values, expected))


def to(inputs: list[Any], dtype: torch.dtype) -> list[Any]:
    return [value if isinstance(value, Places) else value.to(dtype) for value in inputs]


def float32_inputs(**options: Any) -> tuple[list[Any], Tensor]:
    inputs, grad = make_inputs(**options)
    return to(inputs, torch.float32), grad.float()


@needs_numba
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn", "mingru", "minlstm"])
@pytest.mark.parametrize("scale", [1.0, 0.0025, 1e-6])
def test_float32_is_accurate_for_inputs_of_any_size(kind: str, scale: float) -> None:
    inputs, grad = float32_inputs(scale=scale, kind=kind, hidden=8)
    inputs[-2:] = [torch.zeros_like(value) for value in inputs[-2:]]  # the states are as small as the inputs
    expected = run(steps, to(inputs, torch.float64), grad.double(), kind)  # of the same numbers
    assert error(run(cpu, inputs, grad, kind), expected) < 2e-6


@needs_numba
@pytest.mark.parametrize("kind", ["lstm", "mingru", "minlstm"])
def test_saturated_gates(kind: str) -> None:
    inputs, grad = make_inputs(scale=200.0, kind=kind)
    expected = run(steps, inputs, grad, kind)
    assert error(run(cpu, to(inputs, torch.float32), grad.float(), kind), expected) < 1e-5
    inputs[0][0, 0] = torch.nan
    out = cpu.forward(kind, Inputs(*inputs), False)[0]
    assert torch.equal(out.isnan(), steps.forward(kind, Inputs(*inputs), False)[0].isnan())


@needs_numba
@pytest.mark.parametrize(
    ("kind", "heads", "hidden"),
    [("lstm", 1, 4), ("lstm", 8, 4), ("lstm", 1, 136), ("mingru", 1, 40), ("minlstm", 8, 4)],  # 136 units are wide
)
def test_the_number_of_threads_does_not_change_a_bit(kind: str, heads: int, hidden: int) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(60, (800,), generator=generator).tolist()
    inputs, grad = float32_inputs(heads=heads, lengths=[*lengths, 900], kind=kind, hidden=hidden)
    before = torch.get_num_threads()
    try:
        first = run(cpu, inputs, grad, kind)
        for threads in (1, 2, 3, 3):
            torch.set_num_threads(threads)
            assert all(torch.equal(a, b) for a, b in zip(run(cpu, inputs, grad, kind), first, strict=True))
    finally:
        torch.set_num_threads(before)


@needs_numba
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize(("hidden", "directions"), [(128, 2), (129, 2), (144, 1)])
def test_wide_cells(kind: str, hidden: int, directions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "_PLACES", 40)  # the gradients of the weights are added up several times
    inputs, grad = make_inputs(kind=kind, hidden=hidden)
    projected, places, weight, *recurrent = inputs
    inputs = [projected[:, :, :directions], places, weight, *(value[:, :directions] for value in recurrent)]
    grad = grad[..., : directions * hidden]
    expected = run(steps, inputs, grad, kind)
    assert error(run(cpu, inputs, grad, kind), expected) < 1e-12
    assert error(run(cpu, to(inputs, torch.float32), grad.float(), kind), expected) < 1e-5
    shapes = [value.shape for value in cpu.saved_like(kind, Inputs(*inputs))]
    assert [value.shape for value in cpu.forward(kind, Inputs(*inputs), True)[1]] == shapes


@needs_numba
def test_calls_from_several_threads_at_once() -> None:
    inputs, grad = float32_inputs(lengths=[40] * 500)
    expected = run(cpu, inputs, grad)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: run(cpu, inputs, grad), range(4)))
    assert all(torch.equal(a, b) for values in results for a, b in zip(values, expected, strict=True))


@needs_numba
def test_a_gradient_that_fades_is_followed_as_far_as_it_matters() -> None:
    inputs, grad = make_inputs(lengths=[700, 3, 690, 500, 40])
    expected = run(steps, inputs, grad)
    assert error(run(cpu, inputs, grad), expected) < 1e-12
    assert error(run(cpu, to(inputs, torch.float32), grad.float()), expected) < 1e-5


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba" else find(name))
    assert "pip install 'torch-goat[cpu]'" in cpu.unavailable()
