"""minGRU and minLSTM in Triton. No segment is a chain of dependent steps.

A step h' = h + z (n - h) is a linear map of the state, and so are several in a row: h' = total + (1 - passed) h, where
``passed`` is the state after reading ones instead of n. The places of a head, in the order in which a direction reads
them, are cut into chunks of equal size, whatever the segments:

1. :func:`reduce_kernel` walks all chunks at once and writes the final states of the segments that end in them. What
   remains open at the end of a chunk is its ``total`` and ``passed``.
2. :func:`complete_kernel` applies these maps, chunk after chunk, to the segments that span several of them.

The backward does the same with the gradient that flows back (:func:`flow_kernel`) and then walks all chunks from their
ends (:func:`gradient_kernel`). It needs no states but those at the ends of segments and chunks: with P, the product of
1 - z over the later steps, and R, the share of the earlier steps in the state at the end, the gradient of the argument
of z is that of the end times z (P n (1 - z) - R). R is a difference, whose rounding would be all that is left once P
has vanished: from there on both are zero.

All sums have a fixed order.
"""

# Triton compiles a branch that returns only if the other one does, too, and does not unpack tuples.
# ruff: noqa: RET505, RUF005
# mypy: allow-untyped-defs, disable-error-code="assignment, var-annotated"

import triton
import triton.language as tl

from torch_goat.ops.ragged_rnn.triton.cells import sigmoid
from torch_goat.ops.ragged_rnn.triton.sums import add_parts, copies

# Counts differ between graphs; do not recompile for counts that are 1 or divisible by 16.
_COUNTS = ["num_places", "num_sources", "num_chunks", "num_chains"]


@triton.jit
def place_of(at, num_places, direction):
    """The place that is read as number ``at``; in direction 1 the last one is read first."""
    return tl.where(direction == 1, num_places - 1 - at, at)


@triton.jit
def load_target(target, at, num_places, direction):
    """The target of what is read as number ``at``, -1 beyond both ends."""
    return tl.load(target + place_of(at, num_places, direction), (at >= 0) & (at < num_places), -1)


