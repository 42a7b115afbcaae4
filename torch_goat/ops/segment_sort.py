"""Eq. 2 on the CPU, compiled by numba: neighbourhoods are sorted one by one, most of them within the cache."""

# mypy: allow-untyped-defs

import numpy as np
import torch
from numba import njit
from torch import Tensor

from torch_goat.ops.compiling import compiled
from torch_goat.ops.threads import run_all

_CHUNKS = 8  # of tokens, which threads share
_RUN = 32  # places whose rank is counted, which takes vector instructions and no branch


def sort_by_score(score: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens of each target by decreasing score, those of equal score as they are.

    Args:
        score: The scores ``[K, E]``, float32, of at least one token.
        source: The source of each token ``[E]``.
        target: The target of each token ``[E]``, ascending.

    Returns:
        The tokens in order, their sources, and whether each has the score and the target of the one before ``[K, E]``.
    """
    token, ordered = (score.new_empty(score.shape, dtype=torch.long) for _ in range(2))
    tied = score.new_empty(score.shape, dtype=torch.bool)
    arrays = [value.contiguous().numpy() for value in (score, source, target)]
    outputs = [value.numpy() for value in (token, ordered, tied)]
    # Each chunk has the targets whose first token is in it.
    cuts = np.linspace(0, score.size(1), _CHUNKS + 1).astype(np.int64)
    bounds = [*np.searchsorted(arrays[2], arrays[2][cuts[:-1]]).tolist(), score.size(1)]
    run_all(lambda first, last: _sort(*arrays, *outputs, bounds[first], bounds[last]), _CHUNKS, score.numel())
    return token, ordered, tied


@compiled
def _sort(score, source, target, token, ordered, tied, first, last):
    """The targets of the tokens ``first`` to ``last``."""
    longest, begin = 0, first
    for at in range(first, last):
        if target[at] != target[begin]:
            begin = at
        longest = max(longest, at + 1 - begin)
    value, keys = np.empty(longest, np.float32), np.empty((2, longest), np.int64)
    for head in range(score.shape[0]):
        begin = first
        while begin < last:
            size = 0
            while begin + size < last and target[begin + size] == target[begin]:
                value[size] = score[head, begin + size]
                size += 1
            key = sort_places(value, keys, size)
            for i in range(size):
                at = begin + (key[i] & 0xFFFFFFFF)
                token[head, begin + i], ordered[head, begin + i] = at, source[at]
                tied[head, begin + i] = i > 0 and key[i] >> 32 == key[i - 1] >> 32
            begin += size


@njit
def sort_places(value, keys, size):
    """The places of the first ``size`` values, float32, by decreasing value, those of equal value as they are.

    Returns one of the two rows of ``keys``, int64, which are overwritten. A key has the place in its lower 32 bits and
    the value, as an integer that decreases with it, in the upper ones: no two keys are equal.
    """
    now, then = keys[0], keys[1]
    bits = value.view(np.int32)
    for i in range(size):
        value[i] += np.float32(0)  # -0 becomes 0, which it equals
        bit = np.int64(bits[i])
        now[i] = (~(bit ^ (bit >> 31 & 0x7FFFFFFF)) << 32) | i
    for first in range(0, size, _RUN):
        run, ranked = now[first : min(first + _RUN, size)], then[first:]
        for i in range(run.size):
            own, rank = run[i], 0
            for j in range(run.size):
                rank += run[j] < own
            ranked[rank] = own
    width = _RUN
    while width < size:
        now, then = then, now
        for first in range(0, size, 2 * width):
            _merge(now, then, first, min(first + width, size), min(first + 2 * width, size))
        width *= 2
    return then


@njit
def _merge(keys, merged, first, middle, last):
    """Merges the sorted keys ``first`` to ``middle`` and ``middle`` to ``last``."""
    left, right = first, middle
    for to in range(first, last):
        take_left = right == last or (left < middle and keys[left] < keys[right])
        merged[to] = keys[left] if take_left else keys[right]
        left += take_left
        right += not take_left
