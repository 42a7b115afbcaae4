"""minGRU and minLSTM on the CPU. Their units are independent of each other, so that tasks are blocks of units.

Every task reads all segments: no sum over segments is split, and results do not depend on the number of threads.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.cpu.packing import Shape, cut_gates, pad_gates, pad_units
from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs
from torch_goat.ops.threads import run_all

_TASKS = 8  # at least, if there are as many blocks


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    heads, _, directions, _ = inputs.projected.shape
    return [inputs.bias_ih.new_empty(inputs.places.ptr.numel() - 1, heads, directions, _shape(kind, inputs).width)]


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    from torch_goat.ops.ragged_rnn.cpu import scan_loops

    shape, (final,) = _shape(kind, inputs), saved_like(kind, inputs)
    tasks, _ = split_blocks(shape, *_chains(inputs))
    arguments = (_packed(shape, inputs), final.numpy(), tasks)
    run_all(lambda begin, end: scan_loops.forward(shape, *arguments, begin, end), tasks.size, _num_steps(shape, inputs))
    out = final[..., : shape.hidden].flatten(2).to(inputs.projected.dtype, copy=save)
    return out, [final] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    from torch_goat.ops.ragged_rnn.cpu import scan_loops

    projected, source, bias = inputs.projected, inputs.places.source, inputs.bias_ih
    heads, num_sources, directions, _ = projected.shape
    shape = _shape(kind, inputs)
    tasks, parts = split_blocks(shape, heads, directions)
    table = bias.new_zeros(heads, num_sources, directions, shape.gates * shape.width)
    scale = bias.new_zeros(parts, directions, *source.shape)
    biases = bias.new_zeros(heads, directions, shape.gates * shape.width, dtype=torch.double)
    states = pad_units(shape, grad.to(bias.dtype).view(-1, heads, directions, shape.hidden)).contiguous()
    outputs = scan_loops.Outputs(table.numpy(), scale.numpy(), biases.numpy())
    arguments = (_packed(shape, inputs), saved[0].numpy(), states.numpy(), outputs, tasks)
    run_all(
        lambda begin, end: scan_loops.backward(shape, *arguments, begin, end), tasks.size, _num_steps(shape, inputs)
    )
    return Gradients(
        cut_gates(shape, table).to(projected.dtype),
        scale.sum(dim=(0, 1)),
        torch.zeros_like(inputs.weight_hh),
        cut_gates(shape, biases).to(bias.dtype),
        torch.zeros_like(inputs.bias_hh),
    )


def _shape(kind: str, inputs: Inputs) -> Shape:
    bias = inputs.bias_ih
    return units_in_blocks(kind, str(bias.dtype).removeprefix("torch."), GATES[kind], bias.size(-1) // GATES[kind])


@lru_cache(maxsize=64)
def units_in_blocks(kind: str, element: str, gates: int, hidden: int) -> Shape:
    """The layout of independent units, one segment at a time."""
    lanes = 4 if hidden <= 4 else 8 if hidden <= 8 else 16
    blocks = -(-hidden // lanes)
    return Shape(kind, element, gates, hidden, lanes, blocks, 1, 1, as_given=blocks * lanes == hidden)


def _chains(inputs: Inputs) -> tuple[int, int]:
    heads, _, directions, _ = inputs.projected.shape
    return heads, directions


def _num_steps(shape: Shape, inputs: Inputs) -> int:
    """The work in places of one block."""
    return inputs.places.source.numel() * inputs.projected.size(2) * shape.blocks


def _packed(shape: Shape, inputs: Inputs) -> Any:
    from torch_goat.ops.ragged_rnn.cpu.scan_loops import Packed

    projected, places, weight, _, bias, _ = inputs
    scale = bias.new_ones(places.source.shape) if weight is None else weight
    values = (pad_gates(shape, projected.to(bias.dtype)), places.source, scale, places.ptr, pad_gates(shape, bias))
    return Packed(*[value.detach().contiguous().numpy() for value in values])


@lru_cache(maxsize=64)
def split_blocks(shape: Shape, heads: int, directions: int) -> tuple[np.ndarray, int]:
    """Head, direction, first and last block, and part of every task; and the number of parts of a head's blocks."""
    parts = min(shape.blocks, -(-_TASKS // (heads * directions)))
    bounds = [shape.blocks * part // parts for part in range(parts + 1)]
    tasks = [
        (head, direction, bounds[part], bounds[part + 1], part)
        for head in range(heads)
        for direction in range(directions)
        for part in range(parts)
    ]
    return np.array(tasks, [(name, np.int64) for name in ("head", "direction", "first", "last", "part")]), parts
