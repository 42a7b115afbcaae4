"""The ragged RNN fused on the CPU, compiled by numba: every run is read place by place, its state in registers."""

import importlib.util
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor, double, dtype

from torch_goat.ops.ragged_rnn.cpu.packing import (
    STRETCH,
    Shape,
    pack_gates,
    pack_recurrent,
    pack_transposed,
    shape_of,
    unpack_gates,
    unpack_recurrent,
)
from torch_goat.ops.ragged_rnn.cpu.pool import run_all
from torch_goat.ops.ragged_rnn.interface import Gradients, Inputs

DESCRIPTION = "every run fused into one loop of vector instructions, compiled by numba"

# A head and direction are split into chunks of runs only if there are too few of them to share out among threads.
# The chunks depend on the tensors alone, never on the number of threads, and so does every sum.
_TASKS = 8
_PLACES_PER_CHUNK = 4096


def max_hidden(arithmetic: dtype) -> int:
    return 128


def devices() -> tuple[str, ...]:
    return ("cpu",)


def unavailable() -> str | None:
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed: pip install 'torch-goat[cpu]'"
    return None


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    return [_kept(_shape(kind, inputs), inputs, inputs.source.size(1))]


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    from torch_goat.ops.ragged_rnn.cpu import sweep

    heads, _, directions, _ = inputs.projected.shape
    shape = _shape(kind, inputs)
    packed, runs = _packed(shape, inputs)
    out = inputs.weight_hh.new_zeros(inputs.ptr.numel() - 1, heads, directions, shape.hidden)
    kept = _kept(shape, inputs, inputs.source.size(1) if save else 0)
    tasks = _tasks(shape, heads, directions, runs.length)
    arguments = (packed, runs, kept.numpy(), out.numpy(), tasks)
    places = inputs.source.numel() * directions
    run_all(lambda begin, end: sweep.forward(shape, *arguments, begin, end), tasks.size, places)
    return out.flatten(2).to(inputs.projected.dtype), [kept] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    from torch_goat.ops.ragged_rnn.cpu import sweep

    projected, source, weight_hh = inputs.projected, inputs.source, inputs.weight_hh
    heads, num_sources, directions, _ = projected.shape
    shape = _shape(kind, inputs)
    packed, runs = _packed(shape, inputs)
    tasks = _tasks(shape, heads, directions, runs.length)
    chunks = tasks.size // (heads * directions)

    def zeros(*size: int) -> Tensor:
        return weight_hh.new_zeros(chunks, heads, *size, dtype=double)

    width = shape.gates * shape.width
    table = weight_hh.new_zeros(chunks, heads, num_sources, directions, width)
    scale = weight_hh.new_empty(directions, *source.shape)
    recurrent = zeros(directions, shape.blocks * shape.width, shape.gates * shape.lanes)
    share, extra = zeros(directions, 1, width), zeros(directions, 1, shape.runs * shape.width)
    states = grad.to(weight_hh.dtype).contiguous().view(-1, heads, directions, shape.hidden).numpy()
    kept = saved[0].numpy()
    outputs = sweep.Outputs(*[value.numpy() for value in (table, scale, recurrent, share, extra)])
    arguments = (packed, runs, kept, states, outputs, tasks)
    run_all(lambda begin, end: sweep.backward(shape, *arguments, begin, end), tasks.size, source.numel() * directions)
    grad_bias_hh = _sum(share).squeeze(2)
    grad_bias = grad_bias_hh
    if kind == "gru":
        grad_bias = grad_bias_hh.unflatten(-1, (shape.blocks, 3, shape.lanes)).clone()
        grad_bias[..., 2, :] = _sum(extra).view(heads, directions, shape.blocks, shape.runs, shape.lanes).sum(dim=3)
        grad_bias = grad_bias.flatten(-3)
    grad_recurrent = unpack_recurrent(shape, _sum(recurrent).unflatten(2, (shape.blocks, shape.width)))
    return Gradients(
        unpack_gates(shape, _sum(table)).to(projected.dtype),
        _sum(scale),
        grad_recurrent.to(weight_hh.dtype).contiguous(),
        unpack_gates(shape, grad_bias).to(weight_hh.dtype),
        unpack_gates(shape, grad_bias_hh).to(weight_hh.dtype, copy=True),
    )


def _sum(parts: Tensor) -> Tensor:
    """The sum over the first dimension in its order, whatever the number of threads."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def _shape(kind: str, inputs: Inputs) -> Shape:
    return shape_of(kind, str(inputs.weight_hh.dtype).removeprefix("torch."), inputs.weight_hh.size(-1))


def _packed(shape: Shape, inputs: Inputs) -> tuple[Any, Any]:
    """The inputs as the compiled code reads them, and the runs, longest first."""
    from torch_goat.ops.ragged_rnn.cpu.sweep import Packed, Runs

    projected, source, weight, ptr, weight_hh, bias_ih, bias_hh = inputs
    bias = bias_ih if shape.kind == "gru" else bias_ih + bias_hh
    rows = pack_gates(shape, projected.to(weight_hh.dtype))
    scale = weight_hh.new_ones(source.shape) if weight is None else weight
    matrices = [pack_recurrent(shape, weight_hh), pack_transposed(shape, weight_hh)]
    biases = [pack_gates(shape, value) for value in (bias, bias_hh)]
    length = np.diff(ptr.numpy())  # [T]
    order = np.argsort(-length, kind="stable")[: np.count_nonzero(length)]
    runs = Runs(order, ptr.numpy()[order], length[order])
    return Packed(*[_array(value) for value in (rows, source, scale, *matrices, *biases)]), runs


def _array(value: Tensor) -> np.ndarray:
    return value.detach().contiguous().numpy()


def _kept(shape: Shape, inputs: Inputs, places: int) -> Tensor:
    """Room for the states between stretches. A group that keeps n has read more than n stretches of places."""
    heads, _, directions, _ = inputs.projected.shape
    return inputs.weight_hh.new_empty(heads, directions, places // STRETCH, shape.states, shape.runs * shape.width)


def _tasks(shape: Shape, heads: int, directions: int, length: np.ndarray) -> np.ndarray:
    """Head, direction, first and last run, chunk, and the first row of kept states of every task."""
    places = length.cumsum()
    total = int(places[-1]) if places.size else 0
    chunks = max(1, min(-(-_TASKS // (heads * directions)), total // _PLACES_PER_CHUNK))
    ends = np.searchsorted(places, total * np.arange(1, chunks) // chunks)
    bounds = [0, *ends.tolist(), length.size]
    rows = [0]
    for first, last in pairwise(bounds):
        rows.append(rows[-1] + int(((length[first : last : shape.runs] - 1) // STRETCH).sum()))
    tasks = [
        (head, direction, bounds[chunk], bounds[chunk + 1], chunk, rows[chunk])
        for head in range(heads)
        for direction in range(directions)
        for chunk in range(chunks)
    ]
    return np.array(tasks, [(name, np.int64) for name in ("head", "direction", "first", "last", "chunk", "row")])
