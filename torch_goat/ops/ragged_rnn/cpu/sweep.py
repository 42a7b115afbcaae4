"""The loops over the runs of one head and direction.

Runs come longest first and advance in groups of P, so that those of a group are of similar length. One that has ended
goes on reading its last place, to no effect: its final state has been taken, and its gradient is zero until then.

Of all states the forward keeps one in a stretch of steps. The backward reads a stretch once more, into a scratch that
the nearest cache holds, and goes back through it: what it would have to keep otherwise goes through main memory, and
that takes longer than to compute it again.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from torch_goat.ops.ragged_rnn.cpu.cells import Grads, Place, Scratch, Weights, step, step_back
from torch_goat.ops.ragged_rnn.cpu.compiled import Compiled
from torch_goat.ops.ragged_rnn.cpu.layout import (
    count_blocks,
    count_lanes,
    count_runs,
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


class Runs(NamedTuple):
    """The runs that have a place, longest first."""

    target: np.ndarray  # [N]
    start: np.ndarray  # [N]
    length: np.ndarray  # [N]


class Packed(NamedTuple):
    """What all heads and directions read."""

    table: np.ndarray  # [K, S, D, G * width]
    source: np.ndarray  # [K, E]
    scale: np.ndarray  # [K, E]
    recurrent: np.ndarray  # [K, D, blocks, width, G * B]
    transposed: np.ndarray  # [K, D, blocks * width * G, B]
    bias: np.ndarray  # [K, D, G * width]
    bias_hh: np.ndarray  # [K, D, G * width]


class Outputs(NamedTuple):
    """All gradients; those that are sums over runs, once per chunk of runs. From ``recurrent`` on in float64."""

    table: np.ndarray  # [chunks, K, S, D, G * width]
    scale: np.ndarray  # [D, K, E]
    recurrent: np.ndarray  # [chunks, K, D, blocks * width, G * B]
    share: np.ndarray  # [chunks, K, D, 1, G * width], of the bias of the recurrent share
    extra: np.ndarray  # [chunks, K, D, 1, P * width], GRU: of the bias of the new gate


class _GradWeights(NamedTuple):
    """The gradients of one head's and direction's weights over a chunk of runs."""

    recurrent: np.ndarray  # [blocks * width, G * B]
    share: np.ndarray  # [1, G * width]
    extra: np.ndarray  # [1, P * width]


class _Group(NamedTuple):
    """Up to P runs, and where they read. A run that is missing reads as the first does."""

    origin: np.ndarray  # [P], the place of the first step
    last: np.ndarray  # [P], the last step


@njit
def _set_group(cell: Any, group: Any, runs: Any, first: int, size: int, direction: int) -> None:
    for run in range(count_runs(cell)):
        at = first + run if run < size else first
        group.last[run] = runs.length[at] - 1 if run < size else 0
        group.origin[run] = runs.start[at] + (runs.length[at] - 1 if direction == 1 else 0)


@njit(forceinline=True)
def _look(cell: Any, group: Any, t: int, direction: int, at: Any) -> None:
    for run in range(count_runs(cell)):
        step_of_run = min(t, group.last[run])
        at[run] = group.origin[run] + (-step_of_run if direction == 1 else step_of_run)


@njit
def _weights(inputs: Any, head: int, direction: int) -> Any:
    recurrent = inputs.recurrent[head, direction]
    return Weights(
        recurrent,
        recurrent.reshape(-1, recurrent.shape[2]),
        inputs.transposed[head, direction],
        inputs.bias[head, direction].reshape(1, -1),
        inputs.bias_hh[head, direction].reshape(1, -1),
    )


@njit
def _scratch(cell: Any, inputs: Any, steps: int) -> Any:
    width = count_runs(cell) * inputs.recurrent.shape[3]
    gates, dtype = count_runs(cell) * inputs.table.shape[3], inputs.table.dtype
    states = [np.empty((steps + 1, width), dtype) for _ in range(3)]
    return Scratch(np.empty((steps, gates), dtype), states[0], states[1], states[2])


@njit
def _integers(cell: Any) -> Any:
    return np.zeros(count_runs(cell), np.int64)


@Compiled
def forward(cell: Any, inputs: Any, runs: Any, kept: Any, out: Any, tasks: Any, begin: Any, end: Any) -> None:
    """Tasks ``begin`` to ``end``, see :func:`_forward`."""
    for task in range(begin, end):
        at = tasks[task]
        _forward(cell, inputs, runs, kept, out, at.head, at.direction, at.first, at.last, at.row)


@njit
def _forward(
    cell: Any, inputs: Any, runs: Any, kept: Any, out: Any, head: int, direction: int, first: int, last: int, row: int
) -> None:
    """The final states of runs ``first`` to ``last`` of one head and direction, into ``out`` ``[T, K, D, H]``.

    ``kept`` ``[K, D, rows, states, P * width]`` takes the states between the stretches, from ``row`` on, if it has
    rows at all.
    """
    weights, scratch = _weights(inputs, head, direction), _scratch(cell, inputs, 2)
    table, place = inputs.table[head, :, direction], Place(_integers(cell), inputs.source[head], inputs.scale[head])
    group, states = _Group(_integers(cell), _integers(cell)), kept[head, direction]
    for first_of_group in range(first, last, count_runs(cell)):
        size = min(count_runs(cell), last - first_of_group)
        _set_group(cell, group, runs, first_of_group, size, direction)
        _clear(cell, weights, scratch.h, scratch.c)
        t = 0
        for run in range(size - 1, -1, -1):
            while t <= group.last[run]:
                if t > 0 and t % STRETCH == 0 and states.shape[0] > 0:
                    _keep(states[row], scratch.h[t & 1], scratch.c[t & 1])
                    row += 1
                _look(cell, group, t + 1, direction, place.at)
                prefetch(cell, table, place.source, place.at)
                _look(cell, group, t, direction, place.at)
                step(cell, table, place, weights, scratch, t & 1, (t + 1) & 1)
                t += 1
            target = runs.target[first_of_group + run]
            for unit in range(out.shape[3]):
                out[target, head, direction, unit] = scratch.h[t & 1, _column(cell, run, unit)]


@njit
def _keep(states: Any, h: Any, c: Any) -> None:
    states[0] = h
    if states.shape[0] > 1:
        states[1] = c


@njit
def _restore(states: Any, h: Any, c: Any) -> None:
    h[:] = states[0]
    if states.shape[0] > 1:
        c[:] = states[1]


@njit(forceinline=True)
def _column(cell: Any, run: int, unit: int) -> int:
    """Where a run's unit is in a row of scratch ``[blocks, P, B]``."""
    lanes = count_lanes(cell)
    return (unit // lanes * count_runs(cell) + run) * lanes + unit % lanes


@njit(forceinline=True)
def _clear(cell: Any, weights: Any, h: Any, c: Any) -> None:
    """Zeros in the first row of two arrays of units."""
    for block in range(count_blocks(cell, weights.recurrent)):
        store(h, 0, block, no_units(cell))
        store(c, 0, block, no_units(cell))


@Compiled
def backward(
    cell: Any, inputs: Any, runs: Any, kept: Any, grad: Any, outputs: Any, tasks: Any, begin: Any, end: Any
) -> None:
    """Tasks ``begin`` to ``end``, see :func:`_backward`."""
    for task in range(begin, end):
        at = tasks[task]
        _backward(cell, inputs, runs, kept, grad, outputs, at.head, at.direction, at.first, at.last, at.chunk, at.row)


@njit
def _backward(
    cell: Any,
    inputs: Any,
    runs: Any,
    kept: Any,
    grad: Any,
    outputs: Any,
    head: int,
    direction: int,
    first: int,
    last: int,
    chunk: int,
    row: int,
) -> None:
    """Takes the gradient ``[T, K, D, H]`` of the final states of a chunk of runs back to ``outputs``."""
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
    for first_of_group in range(first, last, count_runs(cell)):
        if (first_of_group - first) // count_runs(cell) % _SUMMED == 0:
            _move(grad_weights, total)
        size = min(count_runs(cell), last - first_of_group)
        _set_group(cell, group, runs, first_of_group, size, direction)
        _clear(cell, weights, grads.h, grads.c)
        active, stretches = 0, group.last[0] // STRETCH
        for start in range(stretches * STRETCH, -1, -STRETCH):
            stop = min(start + STRETCH, group.last[0] + 1)
            if active == size and not grads.h.any() and not grads.c.any():
                # Nothing is left of the gradient: the places before are without influence.
                for run in range(size):
                    begin = runs.start[first_of_group + run]
                    grad_scale[begin + (group.last[run] + 1 - stop if direction == 1 else 0) :][:stop] = 0
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
                    target = runs.target[first_of_group + active]
                    for unit in range(grad.shape[3]):
                        grads.h[0, _column(cell, active, unit)] = grad[target, head, direction, unit]
                    active += 1
                _look(cell, group, t, direction, place.at)
                step_back(cell, table, place, weights, scratch, t - start, grads)
                for run in range(active):
                    grad_scale[place.at[run]] = grads.scale[run]
            _add_weights(cell, weights, scratch, stop - start, grad_weights)
        row += stretches
    _move(grad_weights, total)


@njit
def _grads(cell: Any, outputs: Any, head: int, direction: int, chunk: int) -> Any:
    width, dtype = outputs.extra.shape[4], outputs.table.dtype
    return (
        Grads(
            np.zeros((1, width), dtype),
            np.zeros((1, width), dtype),
            outputs.table[chunk, head, :, direction],
            np.zeros(count_runs(cell), dtype),
        ),
        _GradWeights(
            np.zeros(outputs.recurrent.shape[3:], dtype),
            np.zeros(outputs.share.shape[3:], dtype),
            np.zeros(outputs.extra.shape[3:], dtype),
        ),
    )


@njit
def _move(part: Any, total: Any) -> None:
    """Adds partial sums to the total and starts them anew."""
    total.recurrent[:] += part.recurrent
    total.share[:] += part.share
    total.extra[:] += part.extra
    part.recurrent[:] = 0
    part.share[:] = 0
    part.extra[:] = 0


@njit
def _add_weights(cell: Any, weights: Any, scratch: Any, steps: int, grads: Any) -> None:
    """Adds what a stretch of steps gives to the gradients of the weights.

    It is summed in registers first: fewer additions to memory, and less rounding.
    """
    lanes, width = count_lanes(cell), weights.recurrent.shape[1]
    for block in range(count_blocks(cell, weights.recurrent)):
        for unit in range(0, width, tile_rows(cell)):
            column = unit // lanes * lanes * count_runs(cell) + unit % lanes
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
