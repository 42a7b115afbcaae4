"""Gradients of the recurrent weights in Triton: sums over all steps, in a fixed order and without atomics.

A program of the recurrence keeps them in registers and writes them once, as a piece of the sum; :func:`sum_kernel` adds
the pieces up. A piece consists of the gradients of ``weight_hh`` ``[K, D, G * H, H]``, ``bias_ih`` and
``bias_hh`` ``[K, D, G * H]``.
"""

# Triton does not unpack tuples.
# ruff: noqa: RUF005
# mypy: allow-untyped-defs, disable-error-code=assignment

import triton
import triton.language as tl


@triton.jit
def copies(value, NUMBER: tl.constexpr):
    """A tuple of one value, ``NUMBER`` times."""
    values = ()
    for _ in tl.static_range(NUMBER):
        values = values + (value,)
    return values


@triton.jit
def add_products(sums, shares, h, GATES: tl.constexpr):
    """Adds a step's gradients of the recurrent matrices, ``[WIDTH, SEGMENTS, WIDTH]`` per gate.

    They are zero after the end of a segment. Segments are added up at the end, so that a step exchanges nothing.
    """
    added = ()
    for gate in tl.static_range(GATES):
        # The axis of the gradient comes first, as in `multiply`, which has made the same copy of it.
        added = added + (sums[gate] + tl.trans(shares[gate])[:, :, None] * h[None, :, :],)
    return added


@triton.jit
def add_parts(sums, parts, NUMBER: tl.constexpr):
    """Adds a step's gradients of the biases, ``[SEGMENTS, WIDTH]`` per part."""
    added = ()
    for part in tl.static_range(NUMBER):
        added = added + (sums[part] + parts[part],)
    return added


@triton.jit
def locate(sums, piece, chain, num_chains, GATES: tl.constexpr, HIDDEN: tl.constexpr):
    """The pointers to the gradients of one chain's ``weight_hh``, ``bias_ih`` and ``bias_hh`` in a piece."""
    num_biases = num_chains.to(tl.int64) * (GATES * HIDDEN)
    sums += piece * num_biases * (HIDDEN + 2)
    bias_ih = sums + num_biases * HIDDEN + chain * (GATES * HIDDEN)
    return sums + chain * (GATES * HIDDEN * HIDDEN), bias_ih, bias_ih + num_biases


@triton.jit
def store_products(pointer, sums, GATES: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.arange(0, WIDTH)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    at = pointer + row * HIDDEN + column
    for gate in tl.static_range(GATES):
        tl.store(at + gate * HIDDEN * HIDDEN, tl.sum(sums[gate], axis=1), (row < HIDDEN) & (column < HIDDEN))


@triton.jit
def store_bias(pointer, sums, GATES: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    for gate in tl.static_range(GATES):
        tl.store(pointer + gate * HIDDEN + column, tl.sum(sums[gate], axis=0), column < HIDDEN)


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
