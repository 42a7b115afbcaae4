"""The ragged RNN in plain PyTorch: all heads and both directions advance together, one step of all segments at a time.

Segments are sorted by length, longest first. At step t those that are longer than t are a prefix of this list, so that
a step is a few calls on contiguous slices, without padding. In step-major order, the places of step t are
``offset[t] .. offset[t] + count[t]``.
"""

import sys
from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.interface import Gradients, Inputs
from torch_goat.ops.segments import Segments

DESCRIPTION = "all heads and directions batched in plain PyTorch, on any device"


def max_hidden(arithmetic: torch.dtype) -> int:
    return sys.maxsize


def devices() -> tuple[str, ...]:
    return ("cpu", "cuda")


def unavailable() -> str | None:
    return None


class _Schedule(NamedTuple):
    steps: list[tuple[int, int]]  # offset and count of each step
    nonempty: Tensor  # [T'], the targets with at least one place, longest first
    last: Tensor  # [T'], the step-major place of the last step of each
    place: Tensor  # [D, E], the step-major place of each place
    at: Tensor  # [D, E], the inverse: the place behind each step-major place


def _schedule(segments: Segments, directions: int) -> _Schedule:
    return segments.memo.compute(("torch", directions), lambda: _make_schedule(segments, directions))


def _make_schedule(segments: Segments, directions: int) -> _Schedule:
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
    return _Schedule(steps, nonempty, last, place, at)


