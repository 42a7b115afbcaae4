"""Gradients of the recurrent weights in Triton: sums over all steps, in a fixed order and without atomics.

Either a program of the recurrence keeps them in registers and writes them once, or, for matrices too large for that,
:func:`weight_kernel` multiplies what the recurrence has stored. Both leave partial sums in pieces, and
:func:`sum_kernel` adds the pieces up. A piece has the gradients of ``weight_hh`` ``[K, D, G * H, H]``, ``bias_ih`` and
``bias_hh`` ``[K, D, G * H]`` behind each other.
"""

# Triton compiles a branch that returns only if the other one does, too.
# ruff: noqa: RET505
# mypy: allow-untyped-defs

import triton
import triton.language as tl

from torch_goat.ops.ragged_rnn.triton.cells import recurrent_parts


@triton.jit
def zero_products(RUNS: tl.constexpr, WIDTH: tl.constexpr, KIND: tl.constexpr, DTYPE: tl.constexpr):
    """One ``[WIDTH, RUNS, WIDTH]`` per gate: the runs are added up only at the end, so a step exchanges nothing."""
    zero = tl.zeros([WIDTH, RUNS, WIDTH], DTYPE)
    if KIND == "rnn":
        return (zero,)
    elif KIND == "gru":
        return (zero, zero, zero)
    else:
        return (zero, zero, zero, zero)


@triton.jit
def zero_parts(RUNS: tl.constexpr, WIDTH: tl.constexpr, KIND: tl.constexpr, DTYPE: tl.constexpr):
    zero = tl.zeros([RUNS, WIDTH], DTYPE)
    if KIND == "rnn":
        return (zero,)
    else:
        return (zero, zero, zero, zero)


@triton.jit
def outer(gradient, h):
    # The axis of the gradient comes first, as in `multiply`, which has made this same copy of it.
    return tl.trans(gradient)[:, :, None] * h[None, :, :]


@triton.jit
def add_products(sums, shares, h, KIND: tl.constexpr):
    """Adds a step's gradients of the recurrent matrices, which are zero where a run is over."""
    if KIND == "rnn":
        return (sums[0] + outer(shares[0], h),)
    else:
        first, second = sums[0] + outer(shares[0], h), sums[1] + outer(shares[1], h)
        third = sums[2] + outer(shares[2], h)
        if KIND == "gru":
            return (first, second, third)
        else:
            return (first, second, third, sums[3] + outer(shares[3], h))


@triton.jit
def add_parts(sums, parts, KIND: tl.constexpr):
    """Adds a step's gradients of the biases, which are zero where a run is over."""
    if KIND == "rnn":
        return (sums[0] + parts[0],)
    else:
        return (sums[0] + parts[0], sums[1] + parts[1], sums[2] + parts[2], sums[3] + parts[3])


@triton.jit
def locate(sums, piece, chain, num_chains, GATES: tl.constexpr, HIDDEN: tl.constexpr):
    """Where a piece has the gradients of one chain's ``weight_hh``, ``bias_ih`` and ``bias_hh``."""
    num_biases = num_chains.to(tl.int64) * (GATES * HIDDEN)
    sums += piece * num_biases * (HIDDEN + 2)
    bias_ih = sums + num_biases * HIDDEN + chain * (GATES * HIDDEN)
    return sums + chain * (GATES * HIDDEN * HIDDEN), bias_ih, bias_ih + num_biases


