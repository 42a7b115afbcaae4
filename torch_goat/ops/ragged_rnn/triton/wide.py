"""The recurrence of wide cells in Triton: programs share the units of a cell, and each keeps its part of the matrix.

The recurrent matrix of a wide cell does not fit into one multiprocessor, and loading it in every step would take longer
than the step. Here, a group of ``SLICES`` programs walks a block of segments together. Each has ``UNITS`` of the units
and their columns of the matrix, which stay on the chip. After a step, programs exchange their units through memory
and wait for each other, so all of them must run at the same time: a cooperative launch ensures this. Up to a width of
64 one program has all units and waits for nobody.

Segments are sorted by length. Each group has consecutive blocks of about as many steps in total as the other groups.
"""

# Triton compiles a branch that returns only if the other one does, too, and does not unpack tuples.
# ruff: noqa: RUF005
# mypy: allow-untyped-defs, disable-error-code=assignment

import triton
import triton.language as tl

from torch_goat.ops.ragged_rnn.triton.cells import (
    advance,
    combine,
    load_bias,
    local_derivatives,
    recurrent_parts,
    step_back,
)
from torch_goat.ops.ragged_rnn.triton.products import load_chunks, multiply_add, put_together, take_apart
from torch_goat.ops.ragged_rnn.triton.recurrence import block_of_segments, first_rows, load_place, load_row, load_states
from torch_goat.ops.ragged_rnn.triton.sums import add_parts, copies

# Counts differ between graphs; do not recompile for counts that are 1 or divisible by 16.
_COUNTS = ["num_targets", "num_places", "num_sources", "num_chains", "first_chain", "num_groups"]


