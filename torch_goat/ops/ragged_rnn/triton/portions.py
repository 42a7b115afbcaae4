"""Portions of the segments whose gradients by place are in memory at the same time.

The gradients of the gates take more memory than all else in a backward pass. On a large graph, the longest segments,
with a third of the places, come first, and the others after them: a third of the memory suffices, and the longest
segments, each a chain of dependent steps, are still all walked at once.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.checks import capturing
from torch_goat.ops.neighborhoods import Neighborhoods, smallest_integer
from torch_goat.ops.places import Places

LARGE = 2**26  # bytes of gradients; below, there is one portion
PORTIONS = 3


class Portion(NamedTuple):
    """Some segments and the rows of their gradients."""

    order: Tensor  # the segments, longest first [T']
    num_rows: int
    row: Tensor | None = None  # the first row of each segment [T']; None: rows are places
    place: Tensor | None = None  # the place of each row [num_rows]
    # Sources in ascending order, their tokens, and what leads from the places of these to rows [num_rows].
    by_source: tuple[Tensor, Tensor, Tensor] | None = None


def portions(places: Places, num_bytes: int) -> list[Portion]:
    """All segments, in several portions if the gradients of all places take much memory (``num_bytes``)."""
    hood = places.segments
    whole = [Portion(hood.by_length, hood.num_places)]
    if num_bytes < LARGE or places.token is None or not isinstance(hood, Neighborhoods):
        return whole
    if capturing():  # their bounds cannot be read
        return hood.memo.get("portions") or whole
    return hood.memo.compute("portions", lambda: _divided(hood))


def _divided(hood: Neighborhoods) -> list[Portion]:
    length = hood.ptr.diff()[hood.by_length]
    ends = length.cumsum(0)
    shares = torch.arange(1, PORTIONS, device=ends.device) * hood.num_places // PORTIONS
    ranks = (torch.searchsorted(ends, shares) // 32 + 1) * 32  # multiples: parts of a tensor stay aligned
    bounds = sorted({0, *ranks.clamp(max=hood.num_segments).tolist(), hood.num_segments})
    rank_of_target = torch.empty_like(hood.by_length).scatter_(
        0, hood.by_length, torch.arange(hood.num_segments, device=hood.ptr.device)
    )
    source, token = hood.by_source
    target = hood.target[token]
    first_rows, found = ends - length, []
    for first, last in pairwise(bounds):
        order = hood.by_length[first:last]
        row = first_rows[first:last] - first_rows[first]
        from_row = hood.ptr[order] - row  # what leads from a row to its place, by segment
        num_rows = int(length[first:last].sum())
        place = torch.arange(num_rows, device=row.device)
        place += from_row.repeat_interleave(length[first:last], output_size=num_rows)
        inside = (rank_of_target[target] >= first) & (rank_of_target[target] < last)
        shift = -from_row[rank_of_target[target[inside]] - first].to(smallest_integer(hood.num_places))
        found.append(Portion(order, num_rows, row, place, (source[inside], token[inside], shift)))
    return found
