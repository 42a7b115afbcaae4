"""Algorithm 1 of the paper in Triton: ties are resolved in two launches, without a device synchronisation.

Tokens sorted by score form groups of equal score, and a group consists of *stretches*: adjacent tokens with equal
states. The first kernel marks where groups and stretches start and lists the stretches that start within a group,
usually few. The second ranks each stretch of such a group by counting, in parallel, so that a hub whose neighbours all
have the same score is not a chain of steps. A stretch moves as a whole; a group of one stretch stays.

NaN comes after all numbers and equals itself, so that the result is a permutation for all states.
"""

# Triton compiles a branch that returns only if the other one does, too.
# ruff: noqa: RET505
# mypy: allow-untyped-defs

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_goat.ops.launches import cdiv, on_device


class Sizes(NamedTuple):
    """Tuning parameters; the result does not depend on them."""

    places: int = 128  # per program that marks
    mark_features: int = 8  # compared at a time
    mark_warps: int = 4
    programs: int = 2048  # that share the list of stretches
    members: int = 8  # of a group, compared with one stretch at a time
    features: int = 64  # compared at a time
    scan: int = 128  # marks read at a time to find the end of a group
    warps: int = 1


SIZES = Sizes()  # so few registers that many programs run in parallel on an H200

# The mark of a place whose token does not have the score and the state of the one before it.
_NEW_STATE = tl.constexpr(1)
_NEW_SCORE = tl.constexpr(2)


def resolve_ties(
    token: Tensor, tied: Tensor, x: Tensor, source: Tensor, resolved: Tensor | None = None, sizes: Sizes = SIZES
) -> Tensor:
    """The tokens ``[K, E]``, sorted by score, with ties sorted by the first element in which states ``[S, F]`` differ.

    ``tied`` ``[K, E]`` marks tokens with the target and the score of the one before; ``source`` is ``[E]``. The result
    is written to ``resolved``, a copy of ``token``, if it is given.
    """
    token, source = token.contiguous(), source.contiguous()
    heads, num_places = token.shape
    mark = torch.empty_like(token, dtype=torch.int8)
    begin, count = torch.empty_like(token), token.new_zeros(1)  # the list of stretches, and how long it is
    resolved = token.clone() if resolved is None else resolved
    states = (x, x.size(1), *x.stride())
    with on_device(token):
        marks, tied = (source, mark, begin, count), tied.contiguous().view(torch.int8)
        constants = {"PLACES": sizes.places, "FEATURES": sizes.mark_features, "num_warps": sizes.mark_warps}
        mark_kernel[(cdiv(num_places, sizes.places), heads)](token, tied, *marks, num_places, *states, **constants)
        constants = {"MEMBERS": sizes.members, "FEATURES": sizes.features, "SCAN": sizes.scan}
        rank_kernel[(min(token.numel(), sizes.programs),)](
            token, *marks, resolved, token.numel(), *states, **constants, num_warps=sizes.warps
        )
    return resolved


@triton.jit
def load_states(x, node, column, mask, row, step):
    """Elements of the states of nodes, in float32 at least; ``row`` and ``step`` are the strides of ``x``."""
    value = tl.load(x + node * row + column * step, mask, 0.0)
    if value.dtype.primitive_bitwidth == 16:
        return value.to(tl.float32)
    else:
        return value


@triton.jit
def differ(value, other):
    return (value != other) & ((value == value) | (other == other))


@triton.jit
def precede(value, other):
    return (value < other) | ((value == value) & (other != other))


