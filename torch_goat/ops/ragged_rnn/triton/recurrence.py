"""The recurrence in Triton: one program walks a block of segments of similar length, for one head and one direction.

This is for narrow cells, whose recurrent matrices fit into the registers of one warp; see ``wide.py`` for the others.

The longest segment is a chain of dependent steps, so a step must be fast: its inputs are loaded two steps ahead, and a
program is so small that its steps need no exchange beyond a warp.

Segments are sorted by length. ``num_single`` programs have one block of the longest each, and ``num_single`` more share
the others by stride, to load weights and to write partial sums only once for many blocks.

Values per segment are ``[SEGMENTS, 1]`` from the start instead of an expanded ``[SEGMENTS]``: before a ``tl.dot``,
Triton 3.6 gives the pointer and the mask of a one-dimensional load different layouts, and fails to compile.
"""

# Triton compiles a branch that returns only if the other one does, too, and does not unpack tuples.
# ruff: noqa: RET505, RUF005
# mypy: allow-untyped-defs, disable-error-code=assignment

import triton
import triton.language as tl

from torch_goat.ops.ragged_rnn.triton.cells import (
    advance,
    combine,
    load_bias,
    load_matrices,
    local_derivatives,
    multiply_all,
    multiply_each,
    recurrent_parts,
    step_back,
)
from torch_goat.ops.ragged_rnn.triton.sums import add_parts, add_products, copies, locate, store_bias, store_products

# Counts differ between graphs; do not recompile for counts that are 1 or divisible by 16.
_COUNTS = ["num_targets", "num_places", "num_sources", "num_chains", "num_blocks", "num_single"]


@triton.jit
def block_of_segments(order, ptr, block, num_targets, backwards, SEGMENTS: tl.constexpr):
    """Target, first place and length of each segment in the block, ``[SEGMENTS, 1]``; absent ones have no steps."""
    rank = block * SEGMENTS + tl.arange(0, SEGMENTS)[:, None]
    present = rank < num_targets
    target = tl.load(order + rank, present, 0)
    start = tl.load(ptr + target, present, 0)
    end = tl.load(ptr + target + 1, present, 0)
    return target, tl.where(backwards == 1, end - 1, start), (end - start).to(tl.int32), present


@triton.jit
def first_rows(rows, block, first, length, num_targets, backwards, SEGMENTS: tl.constexpr):
    """The row of the gradients at which the walk over each segment starts ``[SEGMENTS, 1]``: its place by default."""
    if rows is None:
        return first
    else:
        rank = block * SEGMENTS + tl.arange(0, SEGMENTS)[:, None]
        start = tl.load(rows + rank, rank < num_targets, 0)
        return tl.where(backwards == 1, start + length - 1, start)


@triton.jit
def load_place(source, coefficient, first, stride, length, step, DTYPE: tl.constexpr):
    """Source and coefficient of a step of each segment, ``[SEGMENTS, 1]``."""
    place = first + stride * step
    index = tl.load(source + place, step < length, 0)
    if coefficient is None:
        scale = tl.full(index.shape, 1.0, DTYPE)
    else:
        scale = tl.load(coefficient + place, step < length, 0.0)
    return index, scale


@triton.jit
def load_row(projected, index, column, length, step, GATES: tl.constexpr, HIDDEN: tl.constexpr, ROW: tl.constexpr):
    """The gates of a step of each segment, ``[SEGMENTS, WIDTH]`` each, from a row of ``ROW`` values per source."""
    mask = (column < HIDDEN) & (step < length)
    gates = ()
    for gate in tl.static_range(GATES):
        gates = gates + (tl.load(projected + index * ROW + column + gate * HIDDEN, mask, 0.0),)
    return gates


@triton.jit
def load_states(states, to_c, first, stride, column, length, step, KIND: tl.constexpr, HIDDEN: tl.constexpr):
    """The states before a step of each segment, ``[SEGMENTS, WIDTH]`` each; ``c`` is ``h`` in cells without it."""
    mask = (column < HIDDEN) & (step < length)
    at = (first + stride * step) * HIDDEN + column
    h = tl.load(states + at, mask, 0.0)
    if KIND == "lstm":
        return h, tl.load(states + to_c + at, mask, 0.0)
    else:
        return h, h


