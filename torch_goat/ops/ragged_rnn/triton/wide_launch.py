"""The launches of the kernels for wide cells. Nothing here synchronises with the device."""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.launches import cdiv, next_power_of_2
from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs
from torch_goat.ops.ragged_rnn.triton.portions import Portion
from torch_goat.ops.ragged_rnn.triton.products import matrix_kernel, precision, sum_of_outer_products
from torch_goat.ops.ragged_rnn.triton.sources import SumBySource
from torch_goat.ops.ragged_rnn.triton.wide import wide_backward_kernel, wide_forward_kernel
from torch_goat.ops.segments import Segments


class WideSizes(NamedTuple):
    """Tuning parameters; they change results by rounding only."""

    units: int  # of a program; all others are those of programs in the same group
    slices: int  # programs in a group
    rows: int  # of the matrix in a chunk
    segments: int = 16  # per block; the least that `tl.dot` takes
    warps: int = 8
    waves: int = 1  # groups of one program per multiprocessor


class Device(NamedTuple):
    """What a device has for the programs of a launch."""

    multiprocessors: int = 64
    weights: int = 2**14  # that one program keeps in shared memory, as two numbers each


@functools.cache
def device_of(device: torch.device) -> Device:
    if device.type != "cuda":
        return Device()
    properties = torch.cuda.get_device_properties(device)
    memory = getattr(properties, "shared_memory_per_block_optin", 2**16)
    # Weights take eight bytes each, and a quarter more is for everything else.
    return Device(properties.multi_processor_count, 2 ** int(math.log2(memory / 10)))


