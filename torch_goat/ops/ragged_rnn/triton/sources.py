"""The gradient of states that are read at many places, in Triton: a sum over all places of a source, without atomics.

The places of each head, sorted by source, are cut into chunks of equal size. A chunk writes the sums of the sources
that end in it; the sum of the source that is open at its end is its carry. A second kernel adds the carries of the
chunks before to each source that spans several chunks.
"""

# mypy: allow-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_goat.ops.launches import cdiv, next_power_of_2
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.triton.portions import Portion

# Counts differ between graphs; do not recompile for counts that are 1 or divisible by 16.
_COUNTS = ["num_rows", "num_chunks", "first_head", "key_head", "to_head", "to_row"]


@triton.jit(do_not_specialize=[*_COUNTS, "num_places", "from_head", "from_row"])
def source_kernel(
    key,
    order,
    shift,
    grad_states,
    carry,
    gradients,
    target,
    coefficient,
    states,
    grad_coefficient,
    num_rows,
    num_chunks,
    first_head,
    key_head,
    to_head,
    to_row,
    num_places,
    from_head,
    from_row,
    DIRECTIONS: tl.constexpr,
    GATED: tl.constexpr,
    STORED: tl.constexpr,
    ADD: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Walks ``CHUNKS`` chunks side by side; also computes the gradient of each place's coefficient.

    ``gradients`` has rows of ``STORED`` values for a group of heads, from ``first_head`` on: one for each place and
    direction, or one for each target if ``target`` ``[E]`` has the target of each place. The first ``GATED`` values of
    all directions are one row of ``states``, ``WIDTH`` when padded. ``key`` and ``order``, ``[K, num_rows]``, are the
    sorted sources and their places, and ``shift`` leads from a place to its row. ``*_head`` and ``*_row`` are the
    strides between heads and between rows of a head, in rows, of ``key``, of the gradients (``from``) and of the states
    (``to``). With ``ADD``, sums are added to those that are there.
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
    rows = num_rows.to(tl.int64)
    gradients += in_group * from_head * STORED
    across = (column // GATED) * (rows * STORED) + column % GATED
    states += head * to_head * ROW
    grad_states += head * to_head * ROW
    key += head * key_head
    order += head * rows
    grad_coefficient += head * places

    total = tl.zeros([CHUNKS, WIDTH], DTYPE)
    source = tl.load(key + first, first < num_rows, -1).to(tl.int64)
    place = tl.load(order + first, first < num_rows, 0).to(tl.int64)
    for step in range(CHUNK):
        present = first + step < num_rows
        later = first + step + 1 < num_rows
        next_source = tl.load(key + first + step + 1, later, -1).to(tl.int64)
        next_place = tl.load(order + first + step + 1, later, 0).to(tl.int64)

        mask = present[:, None] & inside
        at = place
        if target is not None:
            at = tl.load(target + place, present, 0).to(tl.int64) * from_row
        if shift is not None:
            at += tl.load(shift + first + step, present, 0)
        row = tl.load(gradients + at[:, None] * STORED + across, mask, 0.0)
        to = (source * to_row)[:, None] * ROW + column
        value = tl.load(states + to, mask, 0.0).to(DTYPE)
        tl.store(grad_coefficient + place, tl.sum(row * value, axis=1), present)
        if coefficient is None:
            total += row
        else:
            total += tl.load(coefficient + head * places + place, present, 0.0)[:, None] * row
        closes = (source != next_source)[:, None]
        if ADD:
            total += tl.load(grad_states + to, mask & closes, 0.0)
        tl.store(grad_states + to, total, mask & closes)
        total = tl.where(closes, 0.0, total)
        source, place = next_source, next_place
    tl.store(carry + (head * num_chunks + chunk)[:, None] * ROW + column, total, (chunk < num_chunks)[:, None] & inside)


@triton.jit(do_not_specialize=_COUNTS)
def carry_kernel(
    key,
    grad_states,
    carry,
    num_rows,
    num_chunks,
    first_head,
    key_head,
    to_head,
    to_row,
    ROW: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Completes the source that starts before a chunk and ends in it, if there is one."""
    head = first_head + tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0) + 1
    first = chunk * CHUNK
    key += head * key_head
    carry += head * num_chunks * ROW
    source = tl.load(key + first).to(tl.int64)
    before = tl.load(key + first - 1)
    after = tl.load(key + first + CHUNK, first + CHUNK < num_rows, -1)
    if (source == before) & (source != after):
        column = tl.arange(0, WIDTH)
        inside = column < ROW
        pointer = grad_states + (head * to_head + source * to_row) * ROW + column
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


class SumBySource:
    """Gradients of states and of their coefficients, of some heads or some segments after the other.

    ``states`` is ``[K, S, D, C]``, or such a view of memory that is ``[S, K, D, C]``; ``weight`` is ``[K, E]``;
    ``sizes`` has the places in a chunk, the chunks side by side, and the warps of a program.
    """

    def __init__(
        self, states: Tensor, places: Places, weight: Tensor | None, dtype: torch.dtype, sizes: tuple[int, int, int]
    ) -> None:
        chunk, chunks, warps = sizes
        self.heads, self.num_sources, self.directions, self.channels = states.shape
        self.row = self.directions * self.channels
        self.states, self.places, self.weight = states, places, weight
        self.grad_states = torch.zeros_like(states, dtype=dtype)  # with the same strides
        self.grad_weight = states.new_empty(places.source.shape, dtype=dtype)
        self.apart = (states.stride(0) // self.row, states.stride(1) // self.row)
        width = next_power_of_2(self.row)
        self.constants = {"WIDTH": width, "CHUNKS": chunks, "CHUNK": chunk, "num_warps": warps}

    def add(
        self,
        gradients: Tensor,
        first_head: int,
        heads: int,
        target: Tensor | None = None,
        portion: Portion | None = None,
        more: bool = False,
    ) -> None:
        """Adds ``heads`` heads from ``first_head`` on, from their gradients by place ``[., D, E, ...]``.

        With the target of each place ``[E]``, from gradients of the targets ``[T, K, C]``; with a portion of the
        segments, from those by row ``[., D, num_rows, ...]``. With ``more``, these heads have had another portion.
        """
        if portion is None or portion.by_source is None:
            (key, order), shift, num_rows = self.places.by_source(self.num_sources), None, self.places.source.size(1)
        else:
            source, token, shift = portion.by_source
            (key, order), num_rows = self.places.by_token(source, token), portion.num_rows
        num_chunks = cdiv(num_rows, self.constants["CHUNK"])
        carry = self.grad_states.new_empty(self.heads, num_chunks, self.row)
        counts = (num_rows, num_chunks, first_head, key.stride(0), *self.apart)
        apart = (gradients.stride(0) // gradients.size(-1), 1) if target is None else (1, self.heads)
        shape = {"DIRECTIONS": self.directions, "GATED": self.channels, "STORED": gradients.size(-1), "ADD": more}
        source_kernel[(cdiv(num_chunks, self.constants["CHUNKS"]), heads)](
            *(key, order, shift, self.grad_states, carry, gradients, target, self.weight, self.states),
            *(self.grad_weight, *counts, self.places.source.size(1), *apart),
            **shape,
            **self.constants,
        )
        if num_chunks > 1:
            carry_kernel[(num_chunks - 1, heads)](key, self.grad_states, carry, *counts, ROW=self.row, **self.constants)

    def finish(self) -> tuple[Tensor, Tensor]:
        """The gradients of the states and of the coefficients."""
        return self.grad_states.to(self.states.dtype), self.grad_weight
