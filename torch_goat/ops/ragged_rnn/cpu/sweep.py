"""The loops over the segments of one head and direction.

Segments are sorted by length, longest first, and advance in groups of P, so that those of a group have similar lengths.
A segment that has ended reads its last place again, without effect: its final state has been stored, and its gradient
is zero until then.

The forward saves one state per stretch of steps. The backward recomputes the states of a stretch into a scratch buffer
that fits the first-level cache: faster than writing all states to main memory and reading them back.
"""

# mypy: allow-untyped-defs

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof

from torch_goat.ops.compiling import compiled
from torch_goat.ops.ragged_rnn.cpu.cells import Grads, Group, Scratch, Weights, step, step_back
from torch_goat.ops.ragged_rnn.cpu.layout import (
    count_blocks,
    count_lanes,
    count_segments,
    load_gates,
    load_units,
    no_parts,
    no_tile,
    no_units,
    prefetch,
    split,
    store,
    tile_rows,
)
from torch_goat.ops.ragged_rnn.cpu.packing import STRETCH
from torch_goat.ops.ragged_rnn.cpu.products import add_bias, add_outer, add_parts, add_tile

# Groups after which the gradients of the weights go to their float64 sums: a float32 sum of many terms is coarse.
_SUMMED = 256


class Compiled:
    """A function that numba compiles on its first call for each type of its first argument, and caches on disk.

    numba determines the types of all arguments on every call, which takes longer than a small graph. Here, the
    first argument selects the compiled code: the types of the others must be the same for equal first arguments.
    """

    _FILES = sorted(Path(__file__).parent.glob("*.py"))

    def __init__(self, function: Callable) -> None:
        self._dispatcher = compiled(function, self._FILES)
        self._entries: dict[Any, Callable] = {}
        self._lock = Lock()

    def __call__(self, key: Any, *args: Any) -> None:
        if (entry := self._entries.get(key)) is None:
            with self._lock:
                signature = tuple(typeof(arg) for arg in (key, *args))
                self._dispatcher.compile(signature)
                entry = self._entries[key] = self._dispatcher.get_overload(signature)
        entry(key, *args)


class LongestFirst(NamedTuple):
    """The segments that are not empty, longest first."""

    target: np.ndarray  # [N]
    start: np.ndarray  # [N]
    length: np.ndarray  # [N]


class Packed(NamedTuple):
    """The inputs of all heads and directions."""

    table: np.ndarray  # [K, S, D, G * width]
    source: np.ndarray  # [K, E]
    scale: np.ndarray  # [K, E]
    recurrent: np.ndarray  # [K, D, blocks, width, G * B]
    transposed: np.ndarray  # [K, D, blocks * width * G, B]
    bias: np.ndarray  # [K, D, G * width]
    bias_hh: np.ndarray  # [K, D, G * width]


class Outputs(NamedTuple):
    """All gradients; sums over segments once per chunk of segments."""

    table: np.ndarray  # [chunks, K, S, D, G * width]
    scale: np.ndarray  # [D, K, E]
    weights: np.ndarray  # [chunks, K, D, N], in float64; see _GradWeights


class _GradWeights(NamedTuple):
    """The gradients of one head's and direction's weights, one after the other in an array ``[N]``."""

    recurrent: np.ndarray  # [blocks * width, G * B]
    share: np.ndarray  # [1, G * width], of the bias of the recurrent share
    extra: np.ndarray  # [1, P * width], GRU: of the bias of the new gate


@njit
def _group(cell, inputs, head, direction):
    numbers = np.zeros((3, count_segments(cell)), np.int64)
    table = inputs.table[head, :, direction]
    return Group(numbers[0], numbers[1], numbers[2], table, inputs.source[head], inputs.scale[head])


@njit
def _set_group(cell, group, segments, first, size, direction):
    for segment in range(count_segments(cell)):
        at = first + segment if segment < size else first
        group.last[segment] = segments.length[at] - 1 if segment < size else 0
        group.origin[segment] = segments.start[at] + (segments.length[at] - 1 if direction == 1 else 0)


