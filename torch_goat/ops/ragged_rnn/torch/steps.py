"""The ragged RNN in plain PyTorch: all heads and both directions advance together, one step of all segments at a time.

Segments are sorted by length, longest first. At step t those that are longer than t are a prefix of this list, so that
a step is a few calls on contiguous slices, without padding. In step-major order, the places of step t are
``offset[t] .. offset[t] + count[t]``.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.interface import Gradients, Inputs
from torch_goat.ops.segments import Segments


class Schedule(NamedTuple):
    steps: list[tuple[int, int]]  # offset and count of each step
    nonempty: Tensor  # [T'], the targets with at least one place, longest first
    last: Tensor  # [T'], the step-major place of the last step of each
    place: Tensor  # [D, E], the step-major place of each place
    at: Tensor  # [D, E], the inverse: the place behind each step-major place


def _schedule(segments: Segments, directions: int) -> Schedule:
    ptr, target, by_rank = segments.ptr, segments.index, segments.by_length
    length = ptr.diff()  # [T]
    rank = torch.empty_like(by_rank)
    rank[by_rank] = torch.arange(by_rank.numel(), device=ptr.device)
    # count[t]: how many segments are longer than t.
    count = length.numel() - torch.bincount(length).cumsum(0)[:-1]
    offset = count.cumsum(0) - count
    sizes = count.tolist()
    steps = list(zip(offset.tolist(), sizes, strict=True))
    nonempty = by_rank[: sizes[0] if sizes else 0]
    last = offset[length[nonempty] - 1] + rank[nonempty]

    step = torch.arange(target.numel(), device=ptr.device) - ptr[target]  # [E]
    both = [step, length[target] - 1 - step][:directions]
    place = torch.stack([offset[step] + rank[target] for step in both])  # [D, E]
    at = torch.empty_like(place).scatter_(1, place, torch.arange(place.size(1), device=ptr.device).expand_as(place))
    return Schedule(steps, nonempty, last, place, at)


def scheduled(inputs: Inputs) -> tuple[Schedule, Tensor, Tensor | None]:
    """The schedule, and what :func:`gather` finds in its order."""
    segments, directions = inputs.places.segments, inputs.projected.size(2)
    schedule = segments.memo.compute(("torch", directions), lambda: _schedule(segments, directions))
    return schedule, *gather(inputs, schedule.at)


def gather(inputs: Inputs, at: Tensor) -> tuple[Tensor, Tensor | None]:
    """The rows of ``projected`` at the places ``at`` ``[D, E]`` and their coefficients, both ``[K, D, E]``."""
    heads, num_sources, directions, _ = inputs.projected.shape
    head = torch.arange(heads, device=at.device).view(-1, 1, 1)
    direction = torch.arange(directions, device=at.device).view(1, -1, 1)
    row = (head * num_sources + inputs.places.source[:, at]) * directions + direction
    return row, None if inputs.weight is None else inputs.weight[:, at]


def input_share(inputs: Inputs, row: Tensor, scale: Tensor | None, bias: Tensor) -> Tensor:
    """The input's share of the gates ``[K, D, E, G * H]``."""
    gates = _rows(inputs.projected, row).to(bias.dtype)
    if scale is not None:
        gates *= scale.unsqueeze(-1)
    gates += bias.unsqueeze(2)
    return gates


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    projected, places, _, weight_hh, bias_ih, bias_hh = inputs
    heads, _, directions, _ = projected.shape
    hidden = weight_hh.size(-1)
    schedule, row, scale = scheduled(inputs)
    bias = bias_ih if kind == "gru" else bias_ih + bias_hh
    gates = input_share(inputs, row, scale, bias).flatten(0, 1)  # [KD, E, G * H]
    recurrent = weight_hh.flatten(0, 1).transpose(1, 2)  # [KD, H, G * H]
    states = _advance(kind, schedule.steps, gates, recurrent, bias_hh.flatten(0, 1))
    out = projected.new_zeros(places.segments.num_segments, heads, directions, hidden)
    final = states[0].index_select(1, schedule.last).unflatten(0, (heads, directions))
    out[schedule.nonempty] = final.permute(2, 0, 1, 3).to(out.dtype)
    return out.flatten(2), [gates, *states] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    projected, weight_hh = inputs.projected, inputs.weight_hh
    heads, _, directions, _ = projected.shape
    hidden = weight_hh.size(-1)
    schedule, row, scale = scheduled(inputs)
    gates, states = saved[0].clone(), saved[1:]
    grad = grad[schedule.nonempty].to(weight_hh.dtype).view(-1, heads, directions, hidden)
    grad = grad.permute(1, 2, 0, 3).flatten(0, 1)  # [KD, T', H], by rank

    recurrent = weight_hh.flatten(0, 1)  # [KD, G * H, H]
    grad_hh, grad_bias_hh = _flow_back(kind, schedule.steps, gates, states, grad, recurrent)
    grad_gates = gates.view(*row.shape, gates.size(-1))  # [K, D, E, G * H], now gradients
    grad_bias = grad_gates.sum(dim=2)
    grad_bias_hh = grad_bias.clone() if grad_bias_hh is None else grad_bias_hh.view_as(grad_bias)

    of_inputs = to_inputs(projected, row, scale, schedule.place, grad_gates)
    return Gradients(*of_inputs, grad_hh.view_as(weight_hh), grad_bias, grad_bias_hh)


