"""The elementwise part of one step of all segments, for :mod:`.wide`: everything but the products.

Rows of a step are numbered over heads and directions, one after the other, and by rank in each of them. Units are read
in vectors of 16 lanes, column by column of one gate after the other.
"""

# mypy: allow-untyped-defs

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import overload

from torch_goat.ops.ragged_rnn.cpu.layout import load_units, no_units, ones, split, store
from torch_goat.ops.ragged_rnn.cpu.simd import activate_lstm, flush, join, multiply_add, operation, sigmoid, tanh
from torch_goat.ops.ragged_rnn.cpu.sweep import Compiled


class Steps(NamedTuple):
    """The arrays of all steps; Q stands for all heads and directions, and their places are in step-major order."""

    table: np.ndarray  # [K * S * D, G * H], the projected states
    row: np.ndarray  # [Q * E], the row of the table at each place
    scale: np.ndarray  # [Q * E], its coefficient
    bias: np.ndarray  # [Q, G * H], of the input's share
    bias_hh: np.ndarray  # [Q, G * H], of the recurrent share; GRU only, elsewhere in `bias`
    target: np.ndarray  # [T'], the segment of each rank
    h: np.ndarray  # [Q * E, H], the state before each place
    c: np.ndarray  # [Q * E, H], LSTM: the memory before each place
    gates: np.ndarray  # [Q * E, G * H], activated; or no rows, if there will be no backward pass
    extra: np.ndarray  # [Q * E, H], GRU: the recurrent share of the new gate; elsewhere or without backward no rows


class Step(NamedTuple):
    """A step of ``size`` segments in each head and direction, of which ``following`` go on."""

    start: int  # of its places
    size: int
    following: int


@operation(lambda cell, number: cell.units)
def spread(code, cell, number):
    """A number in all lanes."""
    return code.fill(cell.type.units, number.value)


@operation(lambda cell, units: cell.units.element)
def total(code, cell, units):
    """The sum over the lanes."""
    return code.total(units.value)


@operation(lambda array, row, block: types.none)
def prefetch_units(code, array, row, block):
    """Prefetches a vector of units."""
    column = code.builder.mul(block.value, ir.Constant(block.value.type, 16))
    code.prefetch(code.address(array, row.value, column))


@njit(forceinline=True)
def _prefetch(array, row, gates, blocks, first, last):
    for gate in range(gates):
        for block in range(first, last):
            prefetch_units(array, row, gate * blocks + block)


class Row(NamedTuple):
    """A row of a step."""

    number: int
    part: int  # head and direction
    rank: int
    place: int
    source: int  # the row of the table
    scale: Any  # the coefficient, in all lanes