@triton.jit(do_not_specialize=_COUNTS)
def forward_kernel(
    projected,
    source,
    coefficient,
    ptr,
    order,
    weight_hh,
    bias_ih,
    bias_hh,
    out,
    states,
    num_targets,
    num_places,
    num_sources,
    num_chains,
    num_blocks,
    num_single,
    KIND: tl.constexpr,
    GATES: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    SEGMENTS: tl.constexpr,
    SAVE: tl.constexpr,
):
    """Final states ``out`` ``[T, K, D, H]``; if ``SAVE``, those before each step by place, ``[1 or 2, K, D, E, H]``."""
    DTYPE: tl.constexpr = weight_hh.dtype.element_ty
    ROW: tl.constexpr = DIRECTIONS * GATES * HIDDEN
    chain = (tl.program_id(0) % num_chains).to(tl.int64)  # a head and a direction
    program = tl.program_id(0) // num_chains
    head = chain // DIRECTIONS
    direction = chain % DIRECTIONS
    column = tl.arange(0, WIDTH)[None, :]
    inside = column < HIDDEN

    weight_hh += chain * GATES * HIDDEN * HIDDEN
    matrices = load_matrices(weight_hh, 1, HIDDEN, GATES, HIDDEN, WIDTH)  # transposed
    bias = load_bias(bias_ih + chain * GATES * HIDDEN, bias_hh + chain * GATES * HIDDEN, column, GATES, HIDDEN)
    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    states += chain * num_places * HIDDEN
    to_c = num_places.to(tl.int64) * num_chains * HIDDEN

    stride = 1 - 2 * direction
    for block in range(program, num_blocks, tl.where(program < num_single, num_blocks, num_single)):
        target, first, length, present = block_of_segments(order, ptr, block, num_targets, direction, SEGMENTS)
        h = tl.zeros([SEGMENTS, WIDTH], DTYPE)
        c = tl.zeros([SEGMENTS, WIDTH], DTYPE)
        index, scale = load_place(source, coefficient, first, stride, length, 0, DTYPE)
        index_1, scale_1 = load_place(source, coefficient, first, stride, length, 1, DTYPE)
        index_2, scale_2 = load_place(source, coefficient, first, stride, length, 2, DTYPE)
        gates = load_row(projected, index, column, length, 0, GATES, HIDDEN, ROW)
        gates_1 = load_row(projected, index_1, column, length, 1, GATES, HIDDEN, ROW)
        final = out + (target * num_chains + chain) * HIDDEN + column

        for step in range(tl.max(length)):
            gates_2 = load_row(projected, index_2, column, length, step + 2, GATES, HIDDEN, ROW)
            index_3, scale_3 = load_place(source, coefficient, first, stride, length, step + 3, DTYPE)

            active = step < length
            if SAVE:
                at = (first + stride * step) * HIDDEN + column
                tl.store(states + at, h, inside & active)
                if KIND == "lstm":
                    tl.store(states + to_c + at, c, inside & active)
            parts = combine(gates, scale, bias, multiply_each(h, matrices), GATES)
            new_h, new_c = advance(parts, h, c, KIND)
            h = tl.where(active, new_h, h)
            c = tl.where(active, new_c, c)

            scale, scale_1, scale_2 = scale_1, scale_2, scale_3
            gates, gates_1, index_2 = gates_1, gates_2, index_3

        tl.store(final, h.to(out.dtype.element_ty), inside & present)