@njit(forceinline=True)
def _look(cell, group, t, direction):
    for segment in range(count_segments(cell)):
        step_of_segment = min(t, group.last[segment])
        group.at[segment] = group.origin[segment] + (-step_of_segment if direction == 1 else step_of_segment)


@njit
def _weights(inputs, head, direction):
    recurrent = inputs.recurrent[head, direction]
    return Weights(
        recurrent,
        recurrent.reshape(-1, recurrent.shape[2]),
        inputs.transposed[head, direction],
        inputs.bias[head, direction].reshape(1, -1),
        inputs.bias_hh[head, direction].reshape(1, -1),
    )


@njit
def _scratch(cell, inputs, steps):
    width, dtype = count_segments(cell) * inputs.recurrent.shape[3], inputs.table.dtype
    gates = np.empty((steps, count_segments(cell) * inputs.table.shape[3]), dtype)
    states = np.empty((2, steps + 1, width), dtype)
    return Scratch(gates, states[0], states[1], np.empty((steps, width), dtype), states)


@Compiled
def forward(cell, inputs, segments, kept, out, tasks, begin, end):
    """Tasks ``begin`` to ``end``, see :func:`_forward`."""
    for task in range(begin, end):
        _forward(cell, inputs, segments, kept, out, tasks[task])


@njit
def _forward(cell, inputs, segments, kept, out, task):
    """The final states of the segments of a task, into ``out`` ``[T, K, D, H]``.

    ``kept`` ``[K, D, rows, states, P * width]`` takes the states between the stretches, from ``task.row`` on, if it has
    rows at all.
    """
    head, direction, row = task.head, task.direction, task.row
    weights, scratch = _weights(inputs, head, direction), _scratch(cell, inputs, 2)
    group, states = _group(cell, inputs, head, direction), kept[head, direction]
    for first in range(task.first, task.last, count_segments(cell)):
        size = min(count_segments(cell), task.last - first)
        _set_group(cell, group, segments, first, size, direction)
        _clear(cell, weights, scratch.h, scratch.c)
        t = 0
        for segment in range(size - 1, -1, -1):
            while t <= group.last[segment]:
                if t > 0 and t % STRETCH == 0 and states.shape[0] > 0:
                    states[row] = scratch.states[: states.shape[1], t & 1]
                    row += 1
                _look(cell, group, t + 1, direction)
                prefetch(cell, group.table, group.source, group.at)
                _look(cell, group, t, direction)
                step(cell, group, weights, scratch, t & 1, (t + 1) & 1)
                t += 1
            target = segments.target[first + segment]
            for unit in range(out.shape[3]):
                out[target, head, direction, unit] = scratch.h[t & 1, _column(cell, segment, unit)]


