import functools
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_goat.ops.checks import transforming
from torch_goat.ops.segments import Segments


def sort_tokens(score: Tensor, x: Tensor, source: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    """Eq. 2: sorts the tokens of each neighbourhood by decreasing score, with ties broken by Algorithm 1.

    Args:
        score: The scores ``[K, E]``, float32 or float64.
        x: The input states of the layer ``[S, F]``, read only where two tokens of different sources tie.
        source: The source of each token ``[E]``.
        target: The target of each token ``[E]``, ascending.
        num_targets: The number of targets T.

    Returns:
        The tokens in order and their sources, both ``[K, E]``. Segments stay where they are; tokens that are equal in
        every respect stay in the order of ``source``.
    """
    sort = _operator if torch.compiler.is_compiling() else _sorted
    return sort(score, x, source, target, num_targets)


def _sorted(score: Tensor, x: Tensor, source: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    score = score.detach().contiguous()
    if score.numel() == 0:
        return torch.zeros_like(score, dtype=torch.long), torch.zeros_like(score, dtype=torch.long)
    if score.device.type == "cpu" and score.dtype == torch.float32 and _has("numba") and not transforming():
        from torch_goat.ops.segment_sort import sort_by_score  # numba is optional

        return _resolve_ties(*sort_by_score(score, source, target), x, source)
    token, tied = _by_score(score, target, num_targets)
    if score.is_cuda and _has("triton") and x.layout == torch.strided:
        from torch_goat.ops.ties import resolve_ties  # Triton is optional

        token = resolve_ties(token, tied, x, source)
        return token, source[token]
    return _resolve_ties(token, source[token], tied, x, source)


def sort_segments(value: Tensor, segments: Segments) -> Tensor:
    """The places ``[K, E]`` of each segment by decreasing value ``[K, E]``, those of equal value as they are."""
    return _by_score(value, segments.index, segments.num_segments)[0] if value.numel() else value.long()


def _by_score(score: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    """The tokens by target and score, and whether each has the target and the score of the one before ``[K, E]``."""
    fits = score.size(0) * num_targets < 2**31
    token, tied = (_sort_float32 if score.dtype == torch.float32 and fits else _sort)(score, target, num_targets)
    return token, pad(tied, (1, 0))


@functools.cache
def _has(package: str) -> bool:
    return find_spec(package) is not None


# For torch.compile and torch.export, sorting is an opaque operator, since its control flow depends on the data.
_operator = torch.library.custom_op("torch_goat::sort_tokens", _sorted, mutates_args=())


@_operator.register_fake
def _(score: Tensor, x: Tensor, source: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    return score.new_empty(score.shape, dtype=torch.long), score.new_empty(score.shape, dtype=torch.long)


def _sort_float32(score: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    """One stable sort of a 64-bit key: head and target, then the score as an integer that decreases with it."""
    heads, num_tokens = score.shape
    bits = (score + 0.0).view(torch.int32)  # -0 becomes 0, which it equals
    rising = bits ^ (bits >> 31 & 0x7FFFFFFF)
    segment = torch.arange(heads, device=score.device).view(-1, 1) * num_targets + target  # [K, E]
    key = (segment << 32) - rising
    if score.is_cuda:
        # All heads at once: PyTorch sorts twice to sort the rows of a matrix.
        flat, place = key.view(-1).sort(stable=True)
        key, token = flat.view_as(key), place.view_as(key) % num_tokens
    else:
        key, token = key.sort(dim=-1, stable=True)
    return token, key[:, 1:] == key[:, :-1]


def _sort(score: Tensor, target: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    by_score = score.argsort(dim=-1, descending=True, stable=True)  # [K, E]
    token = by_score.gather(1, target[by_score].argsort(dim=-1, stable=True))
    score = score.gather(1, token)
    return token, (score[:, 1:] == score[:, :-1]) & (target.diff() == 0)


def _resolve_ties(token: Tensor, ordered: Tensor, tied: Tensor, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Algorithm 1: sorts tokens of equal score by the first element in which their states differ, ascending.

    ``token`` are the tokens by score, ``ordered`` their sources, and ``tied`` tells whether a token has the target and
    the score of the one before it, all ``[K, E]``.
    """
    tied, node = tied.flatten(), ordered.flatten()
    later = tied.nonzero().view(-1)  # all but the first place of every group of one score
    # Most ties are between equal states, for example of nodes whose features were all dropped: these stay.
    differs = later[node[later] != node[later - 1]]
    if differs.numel():
        differs = differs[_differ(x, node[differs - 1], node[differs])]
    if differs.numel() == 0:
        return token, ordered
    member = torch.cat([later, later[~tied[later - 1]] - 1]).sort()[0]
    group = (~tied[member]).cumsum(0)
    mixed = torch.isin(group, group[torch.searchsorted(member, differs)])
    member, group = member[mixed], group[mixed]
    states, inverse = node[member].unique(return_inverse=True)
    rank = _rows(x, states).unique(dim=0, return_inverse=True)[1]  # rows in lexicographic order, equal rows equal
    order = torch.argsort(group * states.numel() + rank[inverse], stable=True)
    resolved = token.flatten().index_copy(0, member, token.flatten()[member[order]]).view_as(token)
    return resolved, source[resolved]


def _differ(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Whether the states of two nodes differ, for pairs of nodes ``[P]``, in chunks of limited memory."""
    pair, inverse = (first * x.size(0) + second).unique(return_inverse=True)
    chunks = pair.split(max(1, 2**24 // max(1, x.size(1))))
    halves = ((_rows(x, chunk // x.size(0)), _rows(x, chunk % x.size(0))) for chunk in chunks)
    return torch.cat([(one != other).any(dim=1) for one, other in halves])[inverse]


def _rows(x: Tensor, node: Tensor) -> Tensor:
    """The states of nodes ``[P, F]``, which can be sparse."""
    return x[node] if x.layout == torch.strided else x.to_sparse_coo().index_select(0, node).to_dense()
