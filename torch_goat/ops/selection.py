"""Selections of at most ``k`` neighbours besides the node itself, and the orders of neighbours."""

import torch
from torch import Tensor
from torch_geometric.utils import lexsort

from torch_goat.ops.neighborhoods import Neighborhoods
from torch_goat.ops.sort import sort_tokens
from torch_goat.ops.splitmix import STEP, mix


def keep_random(
    hood: Neighborhoods, k: int, fresh: bool, n_id: Tensor | None = None, bipartite: bool = False
) -> Tensor:
    """Marks the node itself and ``k`` neighbours of each target, drawn uniformly without replacement ``[E]``.

    Args:
        hood: The neighbourhoods.
        k: The number of neighbours to keep.
        fresh: ``True`` draws from PyTorch's generator. ``False`` is a fixed draw that depends only on the two node
            numbers of an edge: it is the same on every device and in every part of a graph.
        n_id: The numbers of the nodes in the whole graph ``[N]``, used by a fixed draw.
        bipartite: Whether sources and targets are different node sets, so that no source is the target itself.
    """
    own = _own(hood, bipartite)
    shuffled = random_order(hood, fresh, n_id=n_id)
    keep = torch.empty_like(own)
    keep[shuffled] = _rank_of_others(own[shuffled], hood.target, hood.ptr) < k
    return keep | own


def random_order(hood: Neighborhoods, fresh: bool, number: int = 0, n_id: Tensor | None = None) -> Tensor:
    """The tokens of each target in a uniformly drawn order ``[E]``; segments stay where they are.

    Arguments as in :func:`keep_random`. Fixed draws with different ``number`` are independent.
    """
    if fresh:
        draw = torch.randint(2**31, hood.source.shape, device=hood.source.device)
    else:
        target, source = hood.target, hood.source
        if n_id is not None:
            n_id = n_id.long()  # hashed in 64 bits
            target, source = n_id[target], n_id[source]
        draw = mix(mix(mix(target + STEP) + source + STEP) + _copy_number(hood) + (number << 32) + STEP)
        draw = draw >> 33 & (2**31 - 1)
    return torch.argsort((hood.target << 32) + draw, stable=True)


def keep_top(hood: Neighborhoods, token: Tensor, k: int, bipartite: bool = False) -> Tensor:
    """Marks the node itself and the first ``k`` neighbours of each target and head in the order ``token`` ``[K, E]``.

    Every head keeps the same number of neighbours of a target, though not the same ones.
    """
    own = _own(hood, bipartite)[token]  # [K, E]
    return own | (_rank_of_others(own, hood.target, hood.ptr) < k)


def sort_neighbors(
    score: Tensor,
    x: Tensor,
    edge_attr: Tensor | None,
    hood: Neighborhoods,
    rank: Tensor | None,
    top: int | None,
    bipartite: bool = False,
) -> tuple[Tensor, Tensor]:
    """The tokens that each head reads, in order, and their sources ``[K, E]``.

    Args:
        score: The scores by token ``[K, E]``.
        x: The states of the sources ``[S, F]``, which break ties.
        edge_attr: The edge features by token ``[E, D]``, which break ties of ``rank`` between equal states.
        hood: The neighbourhoods.
        rank: Numbers by token ``[E]`` whose decreasing order is read instead of that of the scores, if given.
        top: The number of neighbours with the highest scores that are read besides the node itself; all if ``None``.
        bipartite: As in :func:`keep_random`.
    """
    if rank is None:
        token, source = sort_tokens(score, x, hood.source, hood.target, hood.num_targets)
    else:
        token, source = (value.expand_as(score).contiguous() for value in _by_rank(rank, edge_attr, x, hood))
    if top is None:
        return token, source
    by_score = token
    if rank is not None:  # the scores decide, and the rank where they and the states are equal
        place = sort_tokens(score.gather(1, token), x, source[0], hood.target, hood.num_targets)[0]
        by_score = token.gather(1, place)
    kept = keep_top(hood, by_score, top, bipartite)  # [K, E], in the order of the scores
    kept = kept if rank is None else torch.empty_like(kept).scatter_(1, by_score, kept).gather(1, token)
    return token[kept].view(score.size(0), -1), source[kept].view(score.size(0), -1)


def _by_rank(rank: Tensor, edge_attr: Tensor | None, x: Tensor, hood: Neighborhoods) -> tuple[Tensor, Tensor]:
    """The tokens by decreasing rank, with ties broken by Algorithm 1 and then by the edge features ``[1, E]``."""
    before = torch.arange(hood.num_places, device=rank.device)  # tokens that are equal otherwise keep this order
    if edge_attr is not None:
        before = lexsort([*edge_attr.t().flip(0), hood.target])
    place, source = sort_tokens(
        rank[before].double().view(1, -1), x, hood.source[before], hood.target, hood.num_targets
    )
    return before[place], source


def _own(hood: Neighborhoods, bipartite: bool) -> Tensor:
    """Which tokens are the target itself ``[E]``."""
    same = hood.source == hood.target
    return torch.zeros_like(same) if bipartite else same


def _rank_of_others(own: Tensor, target: Tensor, ptr: Tensor) -> Tensor:
    """How many neighbours other than the node itself come before each place of its segment ``[..., E]``."""
    others = (~own).long()
    before = others.cumsum(dim=-1) - others
    if before.size(-1) == 0:
        return before
    return before - before[..., ptr[:-1].clamp(max=before.size(-1) - 1)][..., target]


def _copy_number(hood: Neighborhoods) -> Tensor:
    """0 for the first of equal edges, 1 for the second, and so on ``[E]``; equal edges are adjacent tokens."""
    place = torch.arange(hood.source.numel(), device=hood.source.device)
    new = torch.ones_like(hood.source, dtype=torch.bool)
    new[1:] = (hood.source[1:] != hood.source[:-1]) | (hood.target[1:] != hood.target[:-1])
    return place - torch.cummax(place * new, dim=0).values
