"""How the kernels in Triton are launched: shapes, schedule and sizes. Nothing here waits for the device."""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from torch_goat.ops.memory import derived
from torch_goat.ops.ragged_rnn.cells import GATES
from torch_goat.ops.ragged_rnn.interface import Gradients, Inputs
from torch_goat.ops.ragged_rnn.triton.recurrence import backward_kernel, forward_kernel
from torch_goat.ops.ragged_rnn.triton.sources import SumBySource
from torch_goat.ops.ragged_rnn.triton.sums import sum_kernel, weight_kernel


class Sizes(NamedTuple):
    """What there is to tune; the results depend on it by rounding only."""

    runs: int  # in a block
    warps: int
    single: int  # programs per head and direction that have one block each; as many more share the rest
    dot: bool  # whether the recurrent product is a `tl.dot` with the matrix in memory, or else all in registers
    groups: int = 1  # of heads in the backward, one after the other: its largest buffer has room for one group
    precision: str = "tf32x3"  # of a float32 `tl.dot`: as exact as float32, in three products of the tensor cores
    chunk: int = 32  # places in a chunk of the sum by source
    chunks: int = 8  # chunks side by side
    source_warps: int = 1


_SMALL = 100_000  # places

# Sizes to use instead, by the name of the field; with "backward_" before it, in the backward. For measurements.
OVERRIDES: dict[str, Any] = {}


