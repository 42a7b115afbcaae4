"""The loops over the segments of one head and direction.

Segments are sorted by length, longest first, and advance in groups of P, so that those of a group have similar lengths.
A segment that has ended reads its last place again, without effect: its final state has been stored, and its gradient
is zero until then.

The forward saves one state per stretch of steps. The backward recomputes the states of a stretch into a scratch buffer
that fits the first-level cache: faster than writing all states to main memory and reading them back.
"""

# mypy: allow-untyped-defs

import hashlib
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof

from torch_goat.ops.ragged_rnn.cpu.cells import Grads, Place, Scratch, Weights, step, step_back
from torch_goat.ops.ragged_rnn.cpu.layout import (
    count_blocks,
    count_lanes,
    count_segments,
    load_gates,
    load_units,
    no_gates,
    no_tile,
    no_units,
    prefetch,
    store,
    tile_rows,
)
from torch_goat.ops.ragged_rnn.cpu.packing import STRETCH
from torch_goat.ops.ragged_rnn.cpu.products import add_bias, add_outer, add_tile

# Groups after which the gradients of the weights go to their float64 sums: a float32 sum of many terms is coarse.
_SUMMED = 256


class Compiled:
    """A function that numba compiles on its first call for each type of its first argument, and caches on disk.

    numba only checks whether the file of the function has changed, not the files that it imports from. A digest of all
    files in the name gives each version of the kernel its own cache. Without a writable directory, every process
    compiles.

    numba also determines the types of all arguments on every call, which takes longer than a small graph. Here, the
    first argument selects the compiled code: the types of the others must be the same for equal first arguments.
    """

    _FILES = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    _VERSION = hashlib.sha256(_FILES).hexdigest()[:16]

    def __init__(self, function: Callable) -> None:
        function.__qualname__ = f"{function.__name__}_{self._VERSION}"
        try:
            self._dispatcher = njit(nogil=True, cache=True)(function)
        except RuntimeError:  # no directory to write to
            self._dispatcher = njit(nogil=True)(function)
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
    """All gradients; sums over segments once per chunk of segments; from ``recurrent`` on in float64."""

    table: np.ndarray  # [chunks, K, S, D, G * width]
    scale: np.ndarray  # [D, K, E]
    recurrent: np.ndarray  # [chunks, K, D, blocks * width, G * B]
    share: np.ndarray  # [chunks, K, D, 1, G * width], of the bias of the recurrent share
    extra: np.ndarray  # [chunks, K, D, 1, P * width], GRU: of the bias of the new gate


class _GradWeights(NamedTuple):
    """The gradients of one head's and direction's weights over a chunk of segments."""

    recurrent: np.ndarray  # [blocks * width, G * B]
    share: np.ndarray  # [1, G * width]
    extra: np.ndarray  # [1, P * width]


class _Group(NamedTuple):
    """Up to P segments, and where they read. A missing segment reads the places of the first."""

    origin: np.ndarray  # [P], the place of the first step
    last: np.ndarray  # [P], the last step


@njit
def _set_group(cell, group, segments, first, size, direction):
    for segment in range(count_segments(cell)):
        at = first + segment if segment < size else first
        group.last[segment] = segments.length[at] - 1 if segment < size else 0
        group.origin[segment] = segments.start[at] + (segments.length[at] - 1 if direction == 1 else 0)


@njit(forceinline=True)
def _look(cell, group, t, direction, at):
    for segment in range(count_segments(cell)):
        step_of_segment = min(t, group.last[segment])
        at[segment] = group.origin[segment] + (-step_of_segment if direction == 1 else step_of_segment)


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
    width = count_segments(cell) * inputs.recurrent.shape[3]
    gates, dtype = count_segments(cell) * inputs.table.shape[3], inputs.table.dtype
    states = [np.empty((steps + 1, width), dtype) for _ in range(3)]
    return Scratch(np.empty((steps, gates), dtype), states[0], states[1], states[2])


@njit
def _integers(cell):
    return np.zeros(count_segments(cell), np.int64)


@Compiled
def forward(cell, inputs, segments, kept, out, tasks, begin, end):
    """Tasks ``begin`` to ``end``, see :func:`_forward`."""
    for task in range(begin, end):
        at = tasks[task]
        _forward(cell, inputs, segments, kept, out, at.head, at.direction, at.first, at.last, at.row)


@njit
def _forward(cell, inputs, segments, kept, out, head, direction, first, last, row):
    """The final states of segments ``first`` to ``last`` of one head and direction, into ``out`` ``[T, K, D, H]``.

    ``kept`` ``[K, D, rows, states, P * width]`` takes the states between the stretches, from ``row`` on, if it has
    rows at all.
    """
    weights, scratch = _weights(inputs, head, direction), _scratch(cell, inputs, 2)
    table, place = inputs.table[head, :, direction], Place(_integers(cell), inputs.source[head], inputs.scale[head])
    group, states = _Group(_integers(cell), _integers(cell)), kept[head, direction]
    for first_of_group in range(first, last, count_segments(cell)):
        size = min(count_segments(cell), last - first_of_group)
        _set_group(cell, group, segments, first_of_group, size, direction)
        _clear(cell, weights, scratch.h, scratch.c)
        t = 0
        for segment in range(size - 1, -1, -1):
            while t <= group.last[segment]:
                if t > 0 and t % STRETCH == 0 and states.shape[0] > 0:
                    _keep(states[row], scratch.h[t & 1], scratch.c[t & 1])
                    row += 1
                _look(cell, group, t + 1, direction, place.at)
                prefetch(cell, table, place.source, place.at)
                _look(cell, group, t, direction, place.at)
                step(cell, table, place, weights, scratch, t & 1, (t + 1) & 1)
                t += 1
            target = segments.target[first_of_group + segment]
            for unit in range(out.shape[3]):
                out[target, head, direction, unit] = scratch.h[t & 1, _column(cell, segment, unit)]