# Counts differ between graphs; do not recompile for counts that are 1 or divisible by 16.
@triton.jit(do_not_specialize=["num_places", "num_features"])
def mark_kernel(
    token,
    tied,
    source,
    mark,
    begin,
    count,
    num_places,
    x,
    num_features,
    row,
    step,
    PLACES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Marks ``PLACES`` places of a head, and adds to the list those whose state is another within one score."""
    head = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    inside = place < num_places
    same_score = tl.load(tied + head * num_places + place, inside, 0) != 0
    at = head * num_places + place
    new_state = tl.zeros([PLACES], tl.int32)
    if tl.max(same_score.to(tl.int32), axis=0) == 1:
        node = tl.load(source + tl.load(token + at, same_score, 0), same_score, 0)
        other = tl.load(source + tl.load(token + at - 1, same_score, 0), same_score, 0)
        unknown = (same_score & (node != other)).to(tl.int32)
        first = num_features.to(tl.int64) * 0
        more = (first < num_features) & (tl.max(unknown, axis=0) == 1)
        while more:
            column = first + tl.arange(0, FEATURES)[None, :]
            mask = (unknown == 1)[:, None] & (column < num_features)
            state = load_states(x, node[:, None], column, mask, row, step)
            other_state = load_states(x, other[:, None], column, mask, row, step)
            found = tl.max(differ(state, other_state).to(tl.int32), axis=1)
            new_state = tl.maximum(new_state, found)
            unknown = unknown * (1 - found)
            first += FEATURES
            more = (first < num_features) & (tl.max(unknown, axis=0) == 1)
        number = tl.sum(new_state, axis=0)
        if number > 0:
            slot = tl.atomic_add(count, number.to(tl.int64)) + tl.cumsum(new_state, axis=0) - 1
            tl.store(begin + slot, at, new_state == 1)
    tl.store(mark + at, tl.where(same_score, new_state * _NEW_STATE, _NEW_SCORE).to(tl.int8), inside)


@triton.jit
def last_before(mark, place, level, SCAN: tl.constexpr):
    """The last place before ``place`` with a mark of at least ``level``; there is one."""
    found = place * 0 - 1
    last = place - 1
    while found < 0:
        at = last - tl.arange(0, SCAN)
        found = tl.max(tl.where(tl.load(mark + at, at >= 0, 0) >= level, at, -1), axis=0)
        last -= SCAN
    return found


@triton.jit
def first_after(mark, place, num_marks, level, SCAN: tl.constexpr):
    """The first place after ``place`` with a mark of at least ``level``, or the number of marks."""
    found = num_marks
    first = place + 1
    more = first < num_marks
    while more:
        at = first + tl.arange(0, SCAN)
        found = tl.min(tl.where(tl.load(mark + at, at < num_marks, 0) >= level, at, num_marks), axis=0)
        first += SCAN
        more = (found == num_marks) & (first < num_marks)
    return found


@triton.jit
def go_first(at, node, present, place, own, x, num_features, row, step, MEMBERS: tl.constexpr, FEATURES: tl.constexpr):
    """Which of the stretches that begin ``at`` go before the one at ``place``, 0 or 1 ``[MEMBERS]``.

    Stretches with equal states keep their order.
    """
    smaller = (at < place).to(tl.int32)
    unknown = (present & (node != own)).to(tl.int32)
    first = num_features.to(tl.int64) * 0
    more = (first < num_features) & (tl.max(unknown, axis=0) == 1)
    while more:
        column = first + tl.arange(0, FEATURES)[None, :]
        mask = (unknown == 1)[:, None] & (column < num_features)
        state = load_states(x, node[:, None], column, mask, row, step)
        own_state = load_states(x, own, column, column < num_features, row, step)
        differs = differ(state, own_state) & mask
        where = tl.min(tl.where(differs, column, num_features), axis=1)  # the first difference
        below = differs & (column == where[:, None]) & precede(state, own_state)
        found = where < num_features
        smaller = tl.where(found, tl.max(below.to(tl.int32), axis=1), smaller)
        unknown = tl.where(found, 0, unknown)
        first += FEATURES
        more = (first < num_features) & (tl.max(unknown, axis=0) == 1)
    return smaller


@triton.jit(do_not_specialize=["num_marks", "num_features"])
def rank_kernel(
    token,
    source,
    mark,
    begin,
    count,
    resolved,
    num_marks,
    x,
    num_features,
    row,
    step,
    MEMBERS: tl.constexpr,
    FEATURES: tl.constexpr,
    SCAN: tl.constexpr,
):
    """Writes the listed stretches to their places; the first one of a group, not listed, goes with the second."""
    marks = num_marks.to(tl.int64)
    for item in range(tl.program_id(0).to(tl.int64), tl.load(count), tl.num_programs(0)):
        place = tl.load(begin + item)
        start = last_before(mark, place, _NEW_SCORE, SCAN)
        end = first_after(mark, place, marks, _NEW_SCORE, SCAN)
        stop = first_after(mark, place, marks, _NEW_STATE, SCAN)  # of the stretch
        second = last_before(mark, place, _NEW_STATE, SCAN) == start
        for _ in range(tl.where(second, 2, 1)):
            own = tl.load(source + tl.load(token + place))
            to = start
            following = end
            last = end - 1
            while last >= start:  # from behind, where the stretch before a known one ends
                at = last - tl.arange(0, MEMBERS)
                begins = tl.load(mark + at, at >= start, 0) >= _NEW_STATE
                later = begins[None, :] & (at[None, :] > at[:, None])
                length = tl.min(tl.where(later, at[None, :], following), axis=1) - at
                node = tl.load(source + tl.load(token + at, begins, 0), begins, 0)
                smaller = go_first(at, node, begins, place, own, x, num_features, row, step, MEMBERS, FEATURES)
                to += tl.sum(tl.where(begins, smaller * length, 0), axis=0)
                following = tl.min(tl.where(begins, at, following), axis=0)
                last -= MEMBERS
            for first in range(place, stop, SCAN):
                at = first + tl.arange(0, SCAN)
                inside = at < stop
                tl.store(resolved + at + (to - place), tl.load(token + at, inside, 0), inside)
            stop = place
            place = start