@njit(forceinline=True)
def _row(cell, steps, step, number):
    parts = steps.bias.shape[0]
    part, rank = number // step.size, number % step.size
    place = part * (steps.row.size // parts) + step.start + rank
    return Row(number, part, rank, place, steps.row[place], spread(cell, steps.scale[place]))


@njit(forceinline=True)
def _input_share(cell, steps, row, column):
    table = load_units(cell, steps.table, row.source, column)
    return multiply_add(table, row.scale, load_units(cell, steps.bias, row.part, column))


def read(cell, steps, share, step, row, block, blocks):
    """The next state, from the recurrent product ``share`` of the row; keeps what the backward needs."""


@overload(read, jit_options={"forceinline": True})
def _(cell, steps, share, step, row, block, blocks):
    return {"lstm": _lstm, "gru": _gru, "rnn": _rnn}[cell.kind]


def _lstm(cell, steps, share, step, row, block, blocks):
    i = _input_share(cell, steps, row, block)
    f = _input_share(cell, steps, row, blocks + block)
    g = _input_share(cell, steps, row, 2 * blocks + block)
    o = _input_share(cell, steps, row, 3 * blocks + block)
    before = no_units(cell)
    if step.start > 0:
        i = i + load_units(cell, share, row.number, block)
        f = f + load_units(cell, share, row.number, blocks + block)
        g = g + load_units(cell, share, row.number, 2 * blocks + block)
        o = o + load_units(cell, share, row.number, 3 * blocks + block)
        before = load_units(cell, steps.c, row.place, block)
    i, f, g, o = split(cell, activate_lstm(join((i, f, g, o))))
    c = multiply_add(f, before, i * g)
    if steps.gates.shape[0] > 0:
        store(steps.gates, row.place, block, i)
        store(steps.gates, row.place, blocks + block, f)
        store(steps.gates, row.place, 2 * blocks + block, g)
        store(steps.gates, row.place, 3 * blocks + block, o)
    if row.rank < step.following:
        store(steps.c, row.place + step.size, block, c)
    return o * tanh(c)


def _gru(cell, steps, share, step, row, block, blocks):
    reset = load_units(cell, steps.bias_hh, row.part, block)
    update = load_units(cell, steps.bias_hh, row.part, blocks + block)
    new_share = load_units(cell, steps.bias_hh, row.part, 2 * blocks + block)
    before = no_units(cell)
    if step.start > 0:
        reset = reset + load_units(cell, share, row.number, block)
        update = update + load_units(cell, share, row.number, blocks + block)
        new_share = new_share + load_units(cell, share, row.number, 2 * blocks + block)
        before = load_units(cell, steps.h, row.place, block)
    r = sigmoid(reset + _input_share(cell, steps, row, block))
    z = sigmoid(update + _input_share(cell, steps, row, blocks + block))
    new = tanh(multiply_add(r, new_share, _input_share(cell, steps, row, 2 * blocks + block)))
    if steps.gates.shape[0] > 0:
        store(steps.gates, row.place, block, r)
        store(steps.gates, row.place, blocks + block, z)
        store(steps.gates, row.place, 2 * blocks + block, new)
        store(steps.extra, row.place, block, new_share)
    return multiply_add(z, before - new, new)


def _rnn(cell, steps, share, step, row, block, blocks):
    gate = _input_share(cell, steps, row, block)
    if step.start > 0:
        gate = gate + load_units(cell, share, row.number, block)
    h = tanh(gate)
    if steps.gates.shape[0] > 0:
        store(steps.gates, row.place, block, h)
    return h


@Compiled
def advance(cell, steps, share, out, step, begin, end):
    """Rows ``begin`` to ``end`` of a step; final states go to ``out`` ``[T * Q, H]``."""
    parts, blocks = steps.bias.shape[0], steps.h.shape[1] // 16
    gates = steps.table.shape[1] // steps.h.shape[1]
    for number in range(begin, end):
        row = _row(cell, steps, step, number)
        if number + 1 < end:
            _prefetch(steps.table, _row(cell, steps, step, number + 1).source, gates, blocks, 0, blocks)
        for block in range(blocks):
            h = read(cell, steps, share, step, row, block, blocks)
            if row.rank < step.following:
                store(steps.h, row.place + step.size, block, h)
            else:
                store(out, steps.target[row.rank] * parts + row.part, block, h)


class Grads(NamedTuple):
    """The gradients that a step backwards reads and changes. B places at a time have one of their gates."""

    out: np.ndarray  # [T * Q, H], of the final states
    h: np.ndarray  # [Q * T', H], of the states after this step of the segments that go on, by row of the next step
    carry: np.ndarray  # [Q * T', H], by rank. LSTM: of the memory. GRU: of h, past the gates
    share: np.ndarray  # [Q * B, G * H], of the recurrent share of the gates
    new: np.ndarray  # [Q * B, H], GRU: of the new gate's share of the input, where the rest has that in `share`
    table: np.ndarray  # [K * S * D, G * H]
    scale: np.ndarray  # [chunks, Q * E], of the coefficients, by chunk of units


@njit(forceinline=True)
def _to_input(cell, steps, grads, row, column, grad, total_of_row):
    """Adds the gradient of the input's share of a gate to the table; the result sums to that of the scale."""
    before = load_units(cell, grads.table, row.source, column)
    store(grads.table, row.source, column, multiply_add(grad, row.scale, before))
    return multiply_add(grad, load_units(cell, steps.table, row.source, column), total_of_row)


@njit(forceinline=True)
def _to_gate(cell, steps, grads, row, at, column, grad, total_of_row):
    """The same for a gate whose recurrent share has the same gradient."""
    grad = flush(grad)
    store(grads.share, at, column, grad)
    return _to_input(cell, steps, grads, row, column, grad, total_of_row)


def read_back(cell, steps, grads, step, row, at, carry, dh, total_of_row, block, blocks):
    """The gradients of the gates, of the carry and of the input, from ``dh``, that of the state after the step.

    ``at`` is the row of the gates' gradients and ``carry`` that of the carry. Returns ``total_of_row`` plus the
    products whose lanes sum to the gradient of the scale.
    """


@overload(read_back, jit_options={"forceinline": True})
def _(cell, steps, grads, step, row, at, carry, dh, total_of_row, block, blocks):
    return {"lstm": _lstm_back, "gru": _gru_back, "rnn": _rnn_back}[cell.kind]


def _lstm_back(cell, steps, grads, step, row, at, carry, dh, total_of_row, block, blocks):
    i, f = load_units(cell, steps.gates, row.place, block), load_units(cell, steps.gates, row.place, blocks + block)
    g = load_units(cell, steps.gates, row.place, 2 * blocks + block)
    o = load_units(cell, steps.gates, row.place, 3 * blocks + block)
    before = load_units(cell, steps.c, row.place, block) if step.start > 0 else no_units(cell)
    tanh_c = tanh(multiply_add(f, before, i * g))
    through = dh * o
    dc = through - through * tanh_c * tanh_c
    if row.rank < step.following:
        dc = dc + load_units(cell, grads.carry, carry, block)
    store(grads.carry, carry, block, flush(dc * f))
    di, df, dg = dc * g * (i - i * i), dc * before * (f - f * f), dc * (i - i * g * g)
    do = through * tanh_c * (ones(cell) - o)
    total_of_row = _to_gate(cell, steps, grads, row, at, block, di, total_of_row)
    total_of_row = _to_gate(cell, steps, grads, row, at, blocks + block, df, total_of_row)
    total_of_row = _to_gate(cell, steps, grads, row, at, 2 * blocks + block, dg, total_of_row)
    return _to_gate(cell, steps, grads, row, at, 3 * blocks + block, do, total_of_row)


def _gru_back(cell, steps, grads, step, row, at, carry, dh, total_of_row, block, blocks):
    if row.rank < step.following:
        dh = dh + load_units(cell, grads.carry, carry, block)
    r, z = load_units(cell, steps.gates, row.place, block), load_units(cell, steps.gates, row.place, blocks + block)
    new = load_units(cell, steps.gates, row.place, 2 * blocks + block)
    before = load_units(cell, steps.h, row.place, block) if step.start > 0 else no_units(cell)
    dnew = flush((dh - dh * z) * (ones(cell) - new * new))
    dr = dnew * load_units(cell, steps.extra, row.place, block) * (r - r * r)
    dz = dh * (before - new) * (z - z * z)
    store(grads.carry, carry, block, flush(dh * z))
    total_of_row = _to_gate(cell, steps, grads, row, at, block, dr, total_of_row)
    total_of_row = _to_gate(cell, steps, grads, row, at, blocks + block, dz, total_of_row)
    store(grads.share, at, 2 * blocks + block, flush(dnew * r))
    store(grads.new, at, block, dnew)
    return _to_input(cell, steps, grads, row, 2 * blocks + block, dnew, total_of_row)


def _rnn_back(cell, steps, grads, step, row, at, carry, dh, total_of_row, block, blocks):
    h = load_units(cell, steps.gates, row.place, block)
    return _to_gate(cell, steps, grads, row, at, block, dh - dh * h * h, total_of_row)


@Compiled
def retreat(cell, steps, grads, step, offset, begin, end):
    """Chunks ``begin`` to ``end`` of the units of a step backwards.

    The gradients of its gates begin at row ``offset`` of the B of each part. Threads have different units, so that no
    two add to the same element of the table.
    """
    parts, blocks, chunks = steps.bias.shape[0], steps.h.shape[1] // 16, grads.scale.shape[0]
    gates, kept = steps.table.shape[1] // steps.h.shape[1], grads.share.shape[0] // parts
    first, last = blocks * begin // chunks, blocks * end // chunks
    for number in range(parts * step.size):
        row = _row(cell, steps, step, number)
        if number + 1 < parts * step.size:
            following = _row(cell, steps, step, number + 1).source
            _prefetch(steps.table, following, gates, blocks, first, last)
            _prefetch(grads.table, following, gates, blocks, first, last)
        at, carry = row.part * kept + offset + row.rank, row.part * steps.target.size + row.rank
        for chunk in range(begin, end):
            total_of_row = no_units(cell)
            for block in range(blocks * chunk // chunks, blocks * (chunk + 1) // chunks):
                if row.rank < step.following:
                    dh = load_units(cell, grads.h, row.part * step.following + row.rank, block)
                else:
                    dh = load_units(cell, grads.out, steps.target[row.rank] * parts + row.part, block)
                total_of_row = read_back(cell, steps, grads, step, row, at, carry, dh, total_of_row, block, blocks)
            grads.scale[chunk, row.place] = total(cell, total_of_row)
