"""The weighted sum over runs in Triton, and how it is launched. Nothing here waits for the device.

A program has some runs of similar length side by side and reads ``PLACES`` places of each at a time, the longest runs
first. Every slot keeps its own sum until the run is over, and slots are added up in a fixed order: the bits depend on
the run alone. The gradients are :class:`SumBySource`'s, from the places by source that the RNN's gradients need too.
"""

# mypy: allow-untyped-defs

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_goat.ops.memory import derived
from torch_goat.ops.ragged_rnn.triton.launch import OVERRIDES, on_device, schedule
from torch_goat.ops.ragged_rnn.triton.sources import SumBySource


class Sizes(NamedTuple):
    """What there is to tune, under these names with "mean_" before them in ``OVERRIDES``."""

    runs: int  # in a program
    places: int  # of each run at a time
    warps: int
    chunk: int = 32  # places in a chunk of the sum by source
    chunks: int = 8  # chunks side by side
    source_warps: int = 1


def sizes(channels: int) -> Sizes:
    width = triton.next_power_of_2(channels)
    places = 32 if width <= 32 else 16
    # One warp, whose steps need no exchange with others, as long as its sums fit into registers.
    chosen = Sizes(runs=max(1, 1024 // (width * places)), places=places, warps=max(1, width // 64))
    chosen = chosen._replace(chunks=max(1, 256 // width), source_warps=max(1, width // 128))
    return chosen._replace(**{name: OVERRIDES[f"mean_{name}"] for name in Sizes._fields if f"mean_{name}" in OVERRIDES})


@triton.jit(do_not_specialize=["num_targets", "num_places", "num_heads"])
def sum_runs_kernel(
    states,
    source,
    coefficient,
    ptr,
    order,
    out,
    num_targets,
    num_places,
    num_heads,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    RUNS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Reads ``states`` ``[S, K, C]`` and writes ``out`` ``[T, K, C]``, for one head; ``order`` is the schedule."""
    head = tl.program_id(1).to(tl.int64)
    rank = tl.program_id(0) * RUNS + tl.arange(0, RUNS)[:, None]  # [RUNS, 1]
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
    start += slot  # [RUNS, PLACES]

    total = tl.zeros([RUNS, PLACES, WIDTH], out.dtype.element_ty)
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

    added = tl.sum(total, axis=1)  # [RUNS, WIDTH]
    column = tl.arange(0, WIDTH)[None, :]
    tl.store(out + (target * num_heads + head) * CHANNELS + column, added, present & (column < CHANNELS))


def forward(z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> Tensor:
    _, heads, channels = z.shape
    num_targets = ptr.numel() - 1
    out = z.new_empty(num_targets, heads, channels)
    if num_targets:
        chosen = sizes(channels)
        with on_device(z):
            sum_runs_kernel[(triton.cdiv(num_targets, chosen.runs), heads)](
                z.contiguous(),
                source.contiguous(),
                weight.contiguous(),
                ptr,
                derived(ptr, "schedule", schedule),
                out,
                num_targets,
                source.size(1),
                heads,
                CHANNELS=channels,
                WIDTH=triton.next_power_of_2(channels),
                RUNS=chosen.runs,
                PLACES=chosen.places,
                num_warps=chosen.warps,
            )
    return out


def backward(grad: Tensor, z: Tensor, source: Tensor, weight: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    num_places = source.size(1)
    if num_places == 0:
        return torch.zeros_like(z), torch.zeros_like(weight)
    chosen = sizes(z.size(-1))
    states = z.contiguous().transpose(0, 1).unsqueeze(2)  # [K, S, 1, C]
    with on_device(z):
        by_source = SumBySource(
            states, source.contiguous(), weight.contiguous(), z.dtype, chosen.chunk, chosen.chunks, chosen.source_warps
        )
        by_source.add_targets(grad.contiguous(), derived(ptr, "targets", _targets, num_places))
        grad_states, grad_weight = by_source.finish()
    return grad_states.squeeze(2).transpose(0, 1), grad_weight


def _targets(ptr: Tensor, num_places: int) -> Tensor:
    """The target of each place ``[E]``."""
    target = torch.arange(ptr.numel() - 1, device=ptr.device, dtype=torch.int32)
    return target.repeat_interleave(ptr.diff(), output_size=num_places)
