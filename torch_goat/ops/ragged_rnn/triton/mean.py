"""The weighted sum over segments in Triton. Nothing here synchronises with the device.

A program has some segments of similar length side by side and reads ``PLACES`` places of each at a time, the longest
segments first. Every slot keeps its own sum until the segment ends, and slots are added up in a fixed order: the bits
depend on the segment alone. The gradients are those of :class:`SumBySource`.
"""

# mypy: allow-untyped-defs

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_goat.ops.launches import cdiv, next_power_of_2, on_device
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.triton.sources import SumBySource
from torch_goat.ops.segments import Segments


class Sizes(NamedTuple):
    """Tuning parameters."""

    segments: int  # per program
    places: int  # of each segment at a time
    warps: int
    chunk: int = 32  # places in a chunk of the sum by source
    chunks: int = 8  # chunks side by side
    source_warps: int = 1


def sizes(channels: int) -> Sizes:
    width = next_power_of_2(channels)
    places = 32 if width <= 32 else 16
    # One warp, whose steps need no exchange with others, as long as its sums fit into registers.
    chosen = Sizes(segments=max(1, 1024 // (width * places)), places=places, warps=max(1, width // 64))
    return chosen._replace(chunks=max(1, 256 // width), source_warps=max(1, width // 128))


# Segments of a large graph that have programs of their own, so that a hub does not take longer than all the others.
# In a small graph another launch would.
LONGEST, LARGE = 64, 2**17


def split_longest(segments: Segments, size: int) -> list[tuple[int, int, bool]]:
    """The rank by length of the first segment, the programs and whether they have one long segment of each launch.

    The other programs have ``size`` segments.
    """
    longest = min(LONGEST, segments.num_segments) if segments.num_places > LARGE else 0
    others = cdiv(segments.num_segments - longest, size)
    return [launch for launch in ((0, longest, True), (longest, others, False)) if launch[1]]


@triton.jit(do_not_specialize=["first", "num_targets", "num_places", "num_heads"])
def sum_segments_kernel(
    states,
    source,
    coefficient,
    ptr,
    order,
    out,
    first,
    num_targets,
    num_places,
    num_heads,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    SEGMENTS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Reads ``states`` ``[S, K, C]`` and writes ``out`` ``[T, K, C]`` of one head; ``order`` has targets by length."""
    head = tl.program_id(1).to(tl.int64)
    rank = first + tl.program_id(0) * SEGMENTS + tl.arange(0, SEGMENTS)[:, None]  # [SEGMENTS, 1]
    present = rank < num_targets
    target = tl.load(order + rank, present, 0)
    start = tl.load(ptr + target, present, 0)
    length = (tl.load(ptr + target + 1, present, 0) - start).to(tl.int32)
    slot = tl.arange(0, PLACES)[None, :]
    column = tl.arange(0, WIDTH)[None, None, :]
    inside = column < CHANNELS
    source += head * num_places
    coefficient += head * num_places
    states += head * CHANNELS
    start += slot  # [SEGMENTS, PLACES]

    total = tl.zeros([SEGMENTS, PLACES, WIDTH], out.dtype.element_ty)
    index = tl.load(source + start, slot < length, 0)
    scale = tl.load(coefficient + start, slot < length, 0.0)
    for step in range(0, tl.max(length), PLACES):
        later = step + PLACES + slot < length
        next_index = tl.load(source + start + step + PLACES, later, 0)
        next_scale = tl.load(coefficient + start + step + PLACES, later, 0.0)
        mask = (step + slot < length)[:, :, None] & inside
        value = tl.load(states + (index * num_heads)[:, :, None] * CHANNELS + column, mask, 0.0)
        total += scale[:, :, None] * value
        index, scale = next_index, next_scale

    added = tl.sum(total, axis=1)  # [SEGMENTS, WIDTH]
    column = tl.arange(0, WIDTH)[None, :]
    tl.store(out + (target * num_heads + head) * CHANNELS + column, added, present & (column < CHANNELS))


def weighted_sum(z: Tensor, places: Places, weight: Tensor) -> Tensor:
    """:func:`torch_goat.ops.weighted_mean`; states and weights have the same dtype, float32 or float64."""
    _, heads, channels = z.shape
    num_targets = places.segments.num_segments
    out = z.new_empty(num_targets, heads, channels)
    if num_targets:
        chosen, order = sizes(channels), places.segments.by_length
        tensors = (z.contiguous(), places.source.contiguous(), weight.contiguous(), places.ptr, order, out)
        constants = {"CHANNELS": channels, "WIDTH": next_power_of_2(channels), "num_warps": chosen.warps}
        tile = {"SEGMENTS": chosen.segments, "PLACES": chosen.places}
        warps = min(16, 8 * chosen.warps)  # with as many values per thread as the others
        more_places = chosen.segments * chosen.places * warps // chosen.warps
        long = {"SEGMENTS": 1, "PLACES": more_places, "num_warps": warps}
        counts = (num_targets, places.source.size(1), heads)
        with on_device(z):
            for first, programs, is_long in split_longest(places.segments, chosen.segments):
                sum_segments_kernel[(programs, heads)](
                    *tensors, first, *counts, **constants | (long if is_long else tile)
                )
    return out


def weighted_sum_backward(grad: Tensor, z: Tensor, weight: Tensor, places: Places) -> tuple[Tensor, Tensor]:
    """The gradients of ``z`` and ``weight``."""
    if places.source.size(1) == 0:
        return torch.zeros_like(z), torch.zeros_like(weight)
    chosen = sizes(z.size(-1))
    states = z.contiguous().transpose(0, 1).unsqueeze(2)  # [K, S, 1, C]
    with on_device(z):
        by_source = SumBySource(states, places, weight.contiguous(), z.dtype, chosen[-3:])
        by_source.add(grad.contiguous(), 0, states.size(0), places.segments.index_int32)
        grad_states, grad_weight = by_source.finish()
    return grad_states.squeeze(2).transpose(0, 1), grad_weight