@triton.jit(do_not_specialize=[*_COUNTS, "num_rows"])
def backward_kernel(
    grad,
    projected,
    source,
    coefficient,
    ptr,
    order,
    weight_hh,
    bias_ih,
    bias_hh,
    rows,
    states,
    gradients,
    sums,
    num_targets,
    num_places,
    num_sources,
    num_chains,
    num_blocks,
    num_single,
    num_rows,
    KIND: tl.constexpr,
    GATES: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    SEGMENTS: tl.constexpr,
):
    """Gradients of the parts by row ``[K, D, num_rows, G * H]``, from those of the final states ``[T, K, D, H]``.

    ``order`` has the targets of a portion, and ``rows`` the first row of each; by default, rows are places.

    Segments are walked from their last step to their first. The gates and their local derivatives, which do not depend
    on the gradient flowing back, are computed one step ahead, in parallel to the chain. Gradients of the matrix are in
    registers, and each program writes a partial sum.
    """
    DTYPE: tl.constexpr = weight_hh.dtype.element_ty
    ROW: tl.constexpr = DIRECTIONS * GATES * HIDDEN
    NUM_PARTS: tl.constexpr = 4 if KIND == "gru" else GATES
    chain = (tl.program_id(0) % num_chains).to(tl.int64)
    program = tl.program_id(0) // num_chains
    head = chain // DIRECTIONS
    direction = chain % DIRECTIONS
    column = tl.arange(0, WIDTH)[None, :]
    inside = column < HIDDEN

    weight_hh += chain * GATES * HIDDEN * HIDDEN
    matrices = load_matrices(weight_hh, 1, HIDDEN, GATES, HIDDEN, WIDTH)  # transposed
    matrices_back = load_matrices(weight_hh, HIDDEN, 1, GATES, HIDDEN, WIDTH)
    bias = load_bias(bias_ih + chain * GATES * HIDDEN, bias_hh + chain * GATES * HIDDEN, column, GATES, HIDDEN)
    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    states += chain * num_places * HIDDEN
    to_c = num_places.to(tl.int64) * num_chains * HIDDEN
    gradients += chain * num_rows * GATES * HIDDEN
    weight_sums = copies(tl.zeros([WIDTH, SEGMENTS, WIDTH], DTYPE), GATES)
    bias_sums = copies(tl.zeros([SEGMENTS, WIDTH], DTYPE), NUM_PARTS)

    stride = 2 * direction - 1
    for block in range(program, num_blocks, tl.where(program < num_single, num_blocks, num_single)):
        target, first, length, _ = block_of_segments(order, ptr, block, num_targets, 1 - direction, SEGMENTS)
        first_row = first_rows(rows, block, first, length, num_targets, 1 - direction, SEGMENTS)
        final = grad + (target * num_chains + chain) * HIDDEN + column
        grad_h = tl.load(final, inside & (length > 0), 0.0).to(DTYPE)
        grad_c = tl.zeros([SEGMENTS, WIDTH], DTYPE)

        index, scale = load_place(source, coefficient, first, stride, length, 0, DTYPE)
        index_1, scale_1 = load_place(source, coefficient, first, stride, length, 1, DTYPE)
        index_2, scale_2 = load_place(source, coefficient, first, stride, length, 2, DTYPE)
        gates = load_row(projected, index, column, length, 0, GATES, HIDDEN, ROW)
        gates_1 = load_row(projected, index_1, column, length, 1, GATES, HIDDEN, ROW)
        h, c = load_states(states, to_c, first, stride, column, length, 0, KIND, HIDDEN)
        h_1, c_1 = load_states(states, to_c, first, stride, column, length, 1, KIND, HIDDEN)
        parts = combine(gates, scale, bias, multiply_each(h, matrices), GATES)
        factors = local_derivatives(parts, h, c, KIND)

        for step in range(tl.max(length)):
            gates_2 = load_row(projected, index_2, column, length, step + 2, GATES, HIDDEN, ROW)
            h_2, c_2 = load_states(states, to_c, first, stride, column, length, step + 2, KIND, HIDDEN)
            index_3, scale_3 = load_place(source, coefficient, first, stride, length, step + 3, DTYPE)
            parts = combine(gates_1, scale_1, bias, multiply_each(h_1, matrices), GATES)
            factors_1 = local_derivatives(parts, h_1, c_1, KIND)

            grad_parts, rest, grad_c = step_back(grad_h, grad_c, factors, KIND)
            grad_shares = recurrent_parts(grad_parts, KIND)
            grad_h = rest + multiply_all(grad_shares, matrices_back)
            # After its end, the gradient of a segment could grow to infinity, which times zero is NaN.
            more = step + 1 < length
            grad_h = tl.where(more, grad_h, 0.0)
            grad_c = tl.where(more, grad_c, 0.0)
            row = gradients + (first_row + stride * step) * (GATES * HIDDEN)
            for part in tl.static_range(GATES):
                tl.store(row + column + part * HIDDEN, grad_parts[part], inside & (step < length))
            weight_sums = add_products(weight_sums, grad_shares, h, GATES)
            bias_sums = add_parts(bias_sums, grad_parts, NUM_PARTS)

            factors, h, h_1, c_1 = factors_1, h_1, h_2, c_2
            scale_1, scale_2 = scale_2, scale_3
            gates_1, index_2 = gates_2, index_3

    to_weight, to_bias_ih, to_bias_hh = locate(sums, program, chain, num_chains, GATES, HIDDEN)
    store_products(to_weight, weight_sums, GATES, HIDDEN, WIDTH)
    store_bias(to_bias_ih, bias_sums, GATES, HIDDEN, WIDTH)
    store_bias(to_bias_hh, recurrent_parts(bias_sums, KIND), GATES, HIDDEN, WIDTH)
