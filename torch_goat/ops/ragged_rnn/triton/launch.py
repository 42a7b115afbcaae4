"""The launches of the Triton kernels: shapes, order and sizes. Nothing here synchronises with the device."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.launches import cdiv, next_power_of_2, on_device
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs
from torch_goat.ops.ragged_rnn.triton import wide_launch
from torch_goat.ops.ragged_rnn.triton.portions import Portion
from torch_goat.ops.ragged_rnn.triton.portions import portions as portions_of
from torch_goat.ops.ragged_rnn.triton.recurrence import backward_kernel, forward_kernel
from torch_goat.ops.ragged_rnn.triton.sources import SumBySource
from torch_goat.ops.ragged_rnn.triton.sums import sum_kernel


class Sizes(NamedTuple):
    """Tuning parameters; they change results by rounding only."""

    segments: int  # per block
    single: int  # programs per head and direction with one block each; as many others share the remaining blocks
    chunk: int = 32  # places in a chunk of the sum by source
    chunks: int = 8  # chunks side by side
    source_warps: int = 1


_NARROW = 16  # the widest cell per direction that one warp has in its registers


def sizes(hidden: int, chains: int, num_targets: int, backward: bool) -> Sizes:
    """The sizes for a hidden width per direction, tuned on an H200.

    A block has one value per thread: with more, Triton would convert layouts within a step.
    """
    width = padded(hidden)
    chosen = Sizes(segments=max(1, 32 // width), single=512)
    chosen = chosen._replace(chunks=max(1, 64 // width), source_warps=max(1, width // 16))
    if backward and hidden <= _NARROW:
        # Each program writes a partial sum: more programs only as far as they fill the device and have enough work.
        blocks = cdiv(num_targets, chosen.segments)
        chosen = chosen._replace(single=max(64, min(1024 // chains, blocks // 32)))
    return chosen


def padded(hidden: int) -> int:
    """The hidden width of a block: a power of two."""
    return max(4, next_power_of_2(hidden))


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    """The targets by length ``[T]``, and the states before each step by place ``[1 or 2, K, D, E, H]``."""
    return [inputs.places.ptr.new_empty(inputs.places.ptr.numel() - 1), _states_like(kind, inputs)]


def _states_like(kind: str, inputs: Inputs) -> Tensor:
    heads, _, directions, _ = inputs.projected.shape
    num_places, hidden = inputs.places.source.size(1), inputs.weight_hh.size(-1)
    return inputs.weight_hh.new_empty(2 if kind == "lstm" else 1, heads, directions, num_places, hidden)


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    inputs = _contiguous(inputs)
    order, num_targets = inputs.places.segments.by_length, inputs.places.segments.num_segments
    states = _states_like(kind, inputs) if save else None
    with on_device(inputs.projected):
        if inputs.weight_hh.size(-1) > _NARROW and num_targets:
            out = wide_launch.forward(kind, inputs, states)
        else:
            out = _forward(kind, inputs, states)
    return out, [] if states is None else [order, states]


def _forward(kind: str, inputs: Inputs, states: Tensor | None) -> Tensor:
    heads, _, directions, _ = inputs.projected.shape
    order, hidden = inputs.places.segments.by_length, inputs.weight_hh.size(-1)
    out = inputs.projected.new_empty(order.numel(), heads, directions * hidden)
    if order.numel():
        programs, counts, constants = _recurrence(kind, inputs, order, backward=False)
        tensors = (*_tensors(inputs, order), out, out if states is None else states)
        forward_kernel[(programs * heads * directions,)](*tensors, *counts, **constants, SAVE=states is not None)
    return out


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    inputs, (order, states) = _contiguous(inputs), saved
    inputs.places.segments.memo.put("by_length", order)  # the segments of a compiled call are new
    num_places, hidden = inputs.places.source.size(1), inputs.weight_hh.size(-1)
    if num_places == 0:
        zeros, grad_weight = torch.zeros_like, inputs.weight_hh.new_zeros(inputs.places.source.shape)
        recurrent = (inputs.weight_hh, inputs.bias_ih, inputs.bias_hh)
        return Gradients(zeros(inputs.projected), grad_weight, *map(zeros, recurrent))
    of_a_place = inputs.projected[:, 0].numel() * inputs.weight_hh.element_size()
    wide = hidden > _NARROW
    portions = portions_of(inputs.places, of_a_place * num_places, wide)
    source_sizes = sizes(hidden, 1, num_places, backward=True)[-3:]
    with on_device(inputs.projected):
        if wide:
            with torch.autocast(inputs.projected.device.type, enabled=False):
                return wide_launch.backward(kind, grad, inputs, states, portions, source_sizes)
        return _backward(kind, grad, inputs, states, portions, source_sizes)


def _backward(
    kind: str, grad: Tensor, inputs: Inputs, states: Tensor, portions: list[Portion], source_sizes: tuple[int, int, int]
) -> Gradients:
    heads, _, directions, width = inputs.projected.shape
    weight_hh, bias_hh = inputs.weight_hh, inputs.bias_hh
    launches = [_recurrence(kind, inputs, portion.order, backward=True) for portion in portions]
    by_source = SumBySource(inputs.projected, inputs.places, inputs.weight, weight_hh.dtype, source_sizes)
    sums = weight_hh.new_empty(sum(programs for programs, *_ in launches), bias_hh.numel() * (weight_hh.size(-1) + 2))
    first = 0
    for portion, (programs, counts, constants) in zip(portions, launches, strict=True):
        gradients = weight_hh.new_empty(heads, directions, portion.num_rows, width)
        backward_kernel[(programs * heads * directions,)](
            *(grad, *_tensors(inputs, portion.order), portion.row, states, gradients, sums[first:]),
            *(*counts, portion.num_rows),
            **constants,
        )
        by_source.add(gradients, 0, heads, portion=portion, more=first > 0)
        del gradients  # before those of the next portion
        first += programs
    return Gradients(*by_source.finish(), *_add_up(sums, weight_hh, inputs.bias_ih, bias_hh))


def _contiguous(inputs: Inputs) -> Inputs:
    tensors = {name: value.contiguous() for name, value in inputs._asdict().items() if isinstance(value, Tensor)}
    places = inputs.places
    if not (places.source.is_contiguous() and places.ptr.is_contiguous()):
        places = Places.from_ptr(places.source.contiguous(), places.ptr.contiguous())
    return inputs._replace(places=places, **tensors)


def _tensors(inputs: Inputs, order: Tensor) -> tuple[Tensor | None, ...]:
    """The inputs that both kernels of the recurrence read; ``order`` has segments by length."""
    coefficients = (inputs.places.source, inputs.weight, inputs.places.ptr, order)
    return inputs.projected, *coefficients, inputs.weight_hh, inputs.bias_ih, inputs.bias_hh


def _recurrence(
    kind: str, inputs: Inputs, order: Tensor, backward: bool
) -> tuple[int, tuple[int, ...], dict[str, Any]]:
    """The programs per head and direction, and the counts and constants of both kernels of the recurrence."""
    heads, num_sources, directions, _ = inputs.projected.shape
    hidden, num_targets, chains = inputs.weight_hh.size(-1), order.numel(), heads * directions
    chosen = sizes(hidden, chains, num_targets, backward)
    blocks = cdiv(num_targets, chosen.segments)
    counts = (num_targets, inputs.places.source.size(1), num_sources, chains, blocks, chosen.single)
    constants = {
        "KIND": kind,
        "GATES": GATES[kind],
        "DIRECTIONS": directions,
        "HIDDEN": hidden,
        "WIDTH": padded(hidden),
        "SEGMENTS": chosen.segments,
        "num_warps": 1,
    }
    return min(blocks, 2 * chosen.single), counts, constants


def _add_up(sums: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the recurrent weights from their partial sums."""
    grads = torch.empty_like(weight_hh), torch.empty_like(bias_ih), torch.empty_like(bias_hh)
    pieces, size = sums.shape
    shared = {"HIDDEN": weight_hh.size(-1), "PIECES": 32, "COLUMNS": 32, "num_warps": 4}
    sum_kernel[(cdiv(size, 32),)](sums, *grads, pieces, bias_hh.numel(), **shared)
    return grads
