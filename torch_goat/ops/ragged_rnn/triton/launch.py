"""The launches of the Triton kernels: shapes, order and sizes. Nothing here synchronises with the device."""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs
from torch_goat.ops.ragged_rnn.triton.recurrence import backward_kernel, forward_kernel
from torch_goat.ops.ragged_rnn.triton.sources import SumBySource
from torch_goat.ops.ragged_rnn.triton.sums import sum_kernel, weight_kernel


class Sizes(NamedTuple):
    """Tuning parameters; they change results by rounding only."""

    segments: int  # per block
    warps: int
    single: int  # programs per head and direction with one block each; as many others share the remaining blocks
    dot: bool  # whether the recurrent product is a `tl.dot` with the matrix in memory; otherwise all is in registers
    groups: int = 1  # of heads that the backward processes one after the other, with a buffer for one group
    precision: str = "tf32x3"  # of a float32 `tl.dot`: as exact as float32, in three products of the tensor cores
    chunk: int = 32  # places in a chunk of the sum by source
    chunks: int = 8  # chunks side by side
    source_warps: int = 1


_SMALL = 100_000  # places


def sizes(hidden: int, heads: int, directions: int, num_targets: int, num_places: int, backward: bool) -> Sizes:
    """The sizes for a hidden width per direction, tuned on an H200.

    In registers, a block has one value per thread: with more, Triton would convert layouts within a step.
    """
    width = padded(hidden)
    if width <= 16:
        chosen = Sizes(segments=32 // width, warps=1, single=512, dot=False)
    else:
        chosen = Sizes(segments=16, warps=4 if width == 32 else 8, single=64, dot=True)
    chosen = chosen._replace(chunks=max(1, 64 // width), source_warps=max(1, width // 16))
    if backward:
        # Groups save memory, and take the time of the longest segment each, which is little in small graphs.
        chosen = chosen._replace(groups=min(heads, 2) if num_places < _SMALL else 1)
        if not chosen.dot:
            # Each program writes a partial sum: more programs only as far as they fill the device and have enough work.
            chains = triton.cdiv(heads, chosen.groups) * directions
            blocks = triton.cdiv(num_targets, chosen.segments)
            chosen = chosen._replace(single=max(64, min(1024 // chains, blocks // 32)))
    return chosen


def padded(hidden: int) -> int:
    """The hidden width of a block: a power of two."""
    return max(4, triton.next_power_of_2(hidden))


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    """The targets by length ``[T]``, and the states before each step by place ``[1 or 2, K, D, E, H]``."""
    return [inputs.places.ptr.new_empty(inputs.places.ptr.numel() - 1), _states_like(kind, inputs)]


def _states_like(kind: str, inputs: Inputs) -> Tensor:
    heads, _, directions, _ = inputs.projected.shape
    num_places, hidden = inputs.places.source.size(1), inputs.weight_hh.size(-1)
    return inputs.weight_hh.new_empty(2 if kind == "lstm" else 1, heads, directions, num_places, hidden)


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    projected, source, weight, ptr, weight_hh, bias_ih, bias_hh = _contiguous(inputs)
    heads, _, directions, _ = projected.shape
    hidden, num_targets = weight_hh.size(-1), ptr.numel() - 1
    out = projected.new_empty(num_targets, heads, directions * hidden)
    states = _states_like(kind, inputs) if save else out
    order = inputs.places.segments.by_length
    if num_targets:
        chosen = sizes(hidden, heads, directions, num_targets, source.size(1), backward=False)
        programs, counts, constants = _recurrence(kind, inputs, num_targets, chosen)
        with on_device(projected):
            tensors = (projected, source, weight, ptr, order, weight_hh, bias_ih, bias_hh, out, states)
            forward_kernel[(programs * heads * directions,)](*tensors, *counts, **constants, SAVE=save)
    return out, [order, states] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    projected, source, weight, ptr, weight_hh, bias_ih, bias_hh = _contiguous(inputs)
    heads, _, directions, _ = projected.shape
    hidden, num_places, num_targets = weight_hh.size(-1), source.size(1), ptr.numel() - 1
    if num_places == 0:
        zeros = torch.zeros_like
        grad_weight = weight_hh.new_zeros(source.shape)
        return Gradients(zeros(projected), grad_weight, zeros(weight_hh), zeros(bias_ih), zeros(bias_hh))
    order, states = saved
    chosen = sizes(hidden, heads, directions, num_targets, num_places, backward=True)
    programs, counts, constants = _recurrence(kind, inputs, num_targets, chosen)
    # The number of gradients of width H stored per place; the fourth of a GRU is for its weights only.
    constants["PARTS"] = parts = 4 if kind == "gru" and chosen.dot else GATES[kind]

    with on_device(projected):
        by_source = SumBySource(projected, inputs.places, weight, weight_hh.dtype, chosen[-3:])
        group = triton.cdiv(heads, chosen.groups)
        gradients = weight_hh.new_empty(group, directions, num_places, parts * hidden)
        pieces = programs
        if chosen.dot:  # enough programs of `weight_kernel` to fill the device, each with at least 32 places
            pieces = min(64, triton.cdiv(1024, heads * directions * GATES[kind]), triton.cdiv(num_places, 32))
        sums = weight_hh.new_empty(pieces, bias_hh.numel() * (hidden + 2))
        inputs_and_states = (projected, source, weight, ptr, order, weight_hh, bias_ih, bias_hh, states)
        for first in range(0, heads, group):
            first_chain, chains = first * directions, min(group, heads - first) * directions
            backward_kernel[(programs * chains,)](
                grad, *inputs_and_states, gradients, sums, *counts, first_chain, chains, **constants
            )
            if chosen.dot:
                _multiply(gradients, states, sums, first_chain, chains, constants)
            by_source.add(gradients, first, chains // directions)
        grad_projected, grad_weight = by_source.finish()
        return Gradients(grad_projected, grad_weight, *_add_up(sums, weight_hh, bias_ih, bias_hh))


def _contiguous(inputs: Inputs) -> tuple[Any, ...]:
    projected, places, *rest = inputs
    weight, *recurrent = (None if value is None else value.contiguous() for value in rest)
    return projected.contiguous(), places.source.contiguous(), weight, places.ptr.contiguous(), *recurrent


def _recurrence(
    kind: str, inputs: Inputs, num_targets: int, chosen: Sizes
) -> tuple[int, tuple[int, ...], dict[str, Any]]:
    """The programs per head and direction, and the counts and constants of both kernels of the recurrence."""
    heads, num_sources, directions, _ = inputs.projected.shape
    hidden = inputs.weight_hh.size(-1)
    blocks = triton.cdiv(num_targets, chosen.segments)
    counts = (num_targets, inputs.places.source.size(1), num_sources, heads * directions, blocks, chosen.single)
    constants = {
        "KIND": kind,
        "GATES": GATES[kind],
        "DIRECTIONS": directions,
        "HIDDEN": hidden,
        "WIDTH": max(16, padded(hidden)) if chosen.dot else padded(hidden),  # 16: the least that `tl.dot` takes
        "SEGMENTS": chosen.segments,
        "DOT": chosen.dot,
        "PRECISION": _precision(inputs.weight_hh, chosen),
        "num_warps": chosen.warps,
    }
    if inputs.weight is None:
        # Without coefficients to load, Triton would pipeline the loads of the matrices, whose two copies do not fit
        # into shared memory. One stage turns pipelining off.
        constants["num_stages"] = 1
    return min(blocks, 2 * chosen.single), counts, constants


def _multiply(
    gradients: Tensor, states: Tensor, sums: Tensor, first_chain: int, chains: int, constants: dict[str, Any]
) -> None:
    """Writes the sums of a group of heads: gradients of the recurrent weights over pieces of the places."""
    num_places, hidden, pieces = gradients.size(2), states.size(-1), sums.size(0)
    counts = (num_places, states.size(1) * states.size(2), first_chain, triton.cdiv(num_places, pieces))
    shared = {name: constants[name] for name in ("GATES", "PARTS", "HIDDEN", "WIDTH", "PRECISION")}
    weight_kernel[(pieces, chains * constants["GATES"])](
        gradients, states, sums, *counts, **shared, PLACES=32, num_warps=8 if hidden > 64 else 4
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
    # From PyTorch 2.9 on, reading the old flag fails if the new one was set.
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else chosen.precision


def on_device(tensor: Tensor) -> Any:
    """The device context in which kernels that read this tensor are launched."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