@njit(forceinline=True)
def _column(cell, segment, unit):
    """Where a segment's unit is in a row of scratch ``[blocks, P, B]``."""
    lanes = count_lanes(cell)
    return (unit // lanes * count_segments(cell) + segment) * lanes + unit % lanes


@njit(forceinline=True)
def _clear(cell, weights, h, c):
    """Zeros in the first row of two arrays of units."""
    for block in range(count_blocks(cell, weights.recurrent)):
        store(h, 0, block, no_units(cell))
        store(c, 0, block, no_units(cell))


@Compiled
def backward(cell, inputs, segments, kept, grad, outputs, tasks, begin, end):
    """Tasks ``begin`` to ``end``, see :func:`_backward`."""
    for task in range(begin, end):
        _backward(cell, inputs, segments, kept, grad, outputs, tasks[task])


@njit
def _backward(cell, inputs, segments, kept, grad, outputs, task):
    """Takes the gradient ``[T, K, D, H]`` of the final states of a task's segments back to ``outputs``."""
    head, direction, row = task.head, task.direction, task.row
    weights, scratch = _weights(inputs, head, direction), _scratch(cell, inputs, STRETCH)
    group, states = _group(cell, inputs, head, direction), kept[head, direction]
    grads = _grads(cell, scratch, outputs.table[task.chunk, head, :, direction])
    total = outputs.weights[task.chunk, head, direction]
    grad_weights = np.zeros(total.size, scratch.h.dtype)
    grad_scale = outputs.scale[direction, head]
    for first in range(task.first, task.last, count_segments(cell)):
        if (first - task.first) // count_segments(cell) % _SUMMED == 0:
            total += grad_weights
            grad_weights[:] = 0
        size = min(count_segments(cell), task.last - first)
        _set_group(cell, group, segments, first, size, direction)
        _clear(cell, weights, grads.h, grads.c)
        active, stretches = 0, group.last[0] // STRETCH
        for start in range(stretches * STRETCH, -1, -STRETCH):
            stop = min(start + STRETCH, group.last[0] + 1)
            if active == size and not grads.h.any() and not grads.c.any():
                # The gradient has vanished: earlier places have no influence.
                for segment in range(size):
                    begin = segments.start[first + segment]
                    grad_scale[begin + (group.last[segment] + 1 - stop if direction == 1 else 0) :][:stop] = 0
                break
            if start > 0:
                scratch.states[: states.shape[1], 0] = states[row + start // STRETCH - 1]
            else:
                _clear(cell, weights, scratch.h, scratch.c)
            for t in range(start, stop):
                _look(cell, group, t + 1, direction)
                prefetch(cell, group.table, group.source, group.at)
                prefetch(cell, grads.table, group.source, group.at)
                _look(cell, group, t, direction)
                step(cell, group, weights, scratch, t - start, t - start + 1)
            for t in range(stop - 1, start - 1, -1):
                while active < size and group.last[active] == t:
                    target = segments.target[first + active]
                    for unit in range(grad.shape[3]):
                        grads.h[0, _column(cell, active, unit)] = grad[target, head, direction, unit]
                    active += 1
                _look(cell, group, t, direction)
                step_back(cell, group, weights, scratch, t - start, grads)
                for segment in range(active):
                    grad_scale[group.at[segment]] = grads.scale[segment]
            _add_weights(cell, weights, scratch, stop - start, _grad_weights(weights, grad_weights))
        row += stretches
    total += grad_weights


@njit
def _grads(cell, scratch, table):
    states, dtype = np.zeros((2, 1, scratch.h.shape[1]), scratch.h.dtype), scratch.h.dtype
    return Grads(states[0], states[1], table, np.zeros(count_segments(cell), dtype))


@njit
def _grad_weights(weights, values):
    end = weights.lines.size + weights.bias.size
    recurrent = values[: weights.lines.size].reshape(weights.lines.shape)
    return _GradWeights(recurrent, values[weights.lines.size : end].reshape(1, -1), values[end:].reshape(1, -1))


@njit
def _add_weights(cell, weights, scratch, steps, grads):
    """Adds a stretch of steps to the gradients of the weights, summed in registers first."""
    lanes, width = count_lanes(cell), weights.recurrent.shape[1]
    for block in range(count_blocks(cell, weights.recurrent)):
        for unit in range(0, width, tile_rows(cell)):
            column = unit // lanes * lanes * count_segments(cell) + unit % lanes
            tile = no_tile(cell)
            for t in range(steps):
                gates = split(cell, load_gates(cell, scratch.gates, t, block))
                tile = add_outer(cell, tile, scratch.h, t, column, gates)
            add_tile(cell, grads.recurrent, block * width + unit, tile)
        share, extra = no_parts(cell), no_units(cell)
        for t in range(steps):
            share = add_parts(cell, share, split(cell, load_gates(cell, scratch.gates, t, block)))
            extra = extra + load_units(cell, scratch.extra, t, block)
        add_bias(cell, grads.share, 0, block, share)
        store(grads.extra, 0, block, extra + load_units(cell, grads.extra, 0, block))