@njit
def _keep(states, h, c):
    states[0] = h
    if states.shape[0] > 1:
        states[1] = c


@njit
def _restore(states, h, c):
    h[:] = states[0]
    if states.shape[0] > 1:
        c[:] = states[1]


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
        at = tasks[task]
        _backward(
            cell, inputs, segments, kept, grad, outputs, at.head, at.direction, at.first, at.last, at.chunk, at.row
        )


@njit
def _backward(cell, inputs, segments, kept, grad, outputs, head, direction, first, last, chunk, row):
    """Takes the gradient ``[T, K, D, H]`` of the final states of a chunk of segments back to ``outputs``."""
    weights, scratch = _weights(inputs, head, direction), _scratch(cell, inputs, STRETCH)
    table, place = inputs.table[head, :, direction], Place(_integers(cell), inputs.source[head], inputs.scale[head])
    group, states = _Group(_integers(cell), _integers(cell)), kept[head, direction]
    grads, grad_weights = _grads(cell, outputs, head, direction, chunk)
    total = _GradWeights(
        outputs.recurrent[chunk, head, direction],
        outputs.share[chunk, head, direction],
        outputs.extra[chunk, head, direction],
    )
    grad_scale = outputs.scale[direction, head]
    for first_of_group in range(first, last, count_segments(cell)):
        if (first_of_group - first) // count_segments(cell) % _SUMMED == 0:
            _move(grad_weights, total)
        size = min(count_segments(cell), last - first_of_group)
        _set_group(cell, group, segments, first_of_group, size, direction)
        _clear(cell, weights, grads.h, grads.c)
        active, stretches = 0, group.last[0] // STRETCH
        for start in range(stretches * STRETCH, -1, -STRETCH):
            stop = min(start + STRETCH, group.last[0] + 1)
            if active == size and not grads.h.any() and not grads.c.any():
                # The gradient has vanished: earlier places have no influence.
                for segment in range(size):
                    begin = segments.start[first_of_group + segment]
                    grad_scale[begin + (group.last[segment] + 1 - stop if direction == 1 else 0) :][:stop] = 0
                break
            if start > 0:
                _restore(states[row + start // STRETCH - 1], scratch.h[0], scratch.c[0])
            else:
                _clear(cell, weights, scratch.h, scratch.c)
            for t in range(start, stop):
                _look(cell, group, t + 1, direction, place.at)
                prefetch(cell, table, place.source, place.at)
                prefetch(cell, grads.table, place.source, place.at)
                _look(cell, group, t, direction, place.at)
                step(cell, table, place, weights, scratch, t - start, t - start + 1)
            for t in range(stop - 1, start - 1, -1):
                while active < size and group.last[active] == t:
                    target = segments.target[first_of_group + active]
                    for unit in range(grad.shape[3]):
                        grads.h[0, _column(cell, active, unit)] = grad[target, head, direction, unit]
                    active += 1
                _look(cell, group, t, direction, place.at)
                step_back(cell, table, place, weights, scratch, t - start, grads)
                for segment in range(active):
                    grad_scale[place.at[segment]] = grads.scale[segment]
            _add_weights(cell, weights, scratch, stop - start, grad_weights)
        row += stretches
    _move(grad_weights, total)


@njit
def _grads(cell, outputs, head, direction, chunk):
    width, dtype = outputs.extra.shape[4], outputs.table.dtype
    return (
        Grads(
            np.zeros((1, width), dtype),
            np.zeros((1, width), dtype),
            outputs.table[chunk, head, :, direction],
            np.zeros(count_segments(cell), dtype),
        ),
        _GradWeights(
            np.zeros(outputs.recurrent.shape[3:], dtype),
            np.zeros(outputs.share.shape[3:], dtype),
            np.zeros(outputs.extra.shape[3:], dtype),
        ),
    )


@njit
def _move(part, total):
    """Adds partial sums to the total and resets them."""
    total.recurrent[:] += part.recurrent
    total.share[:] += part.share
    total.extra[:] += part.extra
    part.recurrent[:] = 0
    part.share[:] = 0
    part.extra[:] = 0


@njit
def _add_weights(cell, weights, scratch, steps, grads):
    """Adds a stretch of steps to the gradients of the weights, summed in registers first."""
    lanes, width = count_lanes(cell), weights.recurrent.shape[1]
    for block in range(count_blocks(cell, weights.recurrent)):
        for unit in range(0, width, tile_rows(cell)):
            column = unit // lanes * lanes * count_segments(cell) + unit % lanes
            tile = no_tile(cell)
            for t in range(steps):
                tile = add_outer(cell, tile, scratch.h, t, column, load_gates(cell, scratch.gates, t, block))
            add_tile(cell, grads.recurrent, block * width + unit, tile)
        share, extra = no_gates(cell), no_units(cell)
        for t in range(steps):
            share = share + load_gates(cell, scratch.gates, t, block)
            extra = extra + load_units(cell, scratch.extra, t, block)
        add_bias(cell, grads.share, 0, block, share)
        store(grads.extra, 0, block, extra + load_units(cell, grads.extra, 0, block))
