"""The ragged RNN fused on the CPU, compiled by numba: every segment is read place by place, its state in registers.

Wide RNNs, whose weights do not fit there, are read step by step, with PyTorch's products: see :mod:`.wide`.
"""

import importlib.util
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torch_goat.lazy import lazy_names
from torch_goat.ops.ragged_rnn.cpu import packing, wide
from torch_goat.ops.ragged_rnn.cpu.packing import STRETCH, Shape
from torch_goat.ops.ragged_rnn.interface import SCANS, Gradients, Inputs
from torch_goat.ops.segments import Segments
from torch_goat.ops.threads import run_all

if TYPE_CHECKING:
    from torch_goat.ops.ragged_rnn.cpu.mean import weighted_sum as weighted_sum
    from torch_goat.ops.ragged_rnn.cpu.mean import weighted_sum_backward as weighted_sum_backward

# numba is optional: it is imported on first use, not with the package.
__getattr__, __dir__ = lazy_names(__name__, {"mean": ("weighted_sum", "weighted_sum_backward")})

DESCRIPTION = "every segment fused into one loop of vector instructions, compiled by numba"

# The segments of a head and direction are split into chunks only if there are too few heads and directions for all
# threads. The chunks, and with them the order of every sum, do not depend on the number of threads.
_TASKS = 8
# Units per direction beyond which the products of :mod:`.wide` can be faster than vectors in registers, as measured.
WIDEST = 128
_PLACES_PER_CHUNK = 4096


def max_hidden(arithmetic: torch.dtype) -> int:
    return sys.maxsize


def devices() -> tuple[str, ...]:
    return ("cpu",)


def unavailable() -> str | None:
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed: pip install 'torch-goat[cpu]'"
    return None


def _is_wide(inputs: Inputs) -> bool:
    return inputs.weight_hh.size(-1) > WIDEST


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    if kind in SCANS:
        from torch_goat.ops.ragged_rnn.cpu import scan

        return scan.saved_like(kind, inputs)
    if _is_wide(inputs):
        return wide.saved_like(kind, inputs)
    return [_kept(_shape(kind, inputs), inputs, inputs.places.source.size(1))]


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    if kind in SCANS:
        from torch_goat.ops.ragged_rnn.cpu import scan

        return scan.forward(kind, inputs, save)
    if _is_wide(inputs):
        return wide.forward(kind, inputs, save)
    from torch_goat.ops.ragged_rnn.cpu import sweep

    heads, _, directions, _ = inputs.projected.shape
    source, segments = inputs.places.source, inputs.places.segments
    shape = _shape(kind, inputs)
    out = inputs.weight_hh.new_zeros(segments.num_segments, heads, directions, shape.hidden)
    kept = _kept(shape, inputs, source.size(1) if save else 0)
    tasks = _tasks(shape, heads, directions, segments)
    arguments = (_packed(shape, inputs), _longest_first(segments), kept.numpy(), out.numpy(), tasks)
    run_all(lambda begin, end: sweep.forward(shape, *arguments, begin, end), tasks.size, source.numel() * directions)
    return out.flatten(2).to(inputs.projected.dtype), [kept] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    if kind in SCANS:
        from torch_goat.ops.ragged_rnn.cpu import scan

        return scan.backward(kind, grad, inputs, saved)
    if _is_wide(inputs):
        return wide.backward(kind, grad, inputs, saved)
    from torch_goat.ops.ragged_rnn.cpu import sweep

    projected, places, weight_hh = inputs.projected, inputs.places, inputs.weight_hh
    heads, num_sources, directions, _ = projected.shape
    shape = _shape(kind, inputs)
    tasks = _tasks(shape, heads, directions, places.segments)
    chunks, width = tasks.size // (heads * directions), shape.gates * shape.width
    table = weight_hh.new_zeros(chunks, heads, num_sources, directions, width)
    scale = weight_hh.new_empty(directions, *places.source.shape)
    sizes = [shape.blocks * shape.lanes * width, width, shape.segments * shape.width]
    weights = weight_hh.new_zeros(chunks, heads, directions, sum(sizes), dtype=torch.double)
    states = grad.to(weight_hh.dtype).contiguous().view(-1, heads, directions, shape.hidden).numpy()
    outputs = sweep.Outputs(table.numpy(), scale.numpy(), weights.numpy())
    packed, longest_first = _packed(shape, inputs), _longest_first(places.segments)
    arguments = (packed, longest_first, saved[0].numpy(), states, outputs, tasks)
    num_steps = places.source.numel() * directions
    run_all(lambda begin, end: sweep.backward(shape, *arguments, begin, end), tasks.size, num_steps)
    recurrent, grad_bias_hh, extra = _sum(weights).split(sizes, dim=-1)
    grad_bias = grad_bias_hh
    if kind == "gru":
        grad_bias = grad_bias_hh.unflatten(-1, (shape.blocks, 3, shape.lanes)).clone()
        grad_bias[..., 2, :] = extra.unflatten(-1, (shape.blocks, shape.segments, shape.lanes)).sum(dim=3)
        grad_bias = grad_bias.flatten(-3)
    recurrent = recurrent.unflatten(-1, (shape.blocks, shape.width, -1))
    return Gradients(
        packing.unpack_gates(shape, _sum(table)).to(projected.dtype),
        _sum(scale),
        packing.unpack_recurrent(shape, recurrent).to(weight_hh.dtype).contiguous(),
        *(packing.unpack_gates(shape, value).to(weight_hh.dtype, copy=True) for value in (grad_bias, grad_bias_hh)),
    )


