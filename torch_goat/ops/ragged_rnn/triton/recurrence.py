"""The recurrence in Triton: one program walks a block of runs of similar length, for one head and one direction.

The longest run is one chain of steps that nothing can shorten, so a step must be fast: what it reads is asked for two
steps ahead, and a program is so small that its steps need no exchange beyond a warp.

A program finds its blocks by stride. The longest runs stand first; ``num_single`` programs have one block of these
each, and ``num_single`` more share the short runs, to load weights and to write partial sums only once for many blocks.

What a block has one of per run is ``[RUNS, 1]`` from the start and not a ``[RUNS]`` to be expanded: before a
``tl.dot``, Triton 3.6 gives the pointer and the mask of a one-dimensional load different layouts, and fails to compile.
"""

# Triton compiles a branch that returns only if the other one does, too.
# ruff: noqa: RET505
# mypy: allow-untyped-defs

import triton
import triton.language as tl

from torch_goat.ops.ragged_rnn.triton.cells import (
    add_up,
    advance,
    load_bias,
    load_gates,
    load_matrices,
    local_derivatives,
    multiply_all,
    recurrent_parts,
    step_back,
    store_parts,
)
from torch_goat.ops.ragged_rnn.triton.sums import (
    add_parts,
    add_products,
    locate,
    store_biases,
    store_products,
    zero_parts,
    zero_products,
)

# Counts differ from graph to graph, and a kernel must not be compiled anew for those that are even or one.
_COUNTS = ["num_targets", "num_places", "num_sources", "num_chains", "num_blocks", "num_single"]


@triton.jit
def block_of_runs(order, ptr, block, num_targets, backwards, RUNS: tl.constexpr):
    """Target, first place and number of steps of each run in the block, ``[RUNS, 1]``; absent runs have no steps."""
    rank = block * RUNS + tl.arange(0, RUNS)[:, None]
    present = rank < num_targets
    target = tl.load(order + rank, present, 0)
    start = tl.load(ptr + target, present, 0)
    end = tl.load(ptr + target + 1, present, 0)
    return target, tl.where(backwards == 1, end - 1, start), (end - start).to(tl.int32), present


@triton.jit
def load_place(source, coefficient, first, stride, length, step, DTYPE: tl.constexpr):
    """Source and coefficient of a step of each run, ``[RUNS, 1]``."""
    place = first + stride * step
    index = tl.load(source + place, step < length, 0)
    if coefficient is None:
        scale = tl.full(index.shape, 1.0, DTYPE)
    else:
        scale = tl.load(coefficient + place, step < length, 0.0)
    return index, scale


@triton.jit
def load_row(
    projected, index, length, step, KIND: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr
):
    """The gates of a step of each run, ``[RUNS, WIDTH]`` each, from a row of ``ROW`` values per source."""
    column = tl.arange(0, WIDTH)[None, :]
    mask = (column < HIDDEN) & (step < length)
    return load_gates(projected + index * ROW, column, mask, KIND, HIDDEN)


@triton.jit
def load_states(
    states, to_c, first, stride, length, step, KIND: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr
):
    """The states before a step of each run, ``[RUNS, WIDTH]`` each; ``c`` is ``h`` in the cells that have none."""
    column = tl.arange(0, WIDTH)[None, :]
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
    RUNS: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
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
    matrices = load_matrices(weight_hh, 1, HIDDEN, KIND, HIDDEN, WIDTH, DOT)  # transposed
    bias = load_bias(bias_ih + chain * GATES * HIDDEN, bias_hh + chain * GATES * HIDDEN, KIND, HIDDEN, WIDTH)
    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    states += chain * num_places * HIDDEN
    to_c = num_places.to(tl.int64) * num_chains * HIDDEN

    stride = 1 - 2 * direction
    for block in range(program, num_blocks, tl.where(program < num_single, num_blocks, num_single)):
        target, first, length, present = block_of_runs(order, ptr, block, num_targets, direction, RUNS)
        h = tl.zeros([RUNS, WIDTH], DTYPE)
        c = tl.zeros([RUNS, WIDTH], DTYPE)
        index, scale = load_place(source, coefficient, first, stride, length, 0, DTYPE)
        index_1, scale_1 = load_place(source, coefficient, first, stride, length, 1, DTYPE)
        index_2, scale_2 = load_place(source, coefficient, first, stride, length, 2, DTYPE)
        gates = load_row(projected, index, length, 0, KIND, HIDDEN, WIDTH, ROW)
        gates_1 = load_row(projected, index_1, length, 1, KIND, HIDDEN, WIDTH, ROW)
        final = out + (target * num_chains + chain) * HIDDEN + column

        for step in range(tl.max(length)):
            gates_2 = load_row(projected, index_2, length, step + 2, KIND, HIDDEN, WIDTH, ROW)
            index_3, scale_3 = load_place(source, coefficient, first, stride, length, step + 3, DTYPE)

            active = step < length
            if SAVE:
                at = (first + stride * step) * HIDDEN + column
                tl.store(states + at, h, inside & active)
                if KIND == "lstm":
                    tl.store(states + to_c + at, c, inside & active)
            elif WIDTH > 64:
                # In a loop that stores nothing, Triton would keep all matrices in shared memory, where they do not fit.
                tl.store(final, h.to(out.dtype.element_ty), inside & present)
            parts = add_up(gates, scale, bias, h, matrices, KIND, HIDDEN, WIDTH, DOT, PRECISION)
            new_h, new_c = advance(parts, h, c, KIND)
            h = tl.where(active, new_h, h)
            c = tl.where(active, new_c, c)

            scale, scale_1, scale_2 = scale_1, scale_2, scale_3
            gates, gates_1, index_2 = gates_1, gates_2, index_3

        tl.store(final, h.to(out.dtype.element_ty), inside & present)


