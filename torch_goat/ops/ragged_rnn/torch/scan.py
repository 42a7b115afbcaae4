"""minGRU and minLSTM in plain PyTorch.

A step h' = (1 - z) h + z n is a linear map of the state, and so is what several steps do in a row. In round r, the map
of every place, of the 2^r steps that end there, is combined with that of the 2^r steps before: log(longest) rounds
give the states of all places. In direction 1 all places are reversed, which keeps segments together.
"""

import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.interface import GATES, Gradients, Inputs
from torch_goat.ops.ragged_rnn.torch.steps import gather, input_share, to_inputs
from torch_goat.ops.segments import Segments


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    projected, segments = inputs.projected, inputs.places.segments
    at, step, _ = _reading_order(segments, projected.size(2))
    gates = input_share(inputs, *gather(inputs, at), inputs.bias_ih)  # [K, D, E, G * H]
    z, new = _update(kind, gates)
    states = _scan(1 - z, z * new, step)  # [K, D, E, H]
    nonempty, last = _ends(segments, at)
    out = projected.new_zeros(segments.num_segments, *_widths(kind, projected))
    out[nonempty] = _at_ends(states, last).permute(2, 0, 1, 3).to(out.dtype)
    return out.flatten(2), [states] if save else []


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    projected, segments = inputs.projected, inputs.places.segments
    at, step, left = _reading_order(segments, projected.size(2))
    row, scale = gather(inputs, at)
    gates = input_share(inputs, row, scale, inputs.bias_ih)
    z, new = _update(kind, gates)
    (states,) = saved
    nonempty, last = _ends(segments, at)
    grad = grad.view(-1, *_widths(kind, projected))[nonempty].permute(1, 2, 0, 3)  # [K, D, T', H]
    at_end = torch.zeros_like(states)
    at_end.scatter_(2, last.view(1, last.size(0), -1, 1).expand_as(grad), grad.to(states.dtype))
    # The gradient flows back by the same rule: g = (1 - z') g', where ' is the step after.
    keep_after = (1 - z).roll(-1, dims=2)
    grad_h = _scan(keep_after.flip(2), at_end.flip(2), left.flip(1)).flip(2)
    before = torch.where((step > 0).unsqueeze(-1), states.roll(1, dims=2), 0)
    grad_new = grad_h * z
    through = grad_new * (1 - z) * (new - before)  # of what the logistic function is applied to
    if kind == "mingru":
        grad_gates = torch.cat([through, grad_new], dim=-1)
    else:
        i, f, _ = gates.chunk(3, dim=-1)
        grad_gates = torch.cat([through * torch.sigmoid(-i), -through * torch.sigmoid(-f), grad_new], dim=-1)
    grad_bias = grad_gates.sum(dim=2)
    of_inputs = to_inputs(projected, row, scale, at, grad_gates)
    return Gradients(*of_inputs, torch.zeros_like(inputs.weight_hh), grad_bias, torch.zeros_like(inputs.bias_hh))


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    heads, directions, hidden = _widths(kind, inputs.projected)
    return [inputs.bias_ih.new_empty(heads, directions, inputs.places.source.size(1), hidden)]


def _widths(kind: str, projected: Tensor) -> tuple[int, int, int]:
    """K, D and H."""
    heads, _, directions, width = projected.shape
    return heads, directions, width // GATES[kind]


def _reading_order(segments: Segments, directions: int) -> tuple[Tensor, Tensor, Tensor]:
    """The place behind each place in the order of reading, and the steps before and after it, each ``[D, E]``."""
    place = torch.arange(segments.num_places, device=segments.ptr.device)
    before = place - segments.ptr[segments.index]
    after = segments.sizes - 1 - before
    both = [(place, before, after), (place.flip(0), after.flip(0), before.flip(0))]
    at, step, left = (torch.stack(one) for one in zip(*both[:directions], strict=True))
    return at, step, left


def _ends(segments: Segments, at: Tensor) -> tuple[Tensor, Tensor]:
    """The targets with places ``[T']`` and, in the order of reading, their last place ``[D, T']``."""
    start, end = segments.ptr[:-1], segments.ptr[1:]
    nonempty = (end > start).nonzero().view(-1)
    both = [end[nonempty] - 1, at.size(1) - 1 - start[nonempty]]
    return nonempty, torch.stack(both[: at.size(0)])


def _at_ends(states: Tensor, last: Tensor) -> Tensor:
    heads, directions, _, hidden = states.shape
    return states.gather(2, last.view(1, directions, -1, 1).expand(heads, -1, -1, hidden))


def _update(kind: str, gates: Tensor) -> tuple[Tensor, Tensor]:
    """The update gate z and the new state n, each ``[K, D, E, H]``."""
    if kind == "mingru":
        z, new = gates.chunk(2, dim=-1)
        return torch.sigmoid(z), new
    i, f, new = gates.chunk(3, dim=-1)
    return torch.sigmoid(torch.nn.functional.softplus(-f) - torch.nn.functional.softplus(-i)), new


def _scan(keep: Tensor, add: Tensor, step: Tensor) -> Tensor:
    """The states h' = keep h + add of all places ``[K, D, E, H]``, from h = 0 where ``step`` ``[D, E]`` is 0.

    Both inputs are overwritten.
    """
    shift, longest = 1, int(step.max()) if step.numel() else 0
    while shift <= longest:
        inside = (step[:, shift:] >= shift).unsqueeze(-1)
        add[:, :, shift:] += torch.where(inside, keep[:, :, shift:] * add[:, :, :-shift], 0)
        keep[:, :, shift:] *= torch.where(inside, keep[:, :, :-shift], 1)
        shift *= 2
    return add
