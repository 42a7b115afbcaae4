"""Every Triton kernel compiles for an NVIDIA GPU, whether or not this machine has one.

The interpreter, in which the other tests may run, has no layouts, registers and shared memory. Without a GPU, set
TRITON_INTERPRET=0 to turn it off.
"""

import importlib
import itertools
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.interface import GATES, SCANS, TORCH_MODULES, Inputs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"),
]

KERNEL_NAMES = {
    "fused_order": ("score_kernel", "token_kernel", "weigh_kernel", "back_kernel"),
    "ragged_rnn.triton.launch": ("forward_kernel", "backward_kernel", "sum_kernel"),
    "ragged_rnn.triton.products": ("outer_kernel",),
    "ragged_rnn.triton.scan": ("reduce_kernel", "complete_kernel", "flow_kernel", "gradient_kernel"),
    "ragged_rnn.triton.wide_launch": ("matrix_kernel", "wide_forward_kernel", "wide_backward_kernel"),
    "ragged_rnn.triton.sources": ("source_kernel", "carry_kernel"),
    "ragged_rnn.triton.mean": ("sum_segments_kernel",),
    "ties": ("mark_kernel", "rank_kernel"),
}
CAPABILITY, SHARED_MEMORY = 90, 227 * 1024  # of an H100 or H200, per program
TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
}

Launch = tuple[Any, dict[str, Any]]


class Recorder:
    """Records the arguments of a kernel instead of launching it."""

    def __init__(self, kernel: Any, launches: list[Launch]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def record(*values: Any, **named: Any) -> None:
            self.launches.append((self.kernel, {**dict(zip(self.kernel.arg_names, values, strict=False)), **named}))

        return record


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    pytest.importorskip("triton", reason="Triton is not installed")
    noted: list[Launch] = []
    for file, names in KERNEL_NAMES.items():
        module = importlib.import_module(f"torch_goat.ops.{file}")
        for name in names:
            monkeypatch.setattr(module, name, Recorder(getattr(module, name), noted))
    return noted


def _run(kind: str, hidden: int, dtype: torch.dtype, weighted: bool, directions: int) -> None:
    """Evaluation, training and backward, of two heads, ten targets and 100 places."""
    from torch_goat.ops.ragged_rnn import triton

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.promote_types(dtype, torch.float32))

    width = GATES[kind] * hidden
    projected, source = zeros(2, 10, directions, width).to(dtype), torch.zeros(2, 100, dtype=torch.int64)
    recurrent = (zeros(2, directions, width, hidden), zeros(2, directions, width), zeros(2, directions, width))
    places = Places.from_ptr(source, torch.arange(0, 101, 10))
    inputs = Inputs(projected, places, zeros(2, 100) if weighted else None, *recurrent)
    triton.forward(kind, inputs, False)
    out, saved = triton.forward(kind, inputs, True)
    triton.backward(kind, out, inputs, saved)


def _shared_memory(kernel: Any, arguments: dict[str, Any]) -> int:
    """The shared memory of a launch, compiled down to machine code."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {name: value for name, value in arguments.items() if name not in kernel.arg_names}
    options["enable_fp_fusion"] = True  # the default, about which some versions of Triton warn
    signature, constants, hints = {}, {}, {}
    for position, parameter in enumerate(kernel.params):
        value = arguments[parameter.name]
        if isinstance(value, Tensor):
            signature[parameter.name] = f"*{TYPES[value.dtype]}"
            hints[(position,)] = [["tt.divisibility", 16]]
        elif parameter.is_constexpr or value is None:
            signature[parameter.name] = "constexpr"
            constants[(position,)] = value
        else:
            signature[parameter.name] = "i32"
    source = ASTSource(kernel, signature, constants, hints)
    return triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options=options).metadata.shared


def _check(launches: list[Launch], limit: int = SHARED_MEMORY) -> None:
    for kernel, arguments in launches:
        assert _shared_memory(kernel, arguments) <= limit, kernel.__name__


WIDTHS = [*range(1, 17), 17, 24, 32, 48, 64, 96, 128, 200, 256, 512]
CASES = [
    *itertools.product(TORCH_MODULES, WIDTHS, [torch.float32, torch.bfloat16], [True], [2]),
    *itertools.product(TORCH_MODULES, [8, 17, 64], [torch.float64], [True], [2]),
    *itertools.product(TORCH_MODULES, [8, 32, 64, 128], [torch.float32], [False], [1]),
    *itertools.product(SCANS, [1, 3, 4, 8, 32, 100, 512], [torch.float32, torch.bfloat16], [True], [2]),
    *itertools.product(SCANS, [8, 512], [torch.float32, torch.float64], [False], [1]),
]


@pytest.mark.parametrize(("kind", "hidden", "dtype", "weighted", "directions"), CASES)
def test_the_rnn_compiles(
    kind: str, hidden: int, dtype: torch.dtype, weighted: bool, directions: int, launches: list[Launch]
) -> None:
    _run(kind, hidden, dtype, weighted, directions)
    _check(launches)


@pytest.mark.parametrize("hidden", [64, 128, 256])
def test_wide_cells_fit_smaller_gpus(hidden: int, launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_goat.ops.ragged_rnn.triton import wide_launch

    monkeypatch.setattr(wide_launch, "device_of", lambda device: wide_launch.Device(128, 2**13))
    _run("lstm", hidden, torch.float32, True, 2)
    _check([launch for launch in launches if "wide" in launch[0].__name__], 99 * 1024)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 8, 16, 40, 64, 128, 256])
def test_the_mean_compiles(channels: int, dtype: torch.dtype, launches: list[Launch]) -> None:
    from torch_goat.ops.ragged_rnn.triton import mean

    z, source = torch.zeros(10, 2, channels, dtype=dtype), torch.zeros(2, 100, dtype=torch.int64)
    places, weight = Places.from_ptr(source, torch.arange(0, 101, 10)), torch.zeros(2, 100, dtype=dtype)
    mean.weighted_sum_backward(mean.weighted_sum(z, places, weight), z, weight, places)
    assert len(launches) == 3
    _check(launches)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_ties_compile(dtype: torch.dtype, launches: list[Launch]) -> None:
    from torch_goat.ops import ties

    token, tied = torch.zeros(2, 100, dtype=torch.long), torch.zeros(2, 100, dtype=torch.bool)
    ties.resolve_ties(token, tied, torch.zeros(10, 16, dtype=dtype), token[0])
    assert len(launches) == 2
    _check(launches)