@triton.jit
def store_product(pointer, products, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.arange(0, WIDTH)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    tl.store(pointer + row * HIDDEN + column, tl.sum(products, axis=1), (row < HIDDEN) & (column < HIDDEN))


@triton.jit
def store_products(pointer, sums, KIND: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    store_product(pointer, sums[0], HIDDEN, WIDTH)
    if KIND != "rnn":
        store_product(pointer + HIDDEN * HIDDEN, sums[1], HIDDEN, WIDTH)
        store_product(pointer + 2 * HIDDEN * HIDDEN, sums[2], HIDDEN, WIDTH)
        if KIND == "lstm":
            store_product(pointer + 3 * HIDDEN * HIDDEN, sums[3], HIDDEN, WIDTH)


@triton.jit
def store_bias(pointer, sums, KIND: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    inside = column < HIDDEN
    tl.store(pointer + column, tl.sum(sums[0], axis=0), inside)
    if KIND != "rnn":
        tl.store(pointer + HIDDEN + column, tl.sum(sums[1], axis=0), inside)
        tl.store(pointer + 2 * HIDDEN + column, tl.sum(sums[2], axis=0), inside)
        if KIND == "lstm":
            tl.store(pointer + 3 * HIDDEN + column, tl.sum(sums[3], axis=0), inside)


@triton.jit
def store_biases(bias_ih, bias_hh, sums, KIND: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    store_bias(bias_ih, sums, KIND, HIDDEN, WIDTH)
    store_bias(bias_hh, recurrent_parts(sums, KIND), KIND, HIDDEN, WIDTH)


@triton.jit(do_not_specialize=["num_places", "num_chains", "first_chain", "piece_size"])
def weight_kernel(
    gradients,
    states,
    sums,
    num_places,
    num_chains,
    first_chain,
    piece_size,
    GATES: tl.constexpr,
    PARTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One gate's sums over one piece of the places, from the stored gradients and states of one head and direction."""
    DTYPE: tl.constexpr = gradients.dtype.element_ty
    piece = tl.program_id(0)
    in_group = (tl.program_id(1) // GATES).to(tl.int64)
    chain = first_chain + in_group
    gate = tl.program_id(1) % GATES
    # Only a GRU has more parts than gates: the recurrent share of its last gate is a part of its own.
    part = tl.where(gate == GATES - 1, PARTS - 1, gate)
    column = tl.arange(0, WIDTH)[None, :]
    gradients += in_group * num_places * PARTS * HIDDEN
    states += chain * num_places * HIDDEN

    product = tl.zeros([WIDTH, WIDTH], DTYPE)
    bias_ih = tl.zeros([WIDTH], DTYPE)
    bias_hh = tl.zeros([WIDTH], DTYPE)
    end = tl.minimum((piece + 1) * piece_size, num_places)
    for start in range(piece * piece_size, end, PLACES):
        place = (start + tl.arange(0, PLACES))[:, None].to(tl.int64)
        inside = (place < end) & (column < HIDDEN)
        row = gradients + place * (PARTS * HIDDEN) + column
        share = tl.load(row + part * HIDDEN, inside, 0.0)
        h = tl.load(states + place * HIDDEN + column, inside, 0.0)
        product += tl.dot(tl.trans(share), h, input_precision=PRECISION)
        bias_hh += tl.sum(share, axis=0)
        bias_ih += tl.sum(tl.load(row + gate * HIDDEN, inside, 0.0), axis=0)

    to_weight, to_bias_ih, to_bias_hh = locate(sums, piece, chain, num_chains, GATES, HIDDEN)
    row = gate * HIDDEN + tl.arange(0, WIDTH)
    present = tl.arange(0, WIDTH) < HIDDEN
    tl.store(to_weight + row[:, None] * HIDDEN + column, product, present[:, None] & (column < HIDDEN))
    tl.store(to_bias_ih + row, bias_ih, present)
    tl.store(to_bias_hh + row, bias_hh, present)


@triton.jit(do_not_specialize=["num_pieces", "num_biases"])
def sum_kernel(
    sums,
    grad_weight,
    grad_bias_ih,
    grad_bias_hh,
    num_pieces,
    num_biases,
    HIDDEN: tl.constexpr,
    PIECES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Adds up the pieces, ``PIECES`` side by side; ``num_biases`` is ``K * D * G * H``."""
    biases = num_biases.to(tl.int64)
    size = biases * (HIDDEN + 2)
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([PIECES, COLUMNS], sums.dtype.element_ty)
    for start in range(0, num_pieces, PIECES):
        piece = start + tl.arange(0, PIECES)[:, None]
        inside = (piece < num_pieces) & (column < size)[None, :]
        total += tl.load(sums + piece * size + column[None, :], inside, 0.0)
    added = tl.sum(total, axis=0)

    bias = column - biases * HIDDEN  # negative in the weights, and from `num_biases` on in the second bias
    tl.store(grad_weight + column, added, bias < 0)
    tl.store(grad_bias_ih + bias, added, (bias >= 0) & (bias < biases))
    tl.store(grad_bias_hh + bias - biases, added, (bias >= biases) & (column < size))