def _gather(schedule: _Schedule, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    """Rows of ``projected`` by step-major place ``[K, D, E]``, and their coefficients ``[K, D, E]``."""
    heads, num_sources, directions, _ = inputs.projected.shape
    head = torch.arange(heads, device=schedule.at.device).view(-1, 1, 1)
    direction = torch.arange(directions, device=schedule.at.device).view(1, -1, 1)
    row = (head * num_sources + inputs.places.source[:, schedule.at]) * directions + direction
    return row, None if inputs.weight is None else inputs.weight[:, schedule.at]


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    projected, places, _, weight_hh, bias_ih, bias_hh = inputs
    heads, _, directions, _ = projected.shape
    hidden = weight_hh.size(-1)
    schedule = _schedule(places.segments, directions)
    row, scale = _gather(schedule, inputs)
    bias = bias_ih if kind == "gru" else bias_ih + bias_hh
    gates = _rows(projected, row).to(weight_hh.dtype)  # [K, D, E, G * H]
    if scale is not None:
        gates *= scale.unsqueeze(-1)
    gates += bias.unsqueeze(2)

    gates = gates.flatten(0, 1)  # [KD, E, G * H]
    recurrent = weight_hh.flatten(0, 1).transpose(1, 2)  # [KD, H, G * H]
    states = _STEPS[kind].forward(schedule.steps, gates, recurrent, bias_hh.flatten(0, 1))  # each [KD, E, H]
    out = projected.new_zeros(places.segments.num_segments, heads, directions, hidden)
    final = states[0].index_select(1, schedule.last).unflatten(0, (heads, directions))
    out[schedule.nonempty] = final.permute(2, 0, 1, 3).to(out.dtype)
    return out.flatten(2), [gates, *states] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    projected, places, _, weight_hh, *_ = inputs
    heads, _, directions, _ = projected.shape
    hidden = weight_hh.size(-1)
    schedule = _schedule(places.segments, directions)
    row, scale = _gather(schedule, inputs)
    gates, states = saved[0].clone(), saved[1:]
    grad = grad[schedule.nonempty].to(weight_hh.dtype).view(-1, heads, directions, hidden)
    grad = grad.permute(1, 2, 0, 3).flatten(0, 1)  # [KD, T', H], by rank

    recurrent = weight_hh.flatten(0, 1)  # [KD, G * H, H]
    grad_hh, grad_bias_hh = _STEPS[kind].backward(schedule.steps, gates, states, grad, recurrent)
    grad_gates = gates.view(*row.shape, gates.size(-1))  # [K, D, E, G * H], now gradients
    grad_bias = grad_gates.sum(dim=2)
    grad_bias_hh = grad_bias.clone() if grad_bias_hh is None else grad_bias_hh.view_as(grad_bias)

    at_place = schedule.place.expand(heads, -1, -1)  # [K, D, E]
    grad_scale = (grad_gates * _rows(projected, row)).sum(dim=-1)  # [K, D, E]
    grad_weight = grad_scale.gather(2, at_place).sum(dim=1)  # [K, E]
    if scale is not None:
        grad_gates *= scale.unsqueeze(-1)
    grad_projected = projected.new_zeros(projected.shape, dtype=weight_hh.dtype).view(-1, grad_gates.size(-1))
    grad_projected.scatter_add_(0, row.view(-1, 1).expand(-1, grad_gates.size(-1)), grad_gates.flatten(0, 2))
    return Gradients(
        grad_projected.view_as(projected).to(projected.dtype),
        grad_weight,
        grad_hh.view_as(weight_hh),
        grad_bias,
        grad_bias_hh,
    )


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    heads, _, directions, width = inputs.projected.shape
    hidden = inputs.weight_hh.size(-1)
    widths = [width, *[hidden] * _STEPS[kind].num_states]
    return [inputs.weight_hh.new_empty(heads * directions, inputs.places.source.size(1), width) for width in widths]


def _rows(projected: Tensor, row: Tensor) -> Tensor:
    width = projected.size(-1)
    return projected.reshape(-1, width).index_select(0, row.flatten()).view(*row.shape, width)


# The steps of each cell. `gates` [KD, E, G * H] holds the input's share of the gates before the forward, the activated
# gates after it, and the gradient of the gates after the backward, in place. `start, n` is a step's slice of places:
# the first n segments of the step before it have this step, too.


class _LSTM:
    num_states = 2

    @staticmethod
    def forward(steps: list[tuple[int, int]], gates: Tensor, recurrent: Tensor, bias_hh: Tensor) -> list[Tensor]:
        hidden = recurrent.size(1)
        h_all = gates.new_empty(*gates.shape[:2], hidden)
        c_all = torch.empty_like(h_all)
        before = None
        for start, n in steps:
            here = slice(start, start + n)
            gate, h, c = gates[:, here], h_all[:, here], c_all[:, here]
            if before is not None:
                gate.baddbmm_(h_all[:, before][:, :n], recurrent)
            gate[..., : 2 * hidden].sigmoid_()
            gate[..., 2 * hidden : 3 * hidden].tanh_()
            gate[..., 3 * hidden :].sigmoid_()
            i, f, g, o = gate.chunk(4, dim=-1)
            torch.mul(i, g, out=c)
            if before is not None:
                c.addcmul_(f, c_all[:, before][:, :n])
            torch.tanh(c, out=h).mul_(o)
            before = here
        return [h_all, c_all]

    @staticmethod
    def backward(
        steps: list[tuple[int, int]], gates: Tensor, states: list[Tensor], grad_h: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, None]:
        h_all, c_all = states
        grad_c = torch.zeros_like(grad_h)
        grad_hh = torch.zeros_like(recurrent)
        for step in reversed(range(len(steps))):
            start, n = steps[step]
            gate, c = gates[:, start : start + n], c_all[:, start : start + n]
            i, f, g, o = gate.chunk(4, dim=-1)
            dh, dc = grad_h[:, :n], grad_c[:, :n]
            tanh_c = c.tanh()
            dc += dh * o * (1 - tanh_c * tanh_c)
            do = dh * tanh_c * o * (1 - o)
            di = dc * g * i * (1 - i)
            dg = dc * i * (1 - g * g)
            if step == 0:
                df = torch.zeros_like(f)
            else:
                earlier = slice(steps[step - 1][0], steps[step - 1][0] + n)
                df = dc * c_all[:, earlier] * f * (1 - f)
                dc *= f
            torch.cat([di, df, dg, do], dim=-1, out=gate)
            if step > 0:
                torch.bmm(gate, recurrent, out=dh)
                grad_hh.baddbmm_(gate.transpose(1, 2), h_all[:, earlier])
        return grad_hh, None


class _GRU:
    num_states = 2

    @staticmethod
    def forward(steps: list[tuple[int, int]], gates: Tensor, recurrent: Tensor, bias_hh: Tensor) -> list[Tensor]:
        hidden = recurrent.size(1)
        h_all = gates.new_empty(*gates.shape[:2], hidden)
        n_all = torch.empty_like(h_all)  # the recurrent share of the new gate, before it is reset
        before = None
        for start, n in steps:
            here = slice(start, start + n)
            gate, h = gates[:, here], h_all[:, here]
            share = bias_hh.unsqueeze(1).expand(-1, n, -1)
            if before is not None:
                earlier = h_all[:, before][:, :n]
                share = torch.baddbmm(share, earlier, recurrent)
            gate[..., : 2 * hidden].add_(share[..., : 2 * hidden]).sigmoid_()
            n_all[:, here] = share[..., 2 * hidden :]
            r, z, new = gate.chunk(3, dim=-1)
            new.addcmul_(r, n_all[:, here]).tanh_()
            torch.mul(1 - z, new, out=h)
            if before is not None:
                h.addcmul_(z, earlier)
            before = here
        return [h_all, n_all]

    @staticmethod
    def backward(
        steps: list[tuple[int, int]], gates: Tensor, states: list[Tensor], grad_h: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, Tensor]:
        h_all, n_all = states
        grad_hh = torch.zeros_like(recurrent)
        grad_bias = recurrent.new_zeros(recurrent.shape[:2])
        for step in reversed(range(len(steps))):
            start, n = steps[step]
            here = slice(start, start + n)
            gate = gates[:, here]
            r, z, new = gate.chunk(3, dim=-1)
            dh = grad_h[:, :n]
            dnew = dh * (1 - z) * (1 - new * new)
            dr = dnew * n_all[:, here] * r * (1 - r)
            if step == 0:
                dz = -dh * new * z * (1 - z)
            else:
                earlier = h_all[:, steps[step - 1][0] : steps[step - 1][0] + n]
                dz = dh * (earlier - new) * z * (1 - z)
            dshare = torch.cat([dr, dz, dnew * r], dim=-1)  # gradient of the recurrent share
            if step > 0:
                dh *= z
                dh.baddbmm_(dshare, recurrent)
                grad_hh.baddbmm_(dshare.transpose(1, 2), earlier)
            torch.cat([dr, dz, dnew], dim=-1, out=gate)
            grad_bias += dshare.sum(dim=1)
        return grad_hh, grad_bias


class _RNN:
    num_states = 1

    @staticmethod
    def forward(steps: list[tuple[int, int]], gates: Tensor, recurrent: Tensor, bias_hh: Tensor) -> list[Tensor]:
        before = None
        for start, n in steps:
            here = slice(start, start + n)
            if before is not None:
                gates[:, here].baddbmm_(gates[:, before][:, :n], recurrent)
            gates[:, here].tanh_()
            before = here
        return [gates.clone()]  # the one gate is the state; the backward overwrites its copy

    @staticmethod
    def backward(
        steps: list[tuple[int, int]], gates: Tensor, states: list[Tensor], grad_h: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, None]:
        (h_all,) = states
        grad_hh = torch.zeros_like(recurrent)
        for step in reversed(range(len(steps))):
            start, n = steps[step]
            gate = gates[:, start : start + n]
            dh = grad_h[:, :n]
            torch.mul(dh, 1 - gate * gate, out=gate)
            if step > 0:
                torch.bmm(gate, recurrent, out=dh)
                grad_hh.baddbmm_(gate.transpose(1, 2), h_all[:, steps[step - 1][0] : steps[step - 1][0] + n])
        return grad_hh, None


_STEPS: dict[str, type[_LSTM] | type[_GRU] | type[_RNN]] = {"lstm": _LSTM, "gru": _GRU, "rnn": _RNN}