def to_inputs(
    projected: Tensor, row: Tensor, scale: Tensor | None, place: Tensor, grad_gates: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of ``projected`` and of the coefficients, from those of :func:`input_share`, which are changed.

    ``place`` ``[D, E]`` is where in the given order each place is.
    """
    grad_scale = (grad_gates * _rows(projected, row)).sum(dim=-1)  # [K, D, E]
    grad_weight = grad_scale.gather(2, place.expand_as(row)).sum(dim=1)  # [K, E]
    if scale is not None:
        grad_gates *= scale.unsqueeze(-1)
    grad_projected = projected.new_zeros(projected.shape, dtype=grad_gates.dtype).view(-1, grad_gates.size(-1))
    grad_projected.scatter_add_(0, row.view(-1, 1).expand(-1, grad_gates.size(-1)), grad_gates.flatten(0, 2))
    return grad_projected.view_as(projected).to(projected.dtype), grad_weight


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    heads, _, directions, width = inputs.projected.shape
    hidden = inputs.weight_hh.size(-1)
    widths = [width, *[hidden] * _NUM_STATES[kind]]
    return [inputs.weight_hh.new_empty(heads * directions, inputs.places.source.size(1), width) for width in widths]


def _rows(projected: Tensor, row: Tensor) -> Tensor:
    width = projected.size(-1)
    return projected.reshape(-1, width).index_select(0, row.flatten()).view(*row.shape, width)


# One step of each cell. `gates` [KD, E, G * H] holds the input's share of the gates before the forward, the activated
# gates after it, and the gradient of the gates after the backward, in place; an RNN has its one gate in its state.
# `here` is the step's slice of places and `earlier` that of the same segments in the step before, if there is one.
# A step back returns the gradient of the recurrent share of the gates.

_Earlier = slice | None
_NUM_STATES = {"lstm": 2, "gru": 2, "rnn": 1}


def _advance(kind: str, steps: list[tuple[int, int]], gates: Tensor, recurrent: Tensor, bias: Tensor) -> list[Tensor]:
    """The states after every step, h first, each ``[KD, E, H]``."""
    states = [gates.new_empty(*gates.shape[:2], recurrent.size(1)) for _ in range(_NUM_STATES[kind])]
    step = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}[kind]
    before = None
    for start, n in steps:
        earlier = None if before is None else slice(before, before + n)
        step(gates, states, slice(start, start + n), earlier, recurrent, bias)
        before = start
    return states


def _flow_back(
    kind: str, steps: list[tuple[int, int]], gates: Tensor, states: list[Tensor], grad_h: Tensor, recurrent: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The gradients of the recurrent matrix and, for a GRU, of ``bias_hh``."""
    grad_hh, extra = torch.zeros_like(recurrent), None
    if kind == "lstm":
        extra = torch.zeros_like(grad_h)  # of c
    elif kind == "gru":
        extra = recurrent.new_zeros(recurrent.shape[:2])  # of bias_hh
    step_back = {"lstm": _lstm_back, "gru": _gru_back, "rnn": _rnn_back}[kind]
    for step in reversed(range(len(steps))):
        start, n = steps[step]
        earlier = slice(steps[step - 1][0], steps[step - 1][0] + n) if step > 0 else None
        dh = grad_h[:, :n]
        share = step_back(gates, states, slice(start, start + n), earlier, dh, extra)
        if earlier is not None:
            if kind == "gru":  # which also carries a part of the state over
                dh.baddbmm_(share, recurrent)
            else:
                torch.bmm(share, recurrent, out=dh)
            grad_hh.baddbmm_(share.transpose(1, 2), states[0][:, earlier])
    return grad_hh, extra if kind == "gru" else None


def _lstm(gates: Tensor, states: list[Tensor], here: slice, earlier: _Earlier, recurrent: Tensor, bias: Tensor) -> None:
    gate, h, c = gates[:, here], states[0][:, here], states[1][:, here]
    if earlier is not None:
        gate.baddbmm_(states[0][:, earlier], recurrent)
    i, f, g, o = gate.chunk(4, dim=-1)
    gate[..., : 2 * h.size(-1)].sigmoid_()
    g.tanh_()
    o.sigmoid_()
    torch.mul(i, g, out=c)
    if earlier is not None:
        c.addcmul_(f, states[1][:, earlier])
    torch.tanh(c, out=h).mul_(o)


def _lstm_back(gates: Tensor, states: list[Tensor], here: slice, earlier: _Earlier, dh: Tensor, extra: Any) -> Tensor:
    gate, dc = gates[:, here], extra[:, : dh.size(1)]
    i, f, g, o = gate.chunk(4, dim=-1)
    tanh_c = states[1][:, here].tanh()
    dc += dh * o * (1 - tanh_c * tanh_c)
    do = dh * tanh_c * o * (1 - o)
    di = dc * g * i * (1 - i)
    dg = dc * i * (1 - g * g)
    if earlier is None:
        df = torch.zeros_like(f)
    else:
        df = dc * states[1][:, earlier] * f * (1 - f)
        dc *= f
    return torch.cat([di, df, dg, do], dim=-1, out=gate)


def _gru(gates: Tensor, states: list[Tensor], here: slice, earlier: _Earlier, recurrent: Tensor, bias: Tensor) -> None:
    gate, h, n_share = gates[:, here], states[0][:, here], states[1][:, here]
    hidden = h.size(-1)
    share = bias.unsqueeze(1).expand(-1, h.size(1), -1)
    if earlier is not None:
        share = torch.baddbmm(share, states[0][:, earlier], recurrent)
    gate[..., : 2 * hidden].add_(share[..., : 2 * hidden]).sigmoid_()
    n_share.copy_(share[..., 2 * hidden :])  # the recurrent share of the new gate, before it is reset
    r, z, new = gate.chunk(3, dim=-1)
    new.addcmul_(r, n_share).tanh_()
    torch.mul(1 - z, new, out=h)
    if earlier is not None:
        h.addcmul_(z, states[0][:, earlier])


def _gru_back(gates: Tensor, states: list[Tensor], here: slice, earlier: _Earlier, dh: Tensor, extra: Any) -> Tensor:
    gate = gates[:, here]
    r, z, new = gate.chunk(3, dim=-1)
    dnew = dh * (1 - z) * (1 - new * new)
    dr = dnew * states[1][:, here] * r * (1 - r)
    toward = -dh * new if earlier is None else dh * (states[0][:, earlier] - new)
    dz = toward * z * (1 - z)
    dshare = torch.cat([dr, dz, dnew * r], dim=-1)  # gradient of the recurrent share
    if earlier is not None:
        dh *= z
    torch.cat([dr, dz, dnew], dim=-1, out=gate)
    extra += dshare.sum(dim=1)
    return dshare


def _rnn(gates: Tensor, states: list[Tensor], here: slice, earlier: _Earlier, recurrent: Tensor, bias: Tensor) -> None:
    gate = gates[:, here]
    if earlier is not None:
        gate.baddbmm_(states[0][:, earlier], recurrent)
    torch.tanh(gate, out=states[0][:, here])


def _rnn_back(gates: Tensor, states: list[Tensor], here: slice, earlier: _Earlier, dh: Tensor, extra: Any) -> Tensor:
    h = states[0][:, here]
    return torch.mul(dh, 1 - h * h, out=gates[:, here])
