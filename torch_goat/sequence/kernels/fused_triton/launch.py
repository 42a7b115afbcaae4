"""How the kernels in Triton are launched: shapes, schedule and sizes. Nothing here waits for the device."""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from torch_goat.sequence.cells import GATES
from torch_goat.sequence.kernels.fused_triton.recurrence import backward_kernel, forward_kernel
from torch_goat.sequence.kernels.fused_triton.sources import carry_kernel, source_kernel
from torch_goat.sequence.kernels.fused_triton.sums import weight_kernel


class Sizes(NamedTuple):
    """What there is to tune; the results depend on it by rounding only."""

    runs: int  # in a block
    warps: int
    single: int  # programs per head and direction that have one block each; as many more share the rest
    dot: bool  # whether the recurrent product is a `tl.dot` with the matrix in memory, or else all in registers
    precision: str = "tf32x3"  # of a float32 `tl.dot`: as exact as float32, in three products of the tensor cores
    chunk: int = 32  # places in a chunk of the sum by source
    chunks: int = 8  # chunks side by side
    source_warps: int = 1


# Sizes to use instead, by the name of the field; with "backward_" before it, in the backward. For measurements.
OVERRIDES: dict[str, Any] = {}


def sizes(hidden: int, backward: bool) -> Sizes:
    """The sizes for a hidden width per direction, chosen for an H200.

    In registers, a block has one value per thread: with more, Triton would change layouts within a step.
    """
    width = padded(hidden)
    if width <= 16:
        chosen = Sizes(runs=32 // width, warps=1, single=512, dot=False)
    else:
        chosen = Sizes(runs=16, warps=4 if width == 32 else 8, single=64, dot=True)
    chosen = chosen._replace(chunks=max(1, 64 // width), source_warps=max(1, width // 16))
    prefix = "backward_" if backward else ""
    return chosen._replace(**{name: OVERRIDES[prefix + name] for name in Sizes._fields if prefix + name in OVERRIDES})


def padded(hidden: int) -> int:
    """The width that a block gives the hidden units: a power of two."""
    return max(4, triton.next_power_of_2(hidden))


def num_parts(kind: str, dot: bool) -> int:
    """How many gradients of width ``H`` the backward stores per place: a GRU's fourth is for the weights only."""
    return 4 if kind == "gru" and dot else GATES[kind]


def saved_like(kind: str, projected: Tensor, source: Tensor, ptr: Tensor, weight_hh: Tensor) -> list[Tensor]:
    """Room for the schedule ``[T]``, and for the states before each step by place ``[1 or 2, K, D, E, H]``."""
    heads, _, directions, _ = projected.shape
    num_states = 2 if kind == "lstm" else 1
    states = weight_hh.new_empty(num_states, heads, directions, source.size(1), weight_hh.size(-1))
    return [ptr.new_empty(ptr.numel() - 1, dtype=torch.int64), states]


def schedule(ptr: Tensor) -> Tensor:
    """The targets ``[T]``, those with the longest runs first."""
    return torch.argsort(ptr.diff(), descending=True, stable=True)


def forward(
    kind: str,
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    save: bool,
) -> tuple[Tensor, list[Tensor]]:
    heads, _, directions, _ = projected.shape
    hidden, num_targets = weight_hh.size(-1), ptr.numel() - 1
    out = projected.new_empty(num_targets, heads, directions * hidden)
    states = saved_like(kind, projected, source, ptr, weight_hh)[1] if save else out
    order = schedule(ptr)
    if num_targets:
        chosen = sizes(hidden, backward=False)
        grid, counts, constants = _recurrence(kind, projected, source, weight_hh, num_targets, chosen)
        with _device(projected):
            forward_kernel[grid](
                projected.contiguous(),
                source.contiguous(),
                None if weight is None else weight.contiguous(),
                ptr.contiguous(),
                order,
                weight_hh.contiguous(),
                bias_ih.contiguous(),
                bias_hh.contiguous(),
                out,
                states,
                *counts,
                **constants,
                SAVE=save,
            )
    return out, [order, states] if save else []


def backward(
    kind: str,
    grad: Tensor,
    projected: Tensor,
    source: Tensor,
    weight: Tensor | None,
    ptr: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    saved: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    heads, _, directions, _ = projected.shape
    hidden, num_places, num_targets = weight_hh.size(-1), source.size(1), ptr.numel() - 1
    if num_places == 0:
        zeros = torch.zeros_like
        return zeros(projected), weight_hh.new_zeros(source.shape), zeros(weight_hh), zeros(bias_ih), zeros(bias_hh)
    order, states = saved
    projected, source = projected.contiguous(), source.contiguous()
    weight = None if weight is None else weight.contiguous()
    chosen = sizes(hidden, backward=True)
    grid, counts, constants = _recurrence(kind, projected, source, weight_hh, num_targets, chosen)
    parts = num_parts(kind, chosen.dot)
    gradients = weight_hh.new_empty(heads, directions, num_places, parts * hidden)
    pieces = min(64, triton.cdiv(num_places, 32)) if chosen.dot else grid[0] // (heads * directions)
    sums = [weight_hh.new_empty(pieces, *value.shape) for value in (weight_hh, bias_ih, bias_hh)]
    with _device(projected):
        backward_kernel[grid](
            grad.contiguous(),
            projected,
            source,
            weight,
            ptr.contiguous(),
            order,
            weight_hh.contiguous(),
            bias_ih.contiguous(),
            bias_hh.contiguous(),
            states,
            gradients,
            *sums,
            *counts,
            **constants,
            PARTS=parts,
        )
        if chosen.dot:
            weight_kernel[(pieces, heads * directions * GATES[kind])](
                gradients,
                states,
                *sums,
                num_places,
                heads * directions,
                triton.cdiv(num_places, pieces),
                GATES=GATES[kind],
                PARTS=parts,
                HIDDEN=hidden,
                WIDTH=constants["WIDTH"],
                PLACES=32,
                PRECISION=constants["PRECISION"],
                num_warps=8 if hidden > 64 else 4,
            )
        grad_hh, grad_bias_ih, grad_bias_hh = (value.sum(dim=0) for value in sums)
        del sums
        grad_projected, grad_weight = _sum_by_source(gradients, weight, projected, source, chosen)
    return grad_projected, grad_weight, grad_hh, grad_bias_ih, grad_bias_hh


def _recurrence(
    kind: str, projected: Tensor, source: Tensor, weight_hh: Tensor, num_targets: int, chosen: Sizes
) -> tuple[tuple[int], tuple[int, ...], dict[str, Any]]:
    """The grid and what both kernels of the recurrence are told alike: counts and compile-time constants."""
    heads, num_sources, directions, _ = projected.shape
    hidden = weight_hh.size(-1)
    blocks = triton.cdiv(num_targets, chosen.runs)
    programs = min(blocks, 2 * chosen.single)
    counts = (num_targets, source.size(1), num_sources, heads * directions, blocks, chosen.single)
    constants = {
        "KIND": kind,
        "GATES": GATES[kind],
        "DIRECTIONS": directions,
        "HIDDEN": hidden,
        "WIDTH": max(16, padded(hidden)) if chosen.dot else padded(hidden),  # 16: the least that `tl.dot` takes
        "RUNS": chosen.runs,
        "DOT": chosen.dot,
        "PRECISION": _precision(weight_hh, chosen),
        "num_warps": chosen.warps,
    }
    return (programs * heads * directions,), counts, constants


def _sum_by_source(
    gradients: Tensor, weight: Tensor | None, projected: Tensor, source: Tensor, chosen: Sizes
) -> tuple[Tensor, Tensor]:
    """Gradients of ``projected`` and ``weight`` from those of the gates by place ``[K, D, E, ...]``."""
    heads, num_sources, directions, gated = projected.shape
    num_places, row = source.size(1), directions * gated
    index = torch.int32 if heads * num_sources < 2**31 else torch.int64
    offset = torch.arange(0, heads * num_sources, num_sources, dtype=index, device=source.device)
    key, order = (source.to(index) + offset.unsqueeze(1)).flatten().sort(stable=True)  # [K * E]

    chunks = triton.cdiv(num_places, chosen.chunk)
    carry = gradients.new_empty(heads, chunks, row)
    grad_projected = gradients.new_zeros(projected.shape)
    grad_weight = gradients.new_empty(source.shape)
    width = triton.next_power_of_2(row)
    shared = {"WIDTH": width, "CHUNKS": chosen.chunks, "CHUNK": chosen.chunk, "num_warps": chosen.source_warps}
    source_kernel[(triton.cdiv(chunks, chosen.chunks), heads)](
        gradients,
        weight,
        projected,
        key,
        order,
        grad_projected,
        grad_weight,
        carry,
        num_places,
        chunks,
        DIRECTIONS=directions,
        GATED=gated,
        STORED=gradients.size(-1),
        **shared,
    )
    if chunks > 1:
        carry_kernel[(chunks - 1, heads)](key, grad_projected, carry, num_places, chunks, ROW=row, **shared)
    return grad_projected.to(projected.dtype), grad_weight


def _precision(weight_hh: Tensor, chosen: Sizes) -> str:
    if weight_hh.dtype == torch.float64:
        return "ieee"
    matmul = torch.backends.cuda.matmul
    # From PyTorch 2.9 on, reading the old flag fails for those who have set the new one.
    tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if tf32 else chosen.precision


def _device(tensor: Tensor) -> Any:
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
