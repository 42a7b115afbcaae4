import torch
from torch import Tensor


@torch.library.custom_op("torch_goat::sort_tokens", mutates_args=())
def sort_tokens(score: Tensor, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Eq. 2 of the paper: the tokens of each neighbourhood in decreasing order of score, ties by Algorithm 1.

    Args:
        score: The scores ``[E, K]``, float32 or float64.
        x: The layer's input states ``[S, F]``, read only if two tokens of different sources tie.
        source: The source of each token ``[E]``.
        target: The target of each token ``[E]``, ascending.

    Returns:
        The tokens in order ``[K, E]``. Neighbourhoods keep their places; tokens that are equal in every respect stay
        in the order of ``source``.
    """
    if score.numel() == 0:
        return torch.zeros(score.size(1), score.size(0), dtype=torch.long, device=score.device)
    score = score.detach().t() + 0.0  # [K, E]; -0 becomes 0, which it equals
    token = _sort_float32(score, target) if score.dtype == torch.float32 else _sort(score, target)
    ordered = score.gather(1, token)
    tied = (ordered[:, 1:] == ordered[:, :-1]) & (target[1:] == target[:-1])  # [K, E - 1], with its predecessor
    ordered_source = source[token]
    if bool((tied & (ordered_source[:, 1:] != ordered_source[:, :-1])).any()):
        token = _resolve_ties(token, tied, x.detach(), ordered_source)
    return token


@sort_tokens.register_fake
def _(score: Tensor, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return score.new_empty(score.size(1), score.size(0), dtype=torch.long)


def _sort_float32(score: Tensor, target: Tensor) -> Tensor:
    """One stable sort of a 64-bit key: the target, then the score as an integer that falls as the score grows."""
    bits = score.contiguous().view(torch.int32)
    rising = bits ^ (bits >> 31 & 0x7FFFFFFF)
    key = (target << 32) + (~rising).long() + 2**31  # [K, E]
    return key.sort(dim=-1, stable=True).indices


def _sort(score: Tensor, target: Tensor) -> Tensor:
    by_score = score.argsort(dim=-1, descending=True, stable=True)  # [K, E]
    return by_score.gather(1, target[by_score].argsort(dim=-1, stable=True))


def _resolve_ties(token: Tensor, tied: Tensor, x: Tensor, source: Tensor) -> Tensor:
    """Algorithm 1: tokens of equal score in ascending order of the first element in which their states differ."""
    follows = torch.nn.functional.pad(tied, (1, 0))  # [K, E]: has the score of the token before it
    member = follows | torch.nn.functional.pad(tied, (0, 1))
    group = (~follows).flatten().cumsum(0)[member.flatten()]  # [M], M tokens are in some tie
    node, inverse = source[member].unique(return_inverse=True)
    rank = x[node].unique(dim=0, return_inverse=True)[1]  # rows in lexicographic order, equal rows equal
    order = torch.argsort(group * node.numel() + rank[inverse], stable=True)
    resolved = token.clone()
    resolved[member] = token[member][order]
    return resolved
