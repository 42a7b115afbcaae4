"""The loops of the weighted sum over all segments, for some blocks of columns of one head."""

# mypy: allow-untyped-defs

from typing import NamedTuple

import numpy as np
from numba import njit

from torch_goat.ops.ragged_rnn.cpu.layout import store
from torch_goat.ops.ragged_rnn.cpu.scan_loops import add_to_row, dot, load_parts, no_parts, scale_parts
from torch_goat.ops.ragged_rnn.cpu.sweep import Compiled


class Packed(NamedTuple):
    """The inputs of all heads."""

    table: np.ndarray  # [S, K, width]
    source: np.ndarray  # [K, E]
    scale: np.ndarray  # [K, E]
    ptr: np.ndarray  # [T + 1]


@Compiled
def forward(cell, inputs, out, tasks, begin, end):
    """Tasks ``begin`` to ``end``: the sums ``[T, K, width]`` of all segments."""
    for task in range(begin, end):
        _forward(cell, inputs, out, tasks[task])


@njit
def _forward(cell, inputs, out, task):
    head = task.head
    table, source, scale, sums = inputs.table[:, head], inputs.source[head], inputs.scale[head], out[:, head]
    for target in range(inputs.ptr.size - 1):
        for block in range(task.first, task.last):
            total = no_parts(cell)
            for place in range(inputs.ptr[target], inputs.ptr[target + 1]):
                total = scale_parts(cell, load_parts(cell, table, source[place], block), scale[place], total)
            store(sums, target, block, total[0])


@Compiled
def backward(cell, inputs, grad, grad_table, grad_scale, tasks, begin, end):
    """Tasks ``begin`` to ``end``: the gradients ``[S, K, width]`` and ``[parts, K, E]``."""
    for task in range(begin, end):
        _backward(cell, inputs, grad, grad_table, grad_scale, tasks[task])


@njit
def _backward(cell, inputs, grad, grad_table, grad_scale, task):
    head = task.head
    table, source, scale = inputs.table[:, head], inputs.source[head], inputs.scale[head]
    grads, to_table, to_scale = grad[:, head], grad_table[:, head], grad_scale[task.part, head]
    for target in range(inputs.ptr.size - 1):
        for block in range(task.first, task.last):
            flow = load_parts(cell, grads, target, block)
            for place in range(inputs.ptr[target], inputs.ptr[target + 1]):
                to_scale[place] += dot(cell, flow, load_parts(cell, table, source[place], block))
                add_to_row(cell, to_table, source[place], block, flow, scale[place])
