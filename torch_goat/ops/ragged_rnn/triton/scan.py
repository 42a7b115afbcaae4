"""The launches of minGRU and minLSTM in Triton. Nothing here synchronises with the device."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.launches import cdiv, next_power_of_2, on_device
from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs
from torch_goat.ops.ragged_rnn.triton.scan_kernels import complete_kernel, flow_kernel, gradient_kernel, reduce_kernel
from torch_goat.ops.ragged_rnn.triton.sources import SumBySource


class Sizes(NamedTuple):
    """Tuning parameters; they change results by rounding only."""

    width: int  # units of a program
    chunks: int  # side by side
    warps: int
    groups: int  # of heads that the backward processes one after the other, with a buffer for one group
    source_chunks: int  # of the sum by source
    source_warps: int
    chunk: int = 32  # places
    ahead: int = 4  # places whose rows are loaded together
    carries: int = 16  # chunks whose maps are loaded together


def sizes(hidden: int, row: int, heads: int, num_places: int) -> Sizes:
    width = min(128, max(4, next_power_of_2(hidden)))
    row_width = next_power_of_2(row)
    return Sizes(
        width=width,
        chunks=128 // width,
        warps=1,
        groups=1 if num_places < 100_000 else min(heads, 4),
        source_chunks=max(1, 256 // row_width),
        source_warps=min(32, max(1, row_width // 256)),
    )


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    """The final states ``[T, K, D, H]`` in the dtype of the arithmetic, and the ``carry`` of :func:`reduce_kernel`."""
    heads, _, directions, width = inputs.projected.shape
    num_chunks = cdiv(inputs.places.source.size(1), Sizes._field_defaults["chunk"])
    hidden = width // GATES[kind]
    final = inputs.bias_ih.new_empty(inputs.places.ptr.size(0) - 1, heads, directions, hidden)
    return [final, inputs.bias_ih.new_empty(3, heads, directions, num_chunks, hidden)]


class _Launch:
    """What the launches of one call share."""

    def __init__(self, kind: str, inputs: Inputs) -> None:
        heads, num_sources, directions, row = inputs.projected.shape
        self.hidden, self.num_places = row // GATES[kind], inputs.places.source.size(1)
        self.chosen = sizes(self.hidden, directions * row, heads, self.num_places)
        self.num_chunks = cdiv(self.num_places, self.chosen.chunk)
        self.chains = heads * directions
        self.blocks = cdiv(self.hidden, self.chosen.width)
        self.programs = cdiv(self.num_chunks, self.chosen.chunks)
        self.counts = (self.num_places, num_sources, self.num_chunks, self.chains)
        self.carry_counts = (self.num_places, self.num_chunks, self.chains)
        widths = {"DIRECTIONS": directions, "HIDDEN": self.hidden, "CHUNK": self.chosen.chunk}
        self.walk: dict[str, Any] = {
            **widths,
            "KIND": kind,
            "GATES": GATES[kind],
            "WIDTH": self.chosen.width,
            "CHUNKS": self.chosen.chunks,
            "AHEAD": self.chosen.ahead,
            "num_warps": self.chosen.warps,
        }
        self.across: dict[str, Any] = {**widths, "WIDTH": 32, "AHEAD": self.chosen.carries, "num_warps": 1}
        self.across_grid = (self.num_chunks - 1, self.chains, cdiv(self.hidden, 32))
        self.projected, self.bias = inputs.projected.contiguous(), inputs.bias_ih.contiguous()
        weight = None if inputs.weight is None else inputs.weight.contiguous()
        self.target = inputs.places.segments.index_int32
        self.ptr = inputs.places.ptr.contiguous()
        self.inputs = (self.projected, inputs.places.source.contiguous(), weight, self.target, self.bias)
        self.weight = weight


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    projected, launch = inputs.projected, _Launch(kind, inputs)
    num_targets, (heads, _, directions, _) = inputs.places.ptr.numel() - 1, projected.shape
    out = projected.new_zeros(num_targets, heads, directions * launch.hidden)
    final = out
    if save or out.dtype != launch.bias.dtype:
        final = launch.bias.new_empty(num_targets, heads, directions, launch.hidden)
    carry = launch.bias.new_empty(3, heads, directions, launch.num_chunks, launch.hidden)
    if launch.num_places:
        with on_device(projected):
            reduce_kernel[(launch.programs, launch.chains, launch.blocks)](
                *launch.inputs, out, final, carry, *launch.counts, **launch.walk
            )
            if launch.num_chunks > 1:
                complete_kernel[launch.across_grid](
                    launch.target, launch.ptr, out, final, carry, *launch.carry_counts, **launch.across
                )
    return out, [final, carry] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    launch = _Launch(kind, inputs)
    bias, chosen = launch.bias, launch.chosen
    no_recurrent = torch.zeros_like(inputs.weight_hh), torch.zeros_like(inputs.bias_hh)
    heads, _, directions, _ = inputs.projected.shape
    if launch.num_places == 0:
        grad_weight = bias.new_zeros(inputs.places.source.shape)
        zeros = torch.zeros_like(inputs.projected), grad_weight
        return Gradients(*zeros, no_recurrent[0], torch.zeros_like(bias), no_recurrent[1])
    final, carry = saved
    with on_device(bias):
        flow = torch.empty_like(carry[0])
        if launch.num_chunks > 1:
            flow_kernel[launch.across_grid](
                grad, launch.target, launch.ptr, carry, flow, *launch.carry_counts, **launch.across
            )
        source_sizes = (chosen.chunk, chosen.source_chunks, chosen.source_warps)
        by_source = SumBySource(launch.projected, inputs.places, launch.weight, bias.dtype, source_sizes)
        group = cdiv(heads, chosen.groups)
        gradients = bias.new_empty(group, directions, launch.num_places, bias.size(-1))
        sums = bias.new_empty(launch.programs, *bias.shape)
        for first in range(0, heads, group):
            chains = min(group, heads - first) * directions
            gradient_kernel[(launch.programs, chains, launch.blocks)](
                grad,
                *launch.inputs,
                final,
                carry,
                flow,
                gradients,
                sums,
                *launch.counts,
                first * directions,
                **launch.walk,
            )
            by_source.add(gradients, first, chains // directions)
        grad_projected, grad_weight = by_source.finish()
        return Gradients(grad_projected, grad_weight, no_recurrent[0], sums.sum(dim=0), no_recurrent[1])
