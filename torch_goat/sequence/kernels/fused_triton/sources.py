"""The gradient of the projected states in Triton: a sum over all places with the same source, without atomics.

The places of each head are sorted by source and cut into chunks of equal size, however many places a source has. A
source that ends in a chunk has its sum over this chunk written; what is left open at the end of a chunk is its carry.
A second kernel adds the carries of the chunks before to each source that spans more than one.
"""

# mypy: allow-untyped-defs

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_places", "num_chunks", "first_head"])
def source_kernel(
    gradients,
    coefficient,
    projected,
    key,
    order,
    grad_projected,
    grad_coefficient,
    carry,
    num_places,
    num_chunks,
    first_head,
    DIRECTIONS: tl.constexpr,
    GATED: tl.constexpr,
    STORED: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Walks ``CHUNKS`` chunks side by side; also gives the gradient of each place's coefficient.

    ``gradients`` is ``[., D, E, STORED]`` of a group of heads, from ``first_head`` on. The first ``GATED`` values of
    both directions are one row of ``projected`` ``[K * S, D * GATED]``, ``WIDTH`` when padded. ``key`` and ``order``,
    ``[K * E]``, are the sorted ``head * S + source`` and where they stood.
    """
    ROW: tl.constexpr = DIRECTIONS * GATED
    DTYPE: tl.constexpr = gradients.dtype.element_ty
    in_group = tl.program_id(1).to(tl.int64)
    head = first_head + in_group
    chunk = tl.program_id(0) * CHUNKS + tl.arange(0, CHUNKS)
    first = chunk * CHUNK
    column = tl.arange(0, WIDTH)[None, :]
    inside = column < ROW
    places = num_places.to(tl.int64)
    gradients += in_group * DIRECTIONS * places * STORED
    across = (column // GATED) * (places * STORED) + column % GATED
    key += head * places
    order += head * places

    total = tl.zeros([CHUNKS, WIDTH], DTYPE)
    source = tl.load(key + first, first < num_places, -1).to(tl.int64)
    place = tl.load(order + first, first < num_places, 0)
    for step in range(CHUNK):
        present = first + step < num_places
        later = first + step + 1 < num_places
        next_source = tl.load(key + first + step + 1, later, -1).to(tl.int64)
        next_place = tl.load(order + first + step + 1, later, 0)

        mask = present[:, None] & inside
        row = tl.load(gradients + (place - head * places)[:, None] * STORED + across, mask, 0.0)
        value = tl.load(projected + source[:, None] * ROW + column, mask, 0.0).to(DTYPE)
        tl.store(grad_coefficient + place, tl.sum(row * value, axis=1), present)
        if coefficient is None:
            total += row
        else:
            total += tl.load(coefficient + place, present, 0.0)[:, None] * row
        closes = (source != next_source)[:, None]
        tl.store(grad_projected + source[:, None] * ROW + column, total, mask & closes)
        total = tl.where(closes, 0.0, total)
        source, place = next_source, next_place
    tl.store(carry + (head * num_chunks + chunk)[:, None] * ROW + column, total, (chunk < num_chunks)[:, None] & inside)


@triton.jit(do_not_specialize=["num_places", "num_chunks"])
def carry_kernel(
    key,
    grad_projected,
    carry,
    num_places,
    num_chunks,
    ROW: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Completes the source that enters a chunk from the one before and ends in it, if there is one."""
    head = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0) + 1
    first = chunk * CHUNK
    key += head * num_places
    carry += head * num_chunks * ROW
    source = tl.load(key + first).to(tl.int64)
    before = tl.load(key + first - 1)
    after = tl.load(key + first + CHUNK, first + CHUNK < num_places, -1)
    if (source == before) & (source != after):
        column = tl.arange(0, WIDTH)
        inside = column < ROW
        pointer = grad_projected + source * ROW + column
        total = tl.load(pointer, inside, 0.0)
        last = chunk - 1
        more = source == before
        while more:
            earlier = last - tl.arange(0, CHUNKS)
            end = tl.load(key + earlier * CHUNK + CHUNK - 1, earlier >= 0, -1)
            same = end == source
            carried = tl.load(carry + earlier[:, None] * ROW + column[None, :], same[:, None] & inside[None, :], 0.0)
            total += tl.sum(carried, axis=0)
            last -= CHUNKS
            more = tl.min(same.to(tl.int32), axis=0) == 1
        tl.store(pointer, total, inside)