def sizes(hidden: int, heads: int, directions: int, num_targets: int, num_places: int, backward: bool) -> Sizes:
    """The sizes for a hidden width per direction, chosen for an H200.

    In registers, a block has one value per thread: with more, Triton would change layouts within a step.
    """
    width = padded(hidden)
    if width <= 16:
        chosen = Sizes(runs=32 // width, warps=1, single=512, dot=False)
    else:
        chosen = Sizes(runs=16, warps=4 if width == 32 else 8, single=64, dot=True)
    chosen = chosen._replace(chunks=max(1, 64 // width), source_warps=max(1, width // 16))
    if backward:
        # Groups save memory, and cost the time of the longest run each; where all runs are short, that is nothing.
        chosen = chosen._replace(groups=min(heads, 2) if num_places < _SMALL else 1)
        if not chosen.dot:
            # Each program leaves a partial sum: more than a few only if they are needed to fill the device, and busy.
            chains = triton.cdiv(heads, chosen.groups) * directions
            blocks = triton.cdiv(num_targets, chosen.runs)
            chosen = chosen._replace(single=max(64, min(1024 // chains, blocks // 32)))
    prefix = "backward_" if backward else ""
    return chosen._replace(**{name: OVERRIDES[prefix + name] for name in Sizes._fields if prefix + name in OVERRIDES})


def padded(hidden: int) -> int:
    """The width that a block gives the hidden units: a power of two."""
    return max(4, triton.next_power_of_2(hidden))


def num_parts(kind: str, dot: bool) -> int:
    """How many gradients of width ``H`` the backward stores per place: a GRU's fourth is for the weights only."""
    return 4 if kind == "gru" and dot else GATES[kind]


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    """Room for the schedule ``[T]``, and for the states before each step by place."""
    order = inputs.ptr.new_empty(inputs.ptr.numel() - 1, dtype=torch.int64)
    return [order, _states_like(kind, inputs)]


def _states_like(kind: str, inputs: Inputs) -> Tensor:
    """``[1 or 2, K, D, E, H]``."""
    heads, _, directions, _ = inputs.projected.shape
    size = (2 if kind == "lstm" else 1, heads, directions, inputs.source.size(1), inputs.weight_hh.size(-1))
    return inputs.weight_hh.new_empty(size)


def schedule(ptr: Tensor) -> Tensor:
    """The targets ``[T]``, those with the longest runs first."""
    lengths = ptr.new_empty(ptr.numel() - 1, dtype=torch.int32)  # sorted in half the passes of int64
    torch.sub(ptr[1:], ptr[:-1], out=lengths)
    return torch.sort(lengths, descending=True, stable=True)[1]


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    projected, source, weight, ptr, weight_hh, bias_ih, bias_hh = inputs.contiguous()
    heads, _, directions, _ = projected.shape
    hidden, num_targets = weight_hh.size(-1), ptr.numel() - 1
    out = projected.new_empty(num_targets, heads, directions * hidden)
    states = _states_like(kind, inputs) if save else out
    order = derived(ptr, "schedule", schedule)
    if num_targets:
        chosen = sizes(hidden, heads, directions, num_targets, source.size(1), backward=False)
        programs, counts, constants = _recurrence(kind, inputs, num_targets, chosen)
        with on_device(projected):
            forward_kernel[(programs * heads * directions,)](
                projected,
                source,
                weight,
                ptr,
                order,
                weight_hh,
                bias_ih,
                bias_hh,
                out,
                states,
                *counts,
                **constants,
                SAVE=save,
            )
    return out, [order, states] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    projected, source, weight, ptr, weight_hh, bias_ih, bias_hh = inputs.contiguous()
    heads, _, directions, _ = projected.shape
    hidden, num_places, num_targets = weight_hh.size(-1), source.size(1), ptr.numel() - 1
    if num_places == 0:
        zeros = torch.zeros_like
        grad_weight = weight_hh.new_zeros(source.shape)
        return Gradients(zeros(projected), grad_weight, zeros(weight_hh), zeros(bias_ih), zeros(bias_hh))
    order, states = saved
    chosen = sizes(hidden, heads, directions, num_targets, num_places, backward=True)
    programs, counts, constants = _recurrence(kind, inputs, num_targets, chosen)
    constants["PARTS"] = parts = num_parts(kind, chosen.dot)

    with on_device(projected):
        by_source = SumBySource(
            projected, source, weight, weight_hh.dtype, chosen.chunk, chosen.chunks, chosen.source_warps
        )
        group = triton.cdiv(heads, chosen.groups)
        gradients = weight_hh.new_empty(group, directions, num_places, parts * hidden)
        pieces = _num_pieces(kind, heads * directions, num_places) if chosen.dot else programs
        sums = weight_hh.new_empty(pieces, bias_hh.numel() * (hidden + 2))
        for first in range(0, heads, group):
            first_chain, chains = first * directions, min(group, heads - first) * directions
            backward_kernel[(programs * chains,)](
                grad,
                projected,
                source,
                weight,
                ptr,
                order,
                weight_hh,
                bias_ih,
                bias_hh,
                states,
                gradients,
                sums,
                *counts,
                first_chain,
                chains,
                **constants,
            )
            if chosen.dot:
                _multiply(gradients, states, sums, first_chain, chains, constants)
            by_source.add(gradients, first, chains // directions)
        grad_projected, grad_weight = by_source.finish()
        return Gradients(grad_projected, grad_weight, *_add_up(sums, weight_hh, bias_ih, bias_hh))


def _recurrence(
    kind: str, inputs: Inputs, num_targets: int, chosen: Sizes
) -> tuple[int, tuple[int, ...], dict[str, Any]]:
    """Programs per head and direction, and what both kernels of the recurrence are told: counts and constants."""
    heads, num_sources, directions, _ = inputs.projected.shape
    hidden = inputs.weight_hh.size(-1)
    blocks = triton.cdiv(num_targets, chosen.runs)
    counts = (num_targets, inputs.source.size(1), num_sources, heads * directions, blocks, chosen.single)
    constants = {
        "KIND": kind,
        "GATES": GATES[kind],
        "DIRECTIONS": directions,
        "HIDDEN": hidden,
        "WIDTH": max(16, padded(hidden)) if chosen.dot else padded(hidden),  # 16: the least that `tl.dot` takes
        "RUNS": chosen.runs,
        "DOT": chosen.dot,
        "PRECISION": _precision(inputs.weight_hh, chosen),
        "num_warps": chosen.warps,
    }
    if inputs.weight is None:
        # In a loop without coefficients to load, Triton fetches the matrices of the next step while it multiplies: two
        # copies of each in shared memory, where they do not fit. One stage is no such pipeline.
        constants["num_stages"] = 1
    return min(blocks, 2 * chosen.single), counts, constants


def _num_pieces(kind: str, num_chains: int, num_places: int) -> int:
    """Enough programs of :func:`weight_kernel` to fill the device, but few sums, and 32 places at least in each."""
    return min(64, triton.cdiv(1024, num_chains * GATES[kind]), triton.cdiv(num_places, 32))


def _multiply(
    gradients: Tensor, states: Tensor, sums: Tensor, first_chain: int, chains: int, constants: dict[str, Any]
) -> None:
    """Writes a group's share of ``sums``, those of the recurrent weights over a piece of the places each."""
    num_places, hidden, pieces = gradients.size(2), states.size(-1), sums.size(0)
    weight_kernel[(pieces, chains * constants["GATES"])](
        gradients,
        states,
        sums,
        num_places,
        states.size(1) * states.size(2),
        first_chain,
        triton.cdiv(num_places, pieces),
        **{name: constants[name] for name in ("GATES", "PARTS", "HIDDEN", "WIDTH", "PRECISION")},
        PLACES=32,
        num_warps=8 if hidden > 64 else 4,
    )


def _add_up(sums: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the recurrent weights from their partial sums."""
    grads = torch.empty_like(weight_hh), torch.empty_like(bias_ih), torch.empty_like(bias_hh)
    pieces, size = sums.shape
    shared = {"HIDDEN": weight_hh.size(-1), "PIECES": 32, "COLUMNS": 32, "num_warps": 4}
    sum_kernel[(triton.cdiv(size, 32),)](sums, *grads, pieces, bias_hh.numel(), **shared)
    return grads


def _precision(weight_hh: Tensor, chosen: Sizes) -> str:
    if weight_hh.dtype == torch.float64:
        return "ieee"
    matmul = torch.backends.cuda.matmul
    # From PyTorch 2.9 on, reading the old flag fails for those who have set the new one.
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else chosen.precision


def on_device(tensor: Tensor) -> Any:
    """Where kernels are launched that read this tensor."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