@triton.jit
def wait_for_group(counter, arrivals):
    """Waits until the programs of a group have arrived here ``arrivals`` times in total.

    What they have written before is then visible. One thread counts and polls; the others wait at the barrier.
    """
    tl.inline_asm_elementwise(
        """
        {
        .reg .pred other, early;
        .reg .u32 value;
        barrier.sync 0;
        mov.u32 value, %tid.x;
        setp.ne.u32 other, value, 0;
        @other bra arrived;
        red.release.gpu.global.add.u32 [$1], 1;
        poll:
        ld.acquire.gpu.global.u32 value, [$1];
        setp.lt.u32 early, value, $2;
        @early bra poll;
        arrived:
        barrier.sync 0;
        mov.u32 $0, 0;
        }
        """,
        "=r,l,r",
        [counter, arrivals],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def load_shares(
    gradients, first, stride, column, length, step, GATES: tl.constexpr, HIDDEN: tl.constexpr, STORED: tl.constexpr
):
    """The recurrent shares of the gates at a step of each segment, ``[SEGMENTS, UNITS]`` each."""
    mask = (column < HIDDEN) & (step < length)
    at = gradients + (first + stride * step) * (STORED * HIDDEN) + column
    shares = ()
    for gate in tl.static_range(GATES):
        shares = shares + (tl.load(at + gate * HIDDEN, mask, 0.0),)
    return shares


@triton.jit(do_not_specialize=_COUNTS)
def wide_forward_kernel(
    projected,
    source,
    coefficient,
    ptr,
    order,
    bounds,
    high,
    low,
    bias_ih,
    bias_hh,
    out,
    states,
    exchange,
    counters,
    num_targets,
    num_places,
    num_sources,
    num_chains,
    first_chain,
    num_groups,
    KIND: tl.constexpr,
    GATES: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    UNITS: tl.constexpr,
    SLICES: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PRECISION: tl.constexpr,
    SAVE: tl.constexpr,
):
    """Final states ``out`` ``[T, K, D, H]``; if ``SAVE``, those before each step by place, ``[1 or 2, K, D, E, H]``.

    ``high`` and ``low`` are ``[K * D, SLICES, CHUNKS * ROWS, UNITS * PARTS]``, ``bounds`` ``[num_groups + 1]`` the
    blocks of the groups, ``exchange`` ``[chains, num_groups, 2, SEGMENTS, SLICES * UNITS]`` the latest states.
    """
    DTYPE: tl.constexpr = high.dtype.element_ty
    ROW: tl.constexpr = DIRECTIONS * GATES * HIDDEN
    WIDTH: tl.constexpr = SLICES * UNITS
    COLUMNS: tl.constexpr = UNITS * PARTS
    slice = tl.program_id(0) % SLICES
    walkers = tl.program_id(0) // SLICES  # a group of a chain
    group = walkers % num_groups
    chain = (first_chain + walkers // num_groups).to(tl.int64)
    head = chain // DIRECTIONS
    direction = chain % DIRECTIONS
    column = slice * UNITS + tl.arange(0, UNITS)[None, :]
    inside = column < HIDDEN
    row = tl.arange(0, SEGMENTS)[:, None]

    own = (chain * SLICES + slice) * (CHUNKS * ROWS * COLUMNS)
    high_chunks = load_chunks(high + own, CHUNKS, ROWS, COLUMNS)
    low_chunks = high_chunks
    if PRECISION == "tf32x3":
        low_chunks = load_chunks(low + own, CHUNKS, ROWS, COLUMNS)
    bias = load_bias(bias_ih + chain * GATES * HIDDEN, bias_hh + chain * GATES * HIDDEN, column, GATES, HIDDEN)
    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    states += chain * num_places * HIDDEN
    to_c = num_places.to(tl.int64) * num_chains * HIDDEN
    exchange += walkers.to(tl.int64) * (2 * SEGMENTS * WIDTH)
    if SLICES > 1:
        counter = (counters + walkers * 32).to(tl.int64)

    stride = 1 - 2 * direction
    rounds = 0
    for block in range(tl.load(bounds + group), tl.load(bounds + group + 1)):
        target, first, length, present = block_of_segments(order, ptr, block, num_targets, direction, SEGMENTS)
        h = tl.zeros([SEGMENTS, UNITS], DTYPE)
        c = tl.zeros([SEGMENTS, UNITS], DTYPE)
        index, scale = load_place(source, coefficient, first, stride, length, 0, DTYPE)
        index_1, scale_1 = load_place(source, coefficient, first, stride, length, 1, DTYPE)
        gates = load_row(projected, index, column, length, 0, GATES, HIDDEN, ROW)

        for step in range(tl.max(length)):
            gates_1 = load_row(projected, index_1, column, length, step + 1, GATES, HIDDEN, ROW)
            index_2, scale_2 = load_place(source, coefficient, first, stride, length, step + 2, DTYPE)

            active = step < length
            if SAVE:
                at = (first + stride * step) * HIDDEN + column
                tl.store(states + at, h, inside & active)
                if KIND == "lstm":
                    tl.store(states + to_c + at, c, inside & active)
            total = tl.zeros([SEGMENTS, COLUMNS], DTYPE)
            for chunk in tl.static_range(CHUNKS):
                if SLICES == 1:
                    x = h
                else:
                    unit = chunk * ROWS + tl.arange(0, ROWS)[None, :]
                    latest = exchange + ((rounds + 1) % 2) * (SEGMENTS * WIDTH) + row * WIDTH + unit
                    x = tl.load(latest, (unit < HIDDEN) & (row >= 0) & (step > 0), 0.0, cache_modifier=".cg")
                total = multiply_add(x, high_chunks[chunk], low_chunks[chunk], total, PRECISION)
            shares = take_apart(total, PARTS, SEGMENTS, UNITS)
            new_h, new_c = advance(combine(gates, scale, bias, shares, GATES), h, c, KIND)
            h = tl.where(active, new_h, h)
            c = tl.where(active, new_c, c)
            if SLICES > 1:
                tl.store(exchange + (rounds % 2) * (SEGMENTS * WIDTH) + row * WIDTH + column, h)
                rounds += 1
                wait_for_group(counter, rounds * SLICES)

            scale, scale_1 = scale_1, scale_2
            gates, index_1 = gates_1, index_2

        final = out + (target * num_chains + chain) * HIDDEN + column
        tl.store(final, h.to(out.dtype.element_ty), inside & present)


@triton.jit(do_not_specialize=[*_COUNTS, "num_rows"])
def wide_backward_kernel(
    grad,
    projected,
    source,
    coefficient,
    ptr,
    order,
    rows,
    bounds,
    high,
    low,
    bias_ih,
    bias_hh,
    states,
    gradients,
    bias_sums,
    exchange,
    counters,
    num_targets,
    num_places,
    num_sources,
    num_chains,
    first_chain,
    num_groups,
    num_rows,
    KIND: tl.constexpr,
    GATES: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    UNITS: tl.constexpr,
    SLICES: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
    PARTS: tl.constexpr,
    STORED: tl.constexpr,
    WIDTH: tl.constexpr,
    TOGETHER: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of the parts by row, from those of the final states ``[T, K, D, H]``.

    ``order`` has the targets of a portion, and ``rows`` the first row of each; by default, rows are places.
    ``gradients`` is ``[K * D, num_rows, STORED * H]``. Before, it has the recurrent shares of the gates. Segments are
    walked from their last step to their first. The gradient of a state is a sum over all gates, so each program writes
    what its gates add to it, ``exchange`` ``[chains, num_groups, 2, SLICES, SEGMENTS, SLICES * UNITS]``. ``high`` and
    ``low`` are ``[K * D, SLICES, GATES * UNITS, WIDTH]`` or, if parts are multiplied ``TOGETHER``, have
    ``UNITS * PARTS`` rows; ``bias_sums`` is ``[num_groups, K * D, parts, H]``.
    """
    DTYPE: tl.constexpr = high.dtype.element_ty
    ROW: tl.constexpr = DIRECTIONS * GATES * HIDDEN
    SHARED: tl.constexpr = SLICES * UNITS
    COLUMNS: tl.constexpr = UNITS * PARTS
    NUM_PARTS: tl.constexpr = 4 if KIND == "gru" else GATES
    slice = tl.program_id(0) % SLICES
    walkers = tl.program_id(0) // SLICES
    group = walkers % num_groups
    chain = (first_chain + walkers // num_groups).to(tl.int64)
    head = chain // DIRECTIONS
    direction = chain % DIRECTIONS
    column = slice * UNITS + tl.arange(0, UNITS)[None, :]
    inside = column < HIDDEN
    row = tl.arange(0, SEGMENTS)[:, None]

    CHUNKS: tl.constexpr = 1 if TOGETHER else GATES
    ROWS: tl.constexpr = COLUMNS if TOGETHER else UNITS
    own = (chain * SLICES + slice) * (CHUNKS * ROWS * WIDTH)
    highs = load_chunks(high + own, CHUNKS, ROWS, WIDTH)
    lows = highs
    if PRECISION == "tf32x3":
        lows = load_chunks(low + own, CHUNKS, ROWS, WIDTH)
    bias = load_bias(bias_ih + chain * GATES * HIDDEN, bias_hh + chain * GATES * HIDDEN, column, GATES, HIDDEN)
    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    states += chain * num_places * HIDDEN
    to_c = num_places.to(tl.int64) * num_chains * HIDDEN
    gradients += chain * num_rows * (STORED * HIDDEN)
    exchange += walkers.to(tl.int64) * (2 * SLICES * SEGMENTS * SHARED)
    if SLICES > 1:
        counter = (counters + walkers * 32).to(tl.int64)
    sums = copies(tl.zeros([SEGMENTS, UNITS], DTYPE), NUM_PARTS)

    stride = 2 * direction - 1
    rounds = 0
    for block in range(tl.load(bounds + group), tl.load(bounds + group + 1)):
        target, first, length, _ = block_of_segments(order, ptr, block, num_targets, 1 - direction, SEGMENTS)
        first_row = first_rows(rows, block, first, length, num_targets, 1 - direction, SEGMENTS)
        final = grad + (target * num_chains + chain) * HIDDEN + column
        grad_h = tl.load(final, inside & (length > 0), 0.0).to(DTYPE)
        grad_c = tl.zeros([SEGMENTS, UNITS], DTYPE)

        index, scale = load_place(source, coefficient, first, stride, length, 0, DTYPE)
        index_1, scale_1 = load_place(source, coefficient, first, stride, length, 1, DTYPE)
        gates = load_row(projected, index, column, length, 0, GATES, HIDDEN, ROW)
        h, c = load_states(states, to_c, first, stride, column, length, 0, KIND, HIDDEN)
        shares = load_shares(gradients, first_row, stride, column, length, 0, GATES, HIDDEN, STORED)

        for step in range(tl.max(length)):
            gates_1 = load_row(projected, index_1, column, length, step + 1, GATES, HIDDEN, ROW)
            h_1, c_1 = load_states(states, to_c, first, stride, column, length, step + 1, KIND, HIDDEN)
            index_2, scale_2 = load_place(source, coefficient, first, stride, length, step + 2, DTYPE)
            shares_1 = load_shares(gradients, first_row, stride, column, length, step + 1, GATES, HIDDEN, STORED)

            factors = local_derivatives(combine(gates, scale, bias, shares, GATES), h, c, KIND)
            grad_parts, rest, grad_c = step_back(grad_h, grad_c, factors, KIND)
            to = gradients + (first_row + stride * step) * (STORED * HIDDEN) + column
            for part in tl.static_range(STORED):
                tl.store(to + part * HIDDEN, grad_parts[part], inside & (step < length))
            sums = add_parts(sums, grad_parts, NUM_PARTS)

            product = tl.zeros([SEGMENTS, WIDTH], DTYPE)
            recurrent = recurrent_parts(grad_parts, KIND)
            if TOGETHER:
                x = put_together(recurrent, PARTS, SEGMENTS, UNITS)
                product = multiply_add(x, highs[0], lows[0], product, PRECISION)
            else:
                for part in tl.static_range(GATES):
                    product = multiply_add(recurrent[part], highs[part], lows[part], product, PRECISION)
            if SLICES == 1:
                grad_h = rest + product
            else:
                latest = exchange + (rounds % 2) * (SLICES * SEGMENTS * SHARED)
                every = tl.arange(0, WIDTH)[None, :]
                tl.store(latest + (slice * SEGMENTS + row) * SHARED + every, product, (every < SHARED) & (row >= 0))
                rounds += 1
                wait_for_group(counter, rounds * SLICES)
                grad_h = rest
                for slices in tl.static_range(0, SLICES, SIDE_BY_SIDE):
                    other = slices + tl.arange(0, SIDE_BY_SIDE)[:, None, None]
                    at = (other * SEGMENTS + row[None, :, :]) * SHARED + column[None, :, :]
                    added = tl.load(latest + at, (other < SLICES) & (at >= 0), 0.0, cache_modifier=".cg")
                    grad_h += tl.sum(added, axis=0)
            # After its end, the gradient of a segment could grow to infinity, which times zero is NaN.
            more = step + 1 < length
            grad_h = tl.where(more, grad_h, 0.0)
            grad_c = tl.where(more, grad_c, 0.0)

            scale, scale_1 = scale_1, scale_2
            gates, index_1, shares = gates_1, index_2, shares_1
            h, c = h_1, c_1

    unit = slice * UNITS + tl.arange(0, UNITS)
    to_sums = bias_sums + ((group * num_chains + chain) * NUM_PARTS) * HIDDEN + unit
    for part in tl.static_range(NUM_PARTS):
        tl.store(to_sums + part * HIDDEN, tl.sum(sums[part], axis=0), unit < HIDDEN)
