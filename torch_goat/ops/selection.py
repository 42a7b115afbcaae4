"""Random orders, and at most ``k`` neighbours besides the node itself, without a loop over nodes."""

import torch
from torch import Tensor

from torch_goat.ops.neighborhoods import Neighborhoods


def keep_random(hood: Neighborhoods, k: int, fresh: bool, n_id: Tensor | None = None) -> Tensor:
    """Marks the node itself and ``k`` uniformly drawn neighbours of each target, without replacement ``[E]``.

    Args:
        hood: The neighbourhoods.
        k: How many neighbours to keep.
        fresh: ``True`` draws anew from PyTorch's generator. ``False`` gives one fixed draw, a function of the two node
            numbers of an edge alone, so that it is the same on every device and whatever the rest of the graph is.
        n_id: The numbers of the nodes in the graph that this is a part of ``[N]``; a fixed draw goes by these.
    """
    own = hood.own
    shuffled = random_order(hood, fresh, n_id=n_id)
    keep = torch.empty_like(own)
    keep[shuffled] = _rank_of_others(own[shuffled], hood.target, hood.ptr) < k
    return keep | own


def random_order(hood: Neighborhoods, fresh: bool, number: int = 0, n_id: Tensor | None = None) -> Tensor:
    """The tokens of each target in a uniformly drawn order ``[E]``; targets keep their places.

    Args:
        hood: The neighbourhoods.
        fresh: ``True`` draws anew from PyTorch's generator, ``False`` gives one fixed draw, as in :func:`keep_random`.
        number: Which fixed draw; different numbers give independent orders.
        n_id: The numbers of the nodes in the graph that this is a part of ``[N]``; a fixed draw goes by these.
    """
    if fresh:
        draw = torch.randint(2**31, hood.source.shape, device=hood.source.device)
    else:
        target, source = (hood.target, hood.source) if n_id is None else (n_id[hood.target], n_id[hood.source])
        draw = _hash(_hash(target) + source)
        draw = _hash(draw + _copy_number(hood) + (number << 32)) >> 33 & (2**31 - 1)
    return torch.argsort((hood.target << 32) + draw, stable=True)


def keep_top(hood: Neighborhoods, token: Tensor, k: int) -> Tensor:
    """Marks the node itself and the first ``k`` neighbours of each target and head in the order ``token`` ``[K, E]``.

    Every head keeps the same number for a target, though not the same neighbours.
    """
    own = hood.own[token]  # [K, E]
    return own | (_rank_of_others(own, hood.target, hood.ptr) < k)


def _rank_of_others(own: Tensor, target: Tensor, ptr: Tensor) -> Tensor:
    """How many neighbours other than the node itself stand before each place of its run ``[..., E]``."""
    others = (~own).long()
    before = others.cumsum(dim=-1) - others
    if before.size(-1) == 0:
        return before
    return before - before[..., ptr[:-1].clamp(max=before.size(-1) - 1)][..., target]


def _copy_number(hood: Neighborhoods) -> Tensor:
    """0 for the first of equal edges, 1 for the second, and so on ``[E]``: they stand beside each other."""
    place = torch.arange(hood.source.numel(), device=hood.source.device)
    new = torch.ones_like(hood.source, dtype=torch.bool)
    new[1:] = (hood.source[1:] != hood.source[:-1]) | (hood.target[1:] != hood.target[:-1])
    return place - torch.cummax(place * new, dim=0).values


def _hash(value: Tensor) -> Tensor:
    """A mixing function on 64-bit integers (the finalizer of splitmix64), the same on every device."""
    value = value + -7046029254386353131
    value = (value ^ (value >> 30 & 0x3FFFFFFFF)) * -4658895280553007687
    value = (value ^ (value >> 27 & 0x1FFFFFFFFF)) * -7723592293110705685
    return value ^ (value >> 31 & 0x1FFFFFFFF)