def sizes(kind: str, hidden: int, device: Device) -> WideSizes:
    """The sizes for a hidden width per direction, tuned on an H200."""
    width = next_power_of_2(hidden)
    units = min(width, device.weights // (_parts(kind) * width))
    if units == width:
        return WideSizes(units, 1, width, warps=4, waves=4) if width <= 32 else WideSizes(units, 1, width)
    return WideSizes(units, cdiv(hidden, units), rows=64)


def max_hidden(device: Device) -> int:
    """The widest cell per direction whose programs can all run at the same time."""
    widths = (width for width in (32, 64, 128, 256, 512) if 4 * width <= device.weights)
    return max(width for width in widths if sizes("lstm", width, device).slices <= device.multiprocessors)


def forward(kind: str, inputs: Inputs, states: Tensor | None) -> Tensor:
    """The final states; those before each step are written to ``states``."""
    projected, order = inputs.projected, inputs.places.segments.by_length
    heads, _, directions, _ = projected.shape
    hidden = inputs.weight_hh.size(-1)
    chosen = sizes(kind, hidden, device_of(projected.device))
    out = projected.new_empty(order.numel(), heads, directions * hidden)
    high, low = _matrices(inputs.weight_hh, kind, chosen)
    for first, chains, groups, bounds in _launches(inputs, chosen, range(heads * directions), order):
        exchange, counters = _meeting_place(high, chains * groups, chosen, chosen.segments)
        wide_forward_kernel[(chains * groups * chosen.slices,)](
            *(projected, inputs.places.source, inputs.weight, inputs.places.ptr),
            *(order, bounds, high, low, inputs.bias_ih, inputs.bias_hh),
            *(out, out if states is None else states, exchange, counters),
            *_counts(inputs, order, first, groups),
            **_constants(kind, inputs, chosen),
            ROWS=chosen.rows,
            CHUNKS=cdiv(hidden, chosen.rows),
            SAVE=states is not None,
        )
    return out


def backward(
    kind: str, grad: Tensor, inputs: Inputs, states: Tensor, portions: list[Portion], source_sizes: tuple[int, int, int]
) -> Gradients:
    """The gradients, one portion of the segments and one group of heads after the other."""
    projected, weight_hh = inputs.projected, inputs.weight_hh
    heads, _, directions, _ = projected.shape
    hidden, chains, num_places = weight_hh.size(-1), heads * directions, inputs.places.source.size(1)
    chosen, gates = sizes(kind, hidden, device_of(projected.device)), GATES[kind]
    stored = 4 if kind == "gru" else gates  # the fourth is the recurrent share of the new gate
    split = (gates - 1) * hidden if stored > gates else None  # a GRU's matrix is that of the recurrent share
    by_source = SumBySource(projected, inputs.places, inputs.weight, weight_hh.dtype, source_sizes)
    high, low = _matrices(weight_hh, kind, chosen, back=True)
    grads_hh, bias_sums = [], []
    for number, portion in enumerate(portions):
        before = states[0].view(chains, num_places, hidden)
        before = before if portion.place is None else before.index_select(1, portion.place)
        gradients = weight_hh.new_empty(heads, directions, portion.num_rows, stored * hidden)
        by_row = gradients.view(chains, portion.num_rows, -1)
        shares = by_row[..., : gates * hidden]
        torch.bmm(before, weight_hh.view(chains, -1, hidden).transpose(1, 2), out=shares)
        of_chains = []
        for first, together, groups, bounds in _launches(inputs, chosen, range(chains), portion.order):
            exchange, counters = _meeting_place(high, together * groups, chosen, chosen.slices * chosen.segments)
            sums = weight_hh.new_empty(groups, chains, stored, hidden)
            wide_backward_kernel[(together * groups * chosen.slices,)](
                *(grad, projected, inputs.places.source, inputs.weight, inputs.places.ptr),
                *(portion.order, portion.row, bounds, high, low),
                *(inputs.bias_ih, inputs.bias_hh, states, gradients, sums, exchange, counters),
                *(*_counts(inputs, portion.order, first, groups), portion.num_rows),
                **_constants(kind, inputs, chosen),
                SIDE_BY_SIDE=min(16, next_power_of_2(chosen.slices)),
                STORED=stored,
                WIDTH=next_power_of_2(hidden),
                TOGETHER=_together(chosen),
            )
            of_chains.append(sums[:, first : first + together].sum(dim=0))
        bias_sums.append(torch.cat(of_chains))  # [K * D, parts, H]
        grads_hh.append(sum_of_outer_products(by_row, before, split))
        by_source.add(gradients, 0, heads, portion=portion, more=number > 0)
        del before, gradients, by_row, shares  # before those of the next portion

    grad_hh, parts = functools.reduce(torch.add, grads_hh), functools.reduce(torch.add, bias_sums)
    grad_bias_ih = parts[:, :gates].reshape_as(inputs.bias_ih)
    grad_bias_hh = torch.cat([parts[:, : gates - 1], parts[:, -1:]], dim=1).view_as(inputs.bias_hh)
    return Gradients(*by_source.finish(), grad_hh.view_as(weight_hh), grad_bias_ih, grad_bias_hh)


def _parts(kind: str) -> int:
    """The columns of the matrix per unit; the fourth of a GRU is zero."""
    return 1 if kind == "rnn" else 4


def _together(chosen: WideSizes) -> bool:
    """Whether the backward multiplies all gates at once, since `tl.dot` does not take the units of one."""
    return chosen.units < 16


def _matrices(weight_hh: Tensor, kind: str, chosen: WideSizes, back: bool = False) -> tuple[Tensor, Tensor]:
    """The recurrent matrices as the kernels read them: rounded, and what rounding leaves, if that takes part."""
    heads, directions, _, hidden = weight_hh.shape
    width = next_power_of_2(hidden) if back else cdiv(hidden, chosen.rows) * chosen.rows
    by_gate = back and not _together(chosen)
    columns = chosen.units * (GATES[kind] if by_gate else _parts(kind))
    high = weight_hh.new_empty(heads * directions, chosen.slices, columns, width)
    low = torch.empty_like(high) if precision(high.dtype) == "tf32x3" else high
    matrix_kernel[(cdiv(high.numel(), 1024),)](
        *(weight_hh, high, low, high.numel()),
        GATES=GATES[kind],
        HIDDEN=hidden,
        UNITS=chosen.units,
        SLICES=chosen.slices,
        PARTS=_parts(kind),
        WIDTH=width,
        BACK=back,
        BY_GATE=by_gate,
        PRECISION=precision(high.dtype),
        BLOCK=1024,
    )
    return high, low


def _launches(inputs: Inputs, chosen: WideSizes, chains: range, order: Tensor) -> list[tuple[int, int, int, Tensor]]:
    """First chain, number of chains, groups per chain, and the bounds of the groups' blocks of each launch.

    ``order`` has the segments to walk over, longest first.
    """
    segments = inputs.places.segments
    available = device_of(inputs.projected.device).multiprocessors
    blocks = cdiv(order.numel(), chosen.segments)
    side_by_side = len(chains) if chosen.slices == 1 else min(len(chains), available // chosen.slices)
    found = []
    for first in chains[::side_by_side]:
        number = min(side_by_side, chains.stop - first)
        groups = available // (number * chosen.slices)
        if chosen.slices == 1:
            groups = cdiv(chosen.waves * available, number)
        groups = max(1, min(groups, blocks))
        found.append((first, number, groups, _bounds(segments, order, chosen.segments, groups)))
    return found


def _bounds(segments: Segments, order: Tensor, size: int, groups: int) -> Tensor:
    """The first block of each group, and the end ``[groups + 1]``: consecutive blocks of about as many steps each."""

    def compute() -> Tensor:
        steps = segments.ptr.diff()[order[::size]] + 2.0  # of each block, and some time to start it
        ends = steps.cumsum(0)
        shares = torch.arange(1, groups, device=ends.device) * (ends[-1] / groups)
        inner = torch.searchsorted(ends - steps / 2, shares, out_int32=True)
        return torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), ends.numel())])

    return segments.memo.compute(("bounds", order.storage_offset(), order.numel(), size, groups), compute)


def _meeting_place(like: Tensor, groups: int, chosen: WideSizes, rows: int) -> tuple[Tensor, Tensor]:
    """What programs of a group exchange, twice since the next step writes while this is read; and their counters."""
    if chosen.slices == 1:
        return like, like
    exchange = like.new_empty(groups, 2, rows, chosen.slices * chosen.units)
    return exchange, torch.zeros(groups, 32, dtype=torch.int32, device=like.device)


def _counts(inputs: Inputs, order: Tensor, first_chain: int, groups: int) -> tuple[int, ...]:
    heads, num_sources, directions, _ = inputs.projected.shape
    num_places = inputs.places.source.size(1)
    return order.numel(), num_places, num_sources, heads * directions, first_chain, groups


def _constants(kind: str, inputs: Inputs, chosen: WideSizes) -> dict[str, Any]:
    constants = {
        "KIND": kind,
        "GATES": GATES[kind],
        "DIRECTIONS": inputs.projected.size(2),
        "HIDDEN": inputs.weight_hh.size(-1),
        "UNITS": chosen.units,
        "SLICES": chosen.slices,
        "PARTS": _parts(kind),
        "SEGMENTS": chosen.segments,
        "PRECISION": precision(inputs.weight_hh.dtype),
        "num_warps": chosen.warps,
        "num_stages": 1,  # a load must not be moved before the barrier that it waits for
    }
    return constants | ({"launch_cooperative_grid": True} if chosen.slices > 1 else {})
