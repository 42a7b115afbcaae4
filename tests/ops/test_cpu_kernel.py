"""What is special to the fused CPU kernel; what all kernels share is tested for all of them."""

import importlib.util
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn import cpu
from torch_goat.ops.ragged_rnn import torch as steps
from torch_goat.ops.ragged_rnn.interface import GATES, Inputs

needs_numba = pytest.mark.skipif(cpu.unavailable() is not None, reason="numba is not installed")

# Ends of groups, of stretches, and empty segments.
LENGTHS = [0, 3, 1, 70, 2, 0, 33, 32, 64, 65, 5, 1, 1, 7, 2, 0]


def make_inputs(
    kind: str = "lstm",
    hidden: int = 8,
    heads: int = 2,
    directions: int = 2,
    lengths: list[int] = LENGTHS,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> tuple[list[Any], Tensor]:
    """The tensors of a kernel and a gradient of its output."""
    generator = torch.Generator().manual_seed(0)

    def randn(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)

    ptr = torch.tensor([0, *lengths]).cumsum(0)
    places, width, bound = int(ptr[-1]), GATES[kind] * hidden, hidden**-0.5
    inputs = [
        scale * randn(heads, 9, directions, width),
        Places.from_ptr(torch.randint(9, (heads, places), generator=generator), ptr),
        torch.rand(heads, places, generator=generator, dtype=torch.float64).to(dtype),
        bound * randn(heads, directions, width, hidden),
        bound * randn(heads, directions, width),
        bound * randn(heads, directions, width),
    ]
    return inputs, randn(len(lengths), heads, directions * hidden)


def run(kernel: object, kind: str, inputs: list[Any], grad: Tensor) -> list[Tensor]:
    out, saved = kernel.forward(kind, Inputs(*inputs), True)
    return [out, *kernel.backward(kind, grad, Inputs(*inputs), saved)]


def error(values: list[Tensor], expected: list[Tensor]) -> float:
    return max(
        float((value.double() - true).abs().max() / true.abs().max())
        for value, true in zip(values, expected, strict=True)
    )


def to(inputs: list[Any], dtype: torch.dtype) -> list[Any]:
    return [value if isinstance(value, Places) else value.to(dtype) for value in inputs]


@needs_numba
@pytest.mark.parametrize("hidden", [1, 3, 17, 64, 128])
def test_widths(hidden: int) -> None:
    inputs, grad = make_inputs(hidden=hidden)
    expected = run(steps, "lstm", inputs, grad)
    assert error(run(cpu, "lstm", inputs, grad), expected) < 1e-12


@needs_numba
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("scale", [1.0, 0.0025, 1e-6])
def test_float32_is_accurate_for_inputs_of_any_size(kind: str, scale: float) -> None:
    inputs, grad = make_inputs(kind, scale=scale)
    inputs[-2:] = [torch.zeros_like(value) for value in inputs[-2:]]  # the states are as small as the inputs
    expected = run(steps, kind, inputs, grad)
    values = run(cpu, kind, to(inputs, torch.float32), grad.float())
    assert error(values, expected) < 1e-5  # what is promised; how sums round depends on the processor


@needs_numba
def test_saturated_gates() -> None:
    inputs, grad = make_inputs(scale=200.0)
    expected = run(steps, "lstm", inputs, grad)
    assert error(run(cpu, "lstm", to(inputs, torch.float32), grad.float()), expected) < 1e-5
    inputs[0][0, 0] = torch.nan
    out = cpu.forward("lstm", Inputs(*inputs), False)[0]
    assert torch.equal(out.isnan(), steps.forward("lstm", Inputs(*inputs), False)[0].isnan())


@needs_numba
@pytest.mark.parametrize("heads", [1, 8])
def test_the_number_of_threads_does_not_change_a_bit(heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(60, (800,), generator=generator).tolist()
    inputs, grad = make_inputs(heads=heads, lengths=[*lengths, 900], dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 3):
            torch.set_num_threads(threads)
            results.append(run(cpu, "lstm", inputs, grad))
    finally:
        torch.set_num_threads(before)
    for values in results[1:]:
        assert all(torch.equal(value, first) for value, first in zip(values, results[0], strict=True))


@needs_numba
def test_calls_from_several_threads_at_once() -> None:
    inputs, grad = make_inputs(lengths=[40] * 500, dtype=torch.float32)
    expected = run(cpu, "lstm", inputs, grad)
    results: list[list[Tensor]] = []
    callers = [threading.Thread(target=lambda: results.append(run(cpu, "lstm", inputs, grad))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 4
    assert all(torch.equal(a, b) for values in results for a, b in zip(values, expected, strict=True))


@needs_numba
def test_a_gradient_that_fades_is_followed_as_far_as_it_matters() -> None:
    inputs, grad = make_inputs(lengths=[700, 3, 690, 500, 40], dtype=torch.float64)
    expected = run(steps, "lstm", inputs, grad)
    assert error(run(cpu, "lstm", inputs, grad), expected) < 1e-12
    assert error(run(cpu, "lstm", to(inputs, torch.float32), grad.float()), expected) < 1e-5


@needs_numba
def test_no_targets_and_no_places() -> None:
    for lengths in ([], [0, 0, 0]):
        inputs, grad = make_inputs(lengths=lengths)
        out, *grads = run(cpu, "lstm", inputs, grad)
        assert out.shape == grad.shape
        assert all(not value.any() for value in (out, *grads))


@needs_numba
def test_saved_like_has_the_shapes_of_saved() -> None:
    for kind in GATES:
        inputs, _ = make_inputs(kind)
        _, saved = cpu.forward(kind, Inputs(*inputs), True)
        like = cpu.saved_like(kind, Inputs(*inputs))
        assert [value.shape for value in like] == [value.shape for value in saved]


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba" else find(name))
    assert "pip install 'torch-goat[cpu]'" in cpu.unavailable()


@pytest.mark.parametrize("module", ["cpu.simd", "triton.launch"])
def test_importing_the_package_does_not_import_kernels(module: str) -> None:
    code = f"import sys; import torch_goat.nn; sys.exit('torch_goat.ops.ragged_rnn.{module}' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
