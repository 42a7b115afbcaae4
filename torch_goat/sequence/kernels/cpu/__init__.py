"""The ragged RNN fused on the CPU, compiled by numba: every run is read place by place, its state in registers."""

import importlib.util
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from torch_goat.sequence.kernels.cpu.packing import (
    STRETCH,
    Shape,
    pack_gates,
    pack_recurrent,
    pack_transposed,
    shape_of,
    unpack_gates,
    unpack_recurrent,
)
from torch_goat.sequence.kernels.cpu.pool import run_all

DESCRIPTION = "every run fused into one loop of vector instructions, compiled by numba"
MAX_HIDDEN = 128

# A head and direction are split into chunks of runs only if there are too few of them to share out among threads.
# The chunks depend on the tensors alone, never on the number of threads, and so does every sum.
_TASKS = 8
_PLACES_PER_CHUNK = 4096


def devices() -> tuple[str, ...]:
    return ("cpu",)


def unavailable() -> str | None:
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed: pip install 'torch-goat[cpu]'"
    return None


def saved_like(kind: str, projected: Tensor, source: Tensor, ptr: Tensor, weight_hh: Tensor) -> list[Tensor]:
    return [_kept(_shape(kind, weight_hh), projected, source.size(1), weight_hh)]


def forward(
    kind: str,
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    save: bool,
) -> tuple[Tensor, list[Tensor]]:
    from torch_goat.sequence.kernels.cpu import sweep

    heads, _, directions, _ = projected.shape
    shape = _shape(kind, weight_hh)
    inputs, runs = _inputs(shape, projected, source, weight, ptr, weight_hh, bias_ih, bias_hh)
    out = weight_hh.new_zeros(ptr.numel() - 1, heads, directions, shape.hidden)
    kept = _kept(shape, projected, source.size(1) if save else 0, weight_hh)
    tasks = _tasks(shape, heads, directions, runs.length)
    arguments = (inputs, runs, kept.numpy(), out.numpy(), tasks)
    run_all(lambda begin, end: sweep.forward(shape, *arguments, begin, end), tasks.size, source.numel() * directions)
    return out.flatten(2).to(projected.dtype), [kept] if save else []


def backward(
    kind: str,
    grad: Tensor,
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    saved: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from torch_goat.sequence.kernels.cpu import sweep

    heads, num_sources, directions, _ = projected.shape
    shape = _shape(kind, weight_hh)
    inputs, runs = _inputs(shape, projected, source, weight, ptr, weight_hh, bias_ih, bias_hh)
    tasks = _tasks(shape, heads, directions, runs.length)
    chunks = tasks.size // (heads * directions)

    def zeros(*size: int) -> Tensor:
        return weight_hh.new_zeros(chunks, heads, *size)

    width = shape.gates * shape.width
    table, scale = zeros(num_sources, directions, width), weight_hh.new_empty(directions, *source.shape)
    recurrent = zeros(directions, shape.blocks * shape.width, shape.gates * shape.lanes)
    share, extra = zeros(directions, 1, width), zeros(directions, 1, shape.runs * shape.width)
    states = grad.to(weight_hh.dtype).contiguous().view(-1, heads, directions, shape.hidden).numpy()
    kept = saved[0].numpy()
    outputs = sweep.Outputs(*[value.numpy() for value in (table, scale, recurrent, share, extra)])
    arguments = (inputs, runs, kept, states, outputs, tasks)
    run_all(lambda begin, end: sweep.backward(shape, *arguments, begin, end), tasks.size, source.numel() * directions)
    grad_bias_hh = _sum(share).squeeze(2)
    grad_bias = grad_bias_hh
    if kind == "gru":
        grad_bias = grad_bias_hh.unflatten(-1, (shape.blocks, 3, shape.lanes)).clone()
        grad_bias[..., 2, :] = _sum(extra).view(heads, directions, shape.blocks, shape.runs, shape.lanes).sum(dim=3)
        grad_bias = grad_bias.flatten(-3)
    return (
        unpack_gates(shape, _sum(table)).to(projected.dtype),
        _sum(scale),
        unpack_recurrent(shape, _sum(recurrent).unflatten(2, (shape.blocks, shape.width))).contiguous(),
        unpack_gates(shape, grad_bias),
        unpack_gates(shape, grad_bias_hh).clone(),
    )


def _sum(parts: Tensor) -> Tensor:
    """The sum over the first dimension in its order, whatever the number of threads."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def _shape(kind: str, weight_hh: Tensor) -> Shape:
    return shape_of(kind, str(weight_hh.dtype).removeprefix("torch."), weight_hh.size(-1))


def _inputs(
    shape: Shape,
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
) -> tuple[Any, Any]:
    from torch_goat.sequence.kernels.cpu.sweep import Inputs, Runs

    bias = bias_ih if shape.kind == "gru" else bias_ih + bias_hh
    rows = pack_gates(shape, projected.to(weight_hh.dtype))
    scale = weight_hh.new_ones(source.shape) if weight is None else weight
    packed = [pack_recurrent(shape, weight_hh), pack_transposed(shape, weight_hh)]
    packed += [pack_gates(shape, value) for value in (bias, bias_hh)]
    length = np.diff(ptr.numpy())  # [T]
    order = np.argsort(-length, kind="stable")[: np.count_nonzero(length)]
    runs = Runs(order, ptr.numpy()[order], length[order])
    return Inputs(*[_array(value) for value in (rows, source, scale, *packed)]), runs


def _array(value: Tensor) -> np.ndarray:
    return value.detach().contiguous().numpy()


def _kept(shape: Shape, projected: Tensor, places: int, like: Tensor) -> Tensor:
    """Room for the states between stretches. A group that keeps n has read more than n stretches of places."""
    heads, _, directions, _ = projected.shape
    return like.new_empty(heads, directions, places // STRETCH, shape.states, shape.runs * shape.width)


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