def _sum(parts: Tensor) -> Tensor:
    """The sum over the first dimension, in a fixed order."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def _shape(kind: str, inputs: Inputs) -> Shape:
    return packing.shape_of(kind, str(inputs.weight_hh.dtype).removeprefix("torch."), inputs.weight_hh.size(-1))


def _packed(shape: Shape, inputs: Inputs) -> Any:
    """The inputs in the layout that the compiled code reads."""
    from torch_goat.ops.ragged_rnn.cpu.sweep import Packed

    projected, places, weight, weight_hh, bias_ih, bias_hh = inputs
    bias = bias_ih if shape.kind == "gru" else bias_ih + bias_hh
    rows = packing.pack_gates(shape, projected.to(weight_hh.dtype))
    scale = weight_hh.new_ones(places.source.shape) if weight is None else weight
    matrices = [packing.pack_recurrent(shape, weight_hh), packing.pack_transposed(shape, weight_hh)]
    biases = [packing.pack_gates(shape, value) for value in (bias, bias_hh)]
    values = (rows, places.source, scale, *matrices, *biases)
    return Packed(*[value.detach().contiguous().numpy() for value in values])


def _longest_first(segments: Segments) -> Any:
    """The segments that are not empty, longest first."""
    from torch_goat.ops.ragged_rnn.cpu.sweep import LongestFirst

    def compute() -> LongestFirst:
        length = np.diff(segments.ptr.numpy())  # [T]
        order = segments.by_length.numpy()[: np.count_nonzero(length)]
        return LongestFirst(order, segments.ptr.numpy()[order], length[order])

    return segments.memo.compute("cpu", compute)


def _kept(shape: Shape, inputs: Inputs, places: int) -> Tensor:
    """Room for the states between stretches: a group that keeps n of them has read more than n stretches."""
    heads, _, directions, _ = inputs.projected.shape
    return inputs.weight_hh.new_empty(heads, directions, places // STRETCH, shape.states, shape.segments * shape.width)


def _tasks(shape: Shape, heads: int, directions: int, segments: Segments) -> np.ndarray:
    """Head, direction, first and last segment, chunk, and the first row of kept states of every task."""

    def compute() -> np.ndarray:
        length = _longest_first(segments).length
        places = length.cumsum()
        total = int(places[-1]) if places.size else 0
        chunks = max(1, min(-(-_TASKS // (heads * directions)), total // _PLACES_PER_CHUNK))
        ends = np.searchsorted(places, total * np.arange(1, chunks) // chunks)
        bounds = [0, *ends.tolist(), length.size]
        rows = [0]
        for first, last in pairwise(bounds):
            rows.append(rows[-1] + int(((length[first : last : shape.segments] - 1) // STRETCH).sum()))
        tasks = [
            (head, direction, bounds[chunk], bounds[chunk + 1], chunk, rows[chunk])
            for head in range(heads)
            for direction in range(directions)
            for chunk in range(chunks)
        ]
        return np.array(tasks, [(name, np.int64) for name in ("head", "direction", "first", "last", "chunk", "row")])

    return segments.memo.compute(("cpu tasks", shape.segments, heads, directions), compute)
