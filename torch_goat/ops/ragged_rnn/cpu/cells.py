"""One step of a group of segments through each cell, forwards and backwards.

A step reads the state in row ``now`` of the scratch and writes the next one to row ``after``. It leaves the activated
gates in ``gates[now]``, which the backward step replaces by the gradient of the recurrent share of the gates.
"""

# mypy: allow-untyped-defs

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from torch_goat.ops.ragged_rnn.cpu.layout import (
    count_blocks,
    count_lanes,
    gather,
    load_bias,
    load_gates,
    load_scale,
    load_units,
    no_gates,
    no_units,
    ones,
    scatter,
    split,
    store,
    store_totals,
)
from torch_goat.ops.ragged_rnn.cpu.products import add_product, add_transposed
from torch_goat.ops.ragged_rnn.cpu.simd import activate_lstm, flush, join, multiply_add, sigmoid, tanh


class Weights(NamedTuple):
    """The weights of one head and direction, packed."""

    recurrent: np.ndarray  # [blocks, width, G * B]
    lines: np.ndarray  # [blocks * width, G * B], the same
    transposed: np.ndarray  # [blocks * width * G, B]
    bias: np.ndarray  # [1, G * width], of the input's share
    bias_hh: np.ndarray  # [1, G * width], of the recurrent share; GRU only, elsewhere in `bias`


class Scratch(NamedTuple):
    """The buffers of a group of P segments, one row per step."""

    gates: np.ndarray  # [steps, G * P * width]
    h: np.ndarray  # [steps + 1, P * width]
    c: np.ndarray  # [steps + 1, P * width], LSTM: the memory
    extra: np.ndarray  # [steps, P * width], LSTM: tanh(c). GRU: the recurrent share of the new gate, then its gradient
    states: np.ndarray  # [2, steps + 1, P * width], h and c


class Group(NamedTuple):
    """Up to P segments, and what they read. A missing segment reads the places of the first."""

    origin: np.ndarray  # [P], the place of the first step
    last: np.ndarray  # [P], the last step
    at: np.ndarray  # [P], the place of this step
    table: np.ndarray  # [S, G * width], the projected states
    source: np.ndarray  # [E], the row of the table at each place
    scale: np.ndarray  # [E], its coefficient


@njit(forceinline=True)
def _input_share(cell, group, weights, block):
    row = gather(cell, group.table, group.source, group.at, block)
    return multiply_add(row, load_scale(cell, group.scale, group.at), load_bias(cell, weights.bias, block))


@njit(forceinline=True)
def _add_recurrent(cell, gates, weights, block, h, now):
    """``gates`` plus a block of ``W_hh h``."""
    blocks = count_blocks(cell, weights.recurrent)
    for other in range(blocks):
        first = (block * blocks + other) * count_lanes(cell)
        gates = add_product(cell, gates, weights.lines, first, load_units(cell, h, now, other))
    return gates


def step(cell, group, weights, scratch, now, after):
    """Reads one place of every segment."""


@overload(step, jit_options={"forceinline": True})
def _(cell, group, weights, scratch, now, after):
    return {"lstm": _lstm, "gru": _gru, "rnn": _rnn}[cell.kind]


def _lstm(cell, group, weights, scratch, now, after):
    for block in range(count_blocks(cell, weights.recurrent)):
        gates = _input_share(cell, group, weights, block)
        gates = activate_lstm(_add_recurrent(cell, gates, weights, block, scratch.h, now))
        i, f, g, o = split(cell, gates)
        c = multiply_add(f, load_units(cell, scratch.c, now, block), i * g)
        tanh_c = tanh(c)
        store(scratch.gates, now, block, gates)
        store(scratch.c, after, block, c)
        store(scratch.extra, now, block, tanh_c)
        store(scratch.h, after, block, o * tanh_c)


def _gru(cell, group, weights, scratch, now, after):
    for block in range(count_blocks(cell, weights.recurrent)):
        gates = _input_share(cell, group, weights, block)
        share = _add_recurrent(cell, load_bias(cell, weights.bias_hh, block), weights, block, scratch.h, now)
        reset, update, _ = split(cell, gates + share)
        r, z, new_share = sigmoid(reset), sigmoid(update), split(cell, share)[2]
        new = tanh(multiply_add(r, new_share, split(cell, gates)[2]))
        store(scratch.gates, now, block, join((r, z, new)))
        store(scratch.extra, now, block, new_share)
        store(scratch.h, after, block, multiply_add(z, load_units(cell, scratch.h, now, block) - new, new))