@triton.jit
def load_parts(
    projected,
    source,
    coefficient,
    bias,
    at,
    column,
    num_places,
    direction,
    GATES: tl.constexpr,
    HIDDEN: tl.constexpr,
    ROW: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """The preactivations of what is read as number ``at`` ``[CHUNKS, 1]``, ``[CHUNKS, WIDTH]`` per gate."""
    present = at < num_places
    place = place_of(at, num_places, direction)
    index = tl.load(source + place, present, 0).to(tl.int64)
    parts = ()
    for gate in tl.static_range(GATES):
        pointer = projected + index * ROW + gate * HIDDEN + column
        row = tl.load(pointer, present & (column < HIDDEN), 0.0).to(DTYPE)
        if coefficient is not None:
            row = tl.load(coefficient + place, present, 0.0) * row
        parts = parts + (row + bias[gate],)
    return parts


@triton.jit
def load_vector(pointer, column, GATES: tl.constexpr, HIDDEN: tl.constexpr):
    """A bias, ``[1, WIDTH]`` per gate."""
    parts = ()
    for gate in tl.static_range(GATES):
        parts = parts + (tl.load(pointer + gate * HIDDEN + column, column < HIDDEN, 0.0),)
    return parts


@triton.jit
def gates(parts, KIND: tl.constexpr):
    """z and, in a minLSTM, the gates i and f that it is made of."""
    if KIND == "mingru":
        return (sigmoid(parts[0]),)
    else:
        # Where both are small, the ratio depends on the difference alone: so shifted, they do not underflow.
        shift = tl.maximum(-40.0 - tl.maximum(parts[0], parts[1]), 0.0)
        i = sigmoid(parts[0] + shift)
        f = sigmoid(parts[1] + shift)
        return i / (i + f), i, f


@triton.jit
def gradients_of(gate, through, grad_new, KIND: tl.constexpr):
    """The gradients of the preactivations, from those of the argument of z and of n."""
    if KIND == "mingru":
        return through, grad_new
    else:
        return through * (1.0 - gate[1]), through * (gate[2] - 1.0), grad_new


@triton.jit(do_not_specialize=_COUNTS)
def reduce_kernel(
    projected,
    source,
    coefficient,
    target,
    bias,
    out,
    final,
    carry,
    num_places,
    num_sources,
    num_chunks,
    num_chains,
    KIND: tl.constexpr,
    GATES: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Walks ``CHUNKS`` chunks side by side, ``WIDTH`` units of one head and direction.

    ``out`` and ``final``, the same in the dtype of the arithmetic, are ``[T, K, D, H]``. ``carry``
    ``[3, K, D, chunks, H]`` has ``total`` and ``passed`` at the end of a chunk, and ``passed`` at the end of the
    segment that was open at its start.
    """
    DTYPE: tl.constexpr = bias.dtype.element_ty
    ROW: tl.constexpr = DIRECTIONS * GATES * HIDDEN
    chain = tl.program_id(1).to(tl.int64)  # a head and a direction
    head = chain // DIRECTIONS
    direction = chain % DIRECTIONS
    column = (tl.program_id(2) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = column < HIDDEN
    chunk = (tl.program_id(0) * CHUNKS + tl.arange(0, CHUNKS))[:, None]
    first = chunk * CHUNK

    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    bias_parts = load_vector(bias + chain * GATES * HIDDEN, column, GATES, HIDDEN)
    at_chunk = (chain * num_chunks + chunk) * HIDDEN + column
    size = num_chains.to(tl.int64) * num_chunks * HIDDEN

    total = tl.zeros([CHUNKS, WIDTH], DTYPE)
    passed = tl.zeros([CHUNKS, WIDTH], DTYPE)
    here = load_target(target, first, num_places, direction)
    since_before = load_target(target, first - 1, num_places, direction) == here
    for start in range(0, CHUNK, AHEAD):
        rows = ()
        targets = (here,)
        for ahead in tl.static_range(AHEAD):
            at = first + start + ahead
            rows = rows + load_parts(
                projected, source, coefficient, bias_parts, at, column, num_places, direction, GATES, HIDDEN, ROW, DTYPE
            )
            targets = targets + (load_target(target, at + 1, num_places, direction),)
        for ahead in tl.static_range(AHEAD):
            present = first + start + ahead < num_places
            parts = ()
            for gate in tl.static_range(GATES):
                parts = parts + (rows[ahead * GATES + gate],)
            z = tl.where(present, gates(parts, KIND)[0], 0.0)
            total += z * (parts[GATES - 1] - total)
            passed += z * (1.0 - passed)
            closes = present & (targets[ahead] != targets[ahead + 1])
            at_target = (targets[ahead].to(tl.int64) * num_chains + chain) * HIDDEN + column
            tl.store(out + at_target, total.to(out.dtype.element_ty), closes & inside)
            tl.store(final + at_target, total, closes & inside)
            tl.store(carry + 2 * size + at_chunk, passed, closes & since_before & inside)
            since_before = since_before & (targets[ahead] == targets[ahead + 1])
            total = tl.where(closes, 0.0, total)
            passed = tl.where(closes, 0.0, passed)
        here = targets[AHEAD]
    exists = chunk < num_chunks
    tl.store(carry + at_chunk, total, exists & inside)
    tl.store(carry + size + at_chunk, passed, exists & inside)


@triton.jit
def segment_across(target, ptr, chunk, num_places, direction, CHUNK: tl.constexpr):
    """The target whose segment starts before a chunk and ends in it, or -1, and the chunk in which it starts."""
    first = chunk * CHUNK
    here = load_target(target, first, num_places, direction)
    before = load_target(target, first - 1, num_places, direction)
    after = load_target(target, first + CHUNK, num_places, direction)
    start = tl.load(ptr + here)
    end = tl.load(ptr + here + 1)
    start = tl.where(direction == 1, num_places - end, start)
    return tl.where((here == before) & (here != after), here, -1).to(tl.int64), (start // CHUNK).to(tl.int32)


@triton.jit(do_not_specialize=["num_places", "num_chunks", "num_chains"])
def complete_kernel(
    target,
    ptr,
    out,
    final,
    carry,
    num_places,
    num_chunks,
    num_chains,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Completes the segment that spans several chunks and ends in this one; ``total`` becomes the state there."""
    chain = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0) + 1
    column = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    inside = column < HIDDEN
    here, opened = segment_across(target, ptr, chunk, num_places, chain % DIRECTIONS, CHUNK)
    size = num_chains.to(tl.int64) * num_chunks * HIDDEN
    carries = carry + chain * num_chunks * HIDDEN + column
    if here >= 0:
        h = tl.load(carries + opened * HIDDEN, inside, 0.0)
        for start in range(opened + 1, chunk, AHEAD):
            totals = ()
            passed = ()
            for ahead in tl.static_range(AHEAD):
                mask = column < tl.where(chunk > start + ahead, HIDDEN, 0)
                totals = totals + (tl.load(carries + (start + ahead) * HIDDEN, mask, 0.0),)
                passed = passed + (tl.load(carries + size + (start + ahead) * HIDDEN, mask, 0.0),)
            for ahead in tl.static_range(AHEAD):
                h = totals[ahead] + (h - passed[ahead] * h)
                tl.store(carries + (start + ahead) * HIDDEN, h, column < tl.where(chunk > start + ahead, HIDDEN, 0))
        at_target = (here * num_chains + chain) * HIDDEN + column
        last = tl.load(carries + 2 * size + chunk * HIDDEN, inside, 0.0)
        h = tl.load(final + at_target, inside, 0.0) + (h - last * h)
        tl.store(final + at_target, h, inside)
        tl.store(out + at_target, h.to(out.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["num_places", "num_chunks", "num_chains"])
def flow_kernel(
    grad,
    target,
    ptr,
    carry,
    flow,
    num_places,
    num_chunks,
    num_chains,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """The gradient ``flow`` ``[K, D, chunks, H]`` of the state after each chunk that a segment goes beyond."""
    chain = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0) + 1
    column = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    inside = column < HIDDEN
    here, opened = segment_across(target, ptr, chunk, num_places, chain % DIRECTIONS, CHUNK)
    size = num_chains.to(tl.int64) * num_chunks * HIDDEN
    of_chain = chain * num_chunks * HIDDEN + column
    maps = carry + size + of_chain  # passed
    flows = flow + of_chain
    if here >= 0:
        g = tl.load(grad + (here * num_chains + chain) * HIDDEN + column, inside, 0.0).to(flow.dtype.element_ty)
        g -= g * tl.load(maps + size + chunk * HIDDEN, inside, 0.0)
        for start in range(0, chunk - opened, AHEAD):
            passed = ()
            for ahead in tl.static_range(AHEAD):
                earlier = chunk - 1 - start - ahead
                mask = column < tl.where(earlier >= opened, HIDDEN, 0)
                passed = passed + (tl.load(maps + earlier * HIDDEN, mask, 0.0),)
            for ahead in tl.static_range(AHEAD):
                earlier = chunk - 1 - start - ahead
                tl.store(flows + earlier * HIDDEN, g, column < tl.where(earlier >= opened, HIDDEN, 0))
                g -= g * passed[ahead]


@triton.jit(do_not_specialize=[*_COUNTS, "first_chain"])
def gradient_kernel(
    grad,
    projected,
    source,
    coefficient,
    target,
    bias,
    final,
    carry,
    flow,
    gradients,
    sums,
    num_places,
    num_sources,
    num_chunks,
    num_chains,
    first_chain,
    KIND: tl.constexpr,
    GATES: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Walks chunks from their ends; ``gradients`` of the preactivations are ``[chains of this launch, E, G * H]``.

    ``sums`` ``[programs, K, D, G * H]`` has those of the bias, of the chunks of each program.
    """
    DTYPE: tl.constexpr = bias.dtype.element_ty
    ROW: tl.constexpr = DIRECTIONS * GATES * HIDDEN
    LEAST: tl.constexpr = 5.9604644775390625e-08 if tl.float32 == DTYPE else 1.1102230246251565e-16
    in_group = tl.program_id(1).to(tl.int64)
    chain = first_chain + in_group
    head = chain // DIRECTIONS
    direction = chain % DIRECTIONS
    column = (tl.program_id(2) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = column < HIDDEN
    chunk = (tl.program_id(0) * CHUNKS + tl.arange(0, CHUNKS))[:, None]
    last = chunk * CHUNK + CHUNK - 1

    projected += head * num_sources * ROW + direction * GATES * HIDDEN
    source += head * num_places
    if coefficient is not None:
        coefficient += head * num_places
    gradients += in_group * num_places * GATES * HIDDEN + column
    bias_parts = load_vector(bias + chain * GATES * HIDDEN, column, GATES, HIDDEN)
    at_chunk = (chain * num_chunks + chunk) * HIDDEN + column

    after = load_target(target, last + 1, num_places, direction)
    goes_on = (after >= 0) & (load_target(target, last, num_places, direction) == after)
    g = tl.load(flow + at_chunk, goes_on & inside, 0.0)
    left = tl.load(carry + at_chunk, goes_on & inside, 0.0)  # R
    keep = tl.full([CHUNKS, WIDTH], 1.0, DTYPE)  # P
    bias_sums = copies(tl.zeros([CHUNKS, WIDTH], DTYPE), GATES)
    for start in range(0, CHUNK, AHEAD):
        rows = ()
        closing = ()
        flows = ()
        finals = ()
        for ahead in tl.static_range(AHEAD):
            at = last - start - ahead
            rows = rows + load_parts(
                projected, source, coefficient, bias_parts, at, column, num_places, direction, GATES, HIDDEN, ROW, DTYPE
            )
            here = load_target(target, at, num_places, direction)
            closes = (at < num_places) & (here != after)
            at_target = (here.to(tl.int64) * num_chains + chain) * HIDDEN + column
            closing = closing + (closes,)
            flows = flows + (tl.load(grad + at_target, closes & inside, 0.0).to(DTYPE),)
            finals = finals + (tl.load(final + at_target, closes & inside, 0.0),)
            after = here
        for ahead in tl.static_range(AHEAD):
            at = last - start - ahead
            present = at < num_places
            g = tl.where(closing[ahead], flows[ahead], g)
            left = tl.where(closing[ahead], finals[ahead], left)
            keep = tl.where(closing[ahead], 1.0, keep)
            parts = ()
            for gate in tl.static_range(GATES):
                parts = parts + (rows[ahead * GATES + gate],)
            gate_values = gates(parts, KIND)
            z = tl.where(present, gate_values[0], 0.0)
            new = parts[GATES - 1]
            weight = keep * z
            left -= weight * new
            keep -= weight
            left = tl.where(keep < LEAST, 0.0, left)
            keep = tl.where(keep < LEAST, 0.0, keep)
            grads = gradients_of(gate_values, g * z * (keep * new - left), g * weight, KIND)
            bias_sums = add_parts(bias_sums, grads, GATES)
            row = gradients + place_of(at, num_places, direction).to(tl.int64) * (GATES * HIDDEN)
            for gate in tl.static_range(GATES):
                tl.store(row + gate * HIDDEN, grads[gate], present & inside)
    to_sums = sums + (tl.program_id(0).to(tl.int64) * num_chains + chain) * GATES * HIDDEN
    units = tl.program_id(2) * WIDTH
    for gate in tl.static_range(GATES):
        added = tl.sum(bias_sums[gate], axis=0)
        unit = units + tl.arange(0, WIDTH)
        tl.store(to_sums + gate * HIDDEN + unit, added, unit < HIDDEN)
