"""Wide RNNs on the CPU: PyTorch's matrix products and, fused by numba, all that is elementwise.

Beyond some width the recurrent products take most of the time, and a product over many segments reads the recurrent
matrix once for all of them. Steps are therefore those of the backend ``torch``: at step t all segments that are longer
than t advance together, in all heads and directions. States are kept at the place that reads them, which makes the
operands of every product, also of the single one for the gradient of the recurrent matrix, contiguous rows.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_goat.ops.ragged_rnn.cpu.packing import Shape, cut_gates, pad_gates, pad_units
from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs
from torch_goat.ops.ragged_rnn.torch.steps import scheduled
from torch_goat.ops.threads import run_parts

LANES = 16
_CHUNKS = 8  # of the units, for the threads of the backward
_PLACES = 4096  # whose gradients of the gates are kept until they are added up


def _shape(kind: str, inputs: Inputs) -> Shape:
    """One segment at a time in vectors of LANES units."""
    hidden, element = inputs.weight_hh.size(-1), str(inputs.weight_hh.dtype).removeprefix("torch.")
    blocks = -(-hidden // LANES)
    states = 2 if kind == "lstm" else 1
    return Shape(kind, element, GATES[kind], hidden, LANES, blocks, 1, states, as_given=hidden % LANES == 0)


class _Problem:
    """The inputs of all steps as the compiled code reads them."""

    def __init__(self, kind: str, inputs: Inputs) -> None:
        projected, _, _, weight_hh, bias_ih, bias_hh = inputs
        self.shape = shape = _shape(kind, inputs)
        self.heads, self.num_sources, self.directions, _ = projected.shape
        self.parts = self.heads * self.directions
        self.schedule, row, scale = scheduled(inputs)
        self.num_places, self.width = row.size(-1), shape.width
        self.table = (
            pad_gates(shape, projected.detach().to(weight_hh.dtype)).contiguous().view(-1, shape.gates * self.width)
        )
        self.row, self.scale = row.contiguous(), weight_hh.new_ones(row.shape) if scale is None else scale.contiguous()
        bias = bias_ih if kind == "gru" else bias_ih + bias_hh
        self.bias, self.bias_hh = (
            pad_gates(shape, value.detach()).reshape(self.parts, -1).contiguous() for value in (bias, bias_hh)
        )
        matrix = pad_gates(shape, weight_hh.detach().transpose(-1, -2))  # [K, D, H, G * width]
        matrix = pad(matrix, (0, 0, 0, self.width - shape.hidden)).flatten(0, 1)
        self.recurrent = matrix  # [Q, width, G * width]

    def steps(self, states: list[Tensor]) -> Any:
        from torch_goat.ops.ragged_rnn.cpu.wide_steps import Steps

        arrays = (self.table, self.row.view(-1), self.scale.detach().view(-1), self.bias, self.bias_hh)
        rows = [value.view(-1, value.size(-1)) for value in states]
        return Steps(*[value.numpy() for value in (*arrays, self.schedule.nonempty, *rows)])

    def new(self, rows: int, width: int) -> Tensor:
        """Room for rows of every head and direction. NumPy asks for huge pages, whose first use is far faster."""
        return torch.from_numpy(np.empty((self.parts, rows, width), self.shape.element))


def state_sizes(kind: str, inputs: Inputs, save: bool) -> list[tuple[int, int]]:
    """Rows and columns of the states h and c before each place, of the gates and of the extra ones, of each part."""
    shape, places = _shape(kind, inputs), inputs.places.source.size(1)
    kept = places if save else 0
    return [
        (places, shape.width),
        (places if kind == "lstm" else 0, shape.width),
        (kept, shape.gates * shape.width),
        (kept if kind == "gru" else 0, shape.width),
    ]


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    parts = inputs.projected.size(0) * inputs.projected.size(2)
    return [inputs.weight_hh.new_empty(parts, *size) for size in state_sizes(kind, inputs, save=True)]


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    from torch_goat.ops.ragged_rnn.cpu.wide_steps import Step, advance

    problem = _Problem(kind, inputs)
    shape, segments = problem.shape, inputs.places.segments
    states = [problem.new(*size) for size in state_sizes(kind, inputs, save)]
    out = problem.table.new_zeros(segments.num_segments, problem.heads, problem.directions, shape.width)
    steps, final = problem.steps(states), out.view(-1, shape.width).numpy()
    counts = [count for _, count in problem.schedule.steps]
    share = problem.new(counts[0] if counts else 0, problem.table.size(1)).view(-1)
    rows = share.view(-1, problem.table.size(1)).numpy()
    for (start, count), following in zip(problem.schedule.steps, [*counts[1:], 0], strict=True):
        if start > 0:
            product = share[: problem.parts * count * problem.table.size(1)].view(problem.parts, count, -1)
            torch.bmm(states[0][:, start : start + count], problem.recurrent, out=product)
        run = partial(advance, shape, steps, rows, final, Step(start, count, following))
        run_parts(run, problem.parts * count, shape.width)
    out = out[..., : shape.hidden].flatten(2)
    return out.to(inputs.projected.dtype), states if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    from torch_goat.ops.ragged_rnn.cpu.wide_steps import Grads, Step, retreat

    problem = _Problem(kind, inputs)
    shape, width, schedule = problem.shape, problem.width, problem.schedule
    grad = grad.to(inputs.weight_hh.dtype).view(-1, problem.heads, problem.directions, shape.hidden)
    grad = pad_units(shape, grad).contiguous()
    segments = schedule.nonempty.numel()
    grad_h, carry = (problem.new(segments, width) for _ in range(2))
    kept = min(problem.num_places, max(segments, _PLACES))  # places whose gradients of the gates are there at a time
    share, new = problem.new(kept, shape.gates * width), problem.new(kept if kind == "gru" else 0, width)
    grad_table = problem.new(problem.table.size(0) // problem.parts, shape.gates * width).zero_()
    chunks = min(shape.blocks, _CHUNKS)
    grad_scale = problem.table.new_empty(chunks, problem.parts * problem.num_places)
    tensors = (grad, grad_h, carry, share, new, grad_table, grad_scale)
    grads = Grads(*[value.view(-1, value.size(-1)).numpy() for value in tensors])
    steps, matrix, flat = problem.steps(saved), problem.recurrent.transpose(1, 2).contiguous(), grad_h.view(-1)
    grad_hh, grad_bias_hh = torch.zeros_like(matrix), torch.zeros_like(problem.bias)
    grad_new = problem.bias.new_zeros(problem.parts, width)

    def add_up(start: int, stop: int) -> None:
        """Adds the places from ``start`` to ``stop``, the first ones there are, to the gradients of the weights."""
        rows = share[:, kept - (top - start) : kept - (top - stop)]
        if start > 0:  # else there is no state before
            grad_hh.baddbmm_(rows.transpose(1, 2), saved[0][:, start:stop])
        grad_bias_hh.add_(rows.sum(dim=1))
        if kind == "gru":
            grad_new.add_(new[:, kept - (top - start) : kept - (top - stop)].sum(dim=1))

    following, top = 0, problem.num_places  # the place after the last one whose gradients are there
    for start, count in reversed(schedule.steps):
        if top - start > kept or start == 0:
            add_up(start + count, top)
            top = start + count
        offset = kept - (top - start)
        run = partial(retreat, shape, steps, grads, Step(start, count, following), offset)
        run_parts(run, chunks, problem.parts * count * width // chunks)
        if start > 0:
            before = flat[: problem.parts * count * width].view(problem.parts, count, width)
            torch.bmm(share[:, offset : offset + count], matrix, out=before)
        following = count
    add_up(0, top)

    of_scale = grad_scale.sum(dim=0).view(problem.heads, problem.directions, -1)
    at_place = schedule.place.expand(problem.heads, -1, -1)
    grad_bias = grad_bias_hh.clone()
    if kind == "gru":
        grad_bias[:, 2 * width :] = grad_new
    grad_table = cut_gates(shape, grad_table.view(problem.heads, problem.num_sources, problem.directions, -1))
    grad_hh = cut_gates(shape, grad_hh.transpose(1, 2)[:, : shape.hidden]).transpose(1, 2)
    return Gradients(
        grad_table.to(inputs.projected.dtype),
        of_scale.gather(2, at_place).sum(dim=1),
        grad_hh.reshape_as(inputs.weight_hh).contiguous(),
        *(cut_gates(shape, value).reshape_as(inputs.bias_hh).contiguous() for value in (grad_bias, grad_bias_hh)),
    )