def _rnn(cell, group, weights, scratch, now, after):
    for block in range(count_blocks(cell, weights.recurrent)):
        gates = _input_share(cell, group, weights, block)
        h = tanh(_add_recurrent(cell, gates, weights, block, scratch.h, now))
        store(scratch.gates, now, block, h)
        store(scratch.h, after, block, h)


class Grads(NamedTuple):
    """The gradients a step backwards reads and changes."""

    h: np.ndarray  # [1, P * width], of the state
    c: np.ndarray  # [1, P * width], LSTM: of the memory
    table: np.ndarray  # [S, G * width]
    scale: np.ndarray  # [P], of this step's coefficients


@njit(forceinline=True)
def _to_input(cell, group, grads, block, grad):
    """Adds the gradient of a block of the input's share to its rows; the result sums to the gradient of the scale."""
    scatter(cell, grads.table, group.source, group.at, block, grad * load_scale(cell, group.scale, group.at))
    return grad * gather(cell, group.table, group.source, group.at, block)


@njit(forceinline=True)
def _add_transposed(cell, units, weights, block, scratch, now):
    """``units`` plus a block of ``W_hh.T grad``, grad being that of the recurrent share."""
    blocks = count_blocks(cell, weights.recurrent)
    lines = weights.transposed.shape[0] // (blocks * blocks)
    for other in range(blocks):
        gates = load_gates(cell, scratch.gates, now, other)
        units = add_transposed(cell, units, weights.transposed, (block * blocks + other) * lines, gates)
    return units


def step_back(cell, group, weights, scratch, now, grads):
    """The gradients of the state before a step and of its inputs, from that of the state after it."""


@overload(step_back, jit_options={"forceinline": True})
def _(cell, group, weights, scratch, now, grads):
    return {"lstm": _lstm_back, "gru": _gru_back, "rnn": _rnn_back}[cell.kind]


def _lstm_back(cell, group, weights, scratch, now, grads):
    blocks, products = count_blocks(cell, weights.recurrent), no_gates(cell)
    for block in range(blocks):
        gates = load_gates(cell, scratch.gates, now, block)
        i, f, g, o = split(cell, gates)
        tanh_c = load_units(cell, scratch.extra, now, block)
        dh = load_units(cell, grads.h, 0, block)
        through = dh * o
        dc = load_units(cell, grads.c, 0, block) + (through - through * tanh_c * tanh_c)
        di = dc * g * (i - i * i)
        df = dc * load_units(cell, scratch.c, now, block) * (f - f * f)
        dg = dc * (i - i * g * g)
        do = dh * tanh_c * (o - o * o)
        grad = join((di, df, dg, do))
        store(grads.c, 0, block, flush(dc * f))
        store(scratch.gates, now, block, grad)
        products = products + _to_input(cell, group, grads, block, grad)
    store_totals(cell, grads.scale, products)
    for block in range(blocks):
        store(grads.h, 0, block, flush(_add_transposed(cell, no_units(cell), weights, block, scratch, now)))


def _gru_back(cell, group, weights, scratch, now, grads):
    blocks, products = count_blocks(cell, weights.recurrent), no_gates(cell)
    for block in range(blocks):
        gates = load_gates(cell, scratch.gates, now, block)
        r, z, new = split(cell, gates)
        dh = load_units(cell, grads.h, 0, block)
        dnew = (dh - dh * z) * (ones(cell) - new * new)
        dr = dnew * load_units(cell, scratch.extra, now, block) * (r - r * r)
        dz = dh * (load_units(cell, scratch.h, now, block) - new) * (z - z * z)
        store(grads.h, 0, block, dh * z)
        store(scratch.gates, now, block, join((dr, dz, dnew * r)))
        store(scratch.extra, now, block, dnew)
        products = products + _to_input(cell, group, grads, block, join((dr, dz, dnew)))
    store_totals(cell, grads.scale, products)
    for block in range(blocks):
        direct = load_units(cell, grads.h, 0, block)
        store(grads.h, 0, block, flush(_add_transposed(cell, direct, weights, block, scratch, now)))


def _rnn_back(cell, group, weights, scratch, now, grads):
    blocks, products = count_blocks(cell, weights.recurrent), no_gates(cell)
    for block in range(blocks):
        h = load_gates(cell, scratch.gates, now, block)
        grad = load_units(cell, grads.h, 0, block) * (ones(cell) - h * h)
        store(scratch.gates, now, block, grad)
        products = products + _to_input(cell, group, grads, block, grad)
    store_totals(cell, grads.scale, products)
    for block in range(blocks):
        store(grads.h, 0, block, flush(_add_transposed(cell, no_units(cell), weights, block, scratch, now)))