@triton.jit(do_not_specialize=[*_COUNTS, "first_chain", "group_chains"])
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
    states,
    gradients,
    sums,
    num_targets,
    num_places,
    num_sources,
    num_chains,
    num_blocks,
    num_single,
    first_chain,
    group_chains,
    KIND: tl.constexpr,
    GATES: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    RUNS: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Gradients of the parts by place, from those of the final states ``[T, K, D, H]``.

    Only ``group_chains`` chains are walked, from ``first_chain`` on, and ``gradients`` has room for these alone: it is
    ``[group_chains, E, PARTS * H]``.

    The runs are walked from their last step to their first. What does not depend on the gradient flowing back, that is
    the gates and their local derivatives, is computed one step ahead, to run beside the chain and not in it.
    Where the matrix fits in registers, so do its gradients: each program leaves a partial sum.
    """
    DTYPE: tl.constexpr = weight_hh.dtype.element_ty
    ROW: tl.constexpr = DIRECTIONS * GATES * HIDDEN
    in_group = (tl.program_id(0) % group_chains).to(tl.int64)
    chain = first_chain + in_group
    program = tl.program_id(0) // group_chains
    head = chain // DIRECTIONS
    direction = chain % DIRECTIONS
    column = tl.arange(0, WIDTH)[None, :]
    inside = column < HIDDEN

    weight_hh += chain * GATES * HIDDEN * HIDDEN
    matrices = load_matrices(weight_hh, 1, HIDDEN, KIND, HIDDEN, WIDTH, DOT)  # transposed
    matrices_back = load_matrices(weight_hh, HIDDEN, 1, KIND, HIDDEN, WIDTH, DOT)
    bias = load_bias(bias_ih + chain * GATES * HIDDEN, bias_hh + chain * GATES * HIDDEN, KIND, HIDDEN, WIDTH)
    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    states += chain * num_places * HIDDEN
    to_c = num_places.to(tl.int64) * num_chains * HIDDEN
    gradients += in_group * num_places * PARTS * HIDDEN
    if not DOT:
        weight_sums = zero_products(RUNS, WIDTH, KIND, DTYPE)
        bias_sums = zero_parts(RUNS, WIDTH, KIND, DTYPE)

    stride = 2 * direction - 1
    for block in range(program, num_blocks, tl.where(program < num_single, num_blocks, num_single)):
        target, first, length, _ = block_of_runs(order, ptr, block, num_targets, 1 - direction, RUNS)
        final = grad + (target * num_chains + chain) * HIDDEN + column
        grad_h = tl.load(final, inside & (length > 0), 0.0).to(DTYPE)
        grad_c = tl.zeros([RUNS, WIDTH], DTYPE)

        index, scale = load_place(source, coefficient, first, stride, length, 0, DTYPE)
        index_1, scale_1 = load_place(source, coefficient, first, stride, length, 1, DTYPE)
        index_2, scale_2 = load_place(source, coefficient, first, stride, length, 2, DTYPE)
        gates = load_row(projected, index, length, 0, KIND, HIDDEN, WIDTH, ROW)
        gates_1 = load_row(projected, index_1, length, 1, KIND, HIDDEN, WIDTH, ROW)
        h, c = load_states(states, to_c, first, stride, length, 0, KIND, HIDDEN, WIDTH)
        h_1, c_1 = load_states(states, to_c, first, stride, length, 1, KIND, HIDDEN, WIDTH)
        parts = add_up(gates, scale, bias, h, matrices, KIND, HIDDEN, WIDTH, DOT, PRECISION)
        factors = local_derivatives(parts, h, c, KIND)

        for step in range(tl.max(length)):
            gates_2 = load_row(projected, index_2, length, step + 2, KIND, HIDDEN, WIDTH, ROW)
            h_2, c_2 = load_states(states, to_c, first, stride, length, step + 2, KIND, HIDDEN, WIDTH)
            index_3, scale_3 = load_place(source, coefficient, first, stride, length, step + 3, DTYPE)
            parts = add_up(gates_1, scale_1, bias, h_1, matrices, KIND, HIDDEN, WIDTH, DOT, PRECISION)
            factors_1 = local_derivatives(parts, h_1, c_1, KIND)

            grad_parts, rest, grad_c = step_back(grad_h, grad_c, factors, KIND)
            grad_shares = recurrent_parts(grad_parts, KIND)
            grad_h = rest + multiply_all(grad_shares, matrices_back, KIND, HIDDEN, WIDTH, DOT, PRECISION)
            # Beside a longer run, the gradient of one that is over could grow to infinity, which times zero is none.
            more = step + 1 < length
            grad_h = tl.where(more, grad_h, 0.0)
            grad_c = tl.where(more, grad_c, 0.0)
            row = gradients + (first + stride * step) * (PARTS * HIDDEN)
            store_parts(row, column, inside & (step < length), grad_parts, KIND, HIDDEN, PARTS)
            if not DOT:
                weight_sums = add_products(weight_sums, grad_shares, h, KIND)
                bias_sums = add_parts(bias_sums, grad_parts, KIND)

            factors, h, h_1, c_1 = factors_1, h_1, h_2, c_2
            scale_1, scale_2 = scale_2, scale_3
            gates_1, index_2 = gates_2, index_3

    if not DOT:
        to_weight, to_bias_ih, to_bias_hh = locate(sums, program, chain, num_chains, GATES, HIDDEN)
        store_products(to_weight, weight_sums, KIND, HIDDEN, WIDTH)
        store_biases(to_bias_ih, to_bias_hh, bias_sums, KIND, HIDDEN, WIDTH)
