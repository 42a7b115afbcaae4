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

# Bytes of gradients; below, there is one portion. A wide layer takes longer in portions, since its short segments are
# then no longer walked beside its longest ones.
LARGE, LARGE_IF_WIDE = 2**26, 2**31
PORTIONS = 3


class Portion(NamedTuple):
    """Some segments and the rows of their gradients."""

    order: Tensor  # the segments, longest first [T']
    num_rows: int
    row: Tensor | None = None  # the first row of each segment [T']; None: rows are places
    place: Tensor | None = None  # the place of each row [num_rows]
    # Sources in ascending order, their tokens, and what leads from the places of these to rows [num_rows].
    by_source: tuple[Tensor, Tensor, Tensor] | None = None


def portions(places: Places, num_bytes: int, wide: bool) -> list[Portion]:
    """All segments, in several portions if the gradients of all places take much memory (``num_bytes``)."""
    hood = places.segments
    whole = [Portion(hood.by_length, hood.num_places)]
    large = LARGE_IF_WIDE if wide else LARGE
    if num_bytes < large or places.token is None or not isinstance(hood, Neighborhoods):
        return whole
    if capturing():  # their bounds cannot be read
        return hood.memo.get("portions") or whole
    return hood.memo.compute("portions", lambda: _divided(hood))


def _divided(hood: Neighborhoods) -> list[Portion]:
    length = hood.ptr.diff()[hood.by_length]
    end = length.cumsum(0)  # rows of all segments up to each one, longest first
    from_row = hood.ptr[hood.by_length] - end + length  # what leads from a row to its place, by segment
    place = torch.arange(hood.num_places, device=end.device)
    place += from_row.repeat_interleave(length, output_size=hood.num_places)
    shares = torch.arange(1, PORTIONS, device=end.device) * hood.num_places // PORTIONS
    cut = (torch.searchsorted(end, shares) // 32 + 1) * 32  # multiples: parts of a tensor stay aligned
    cut = cut.clamp(max=hood.num_segments)
    cuts = {(0, 0), (hood.num_segments, hood.num_places), *zip(*torch.stack([cut, end[cut - 1]]).tolist(), strict=True)}
    source, token = hood.by_source
    rank = hood.by_length.argsort()[hood.target[token]]
    by_portion = torch.searchsorted(cut, rank, right=True).sort(stable=True).indices  # and by source in each
    shift = -from_row[rank]
    found = []
    for (first, first_row), (last, last_row) in pairwise(sorted(cuts)):
        segments, rows = slice(first, last), slice(first_row, last_row)
        index = by_portion[rows]
        shifts = (shift[index] - first_row).to(smallest_integer(hood.num_places))
        first_rows = (end - length)[segments] - first_row
        by_source = source[index], token[index], shifts
        found.append(
            Portion(hood.by_length[segments], last_row - first_row, first_rows, place[rows].clone(), by_source)
        )
    return found
