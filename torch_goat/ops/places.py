from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.neighborhoods import Neighborhoods, smallest_integer
from torch_goat.ops.segments import Memo, Segments


class BySource(NamedTuple):
    """The places of each head sorted by source, and then by place."""

    source: Tensor  # [K, E], ascending within a head; one row for all heads if they have the same tokens
    place: Tensor  # [K, E]


class Places:
    """The source ``[K, E]`` at each place of some segments, as the RNN and the weighted mean of one call read them.

    If every head has each token of the neighbourhoods ``segments`` exactly once, ``token`` ``[K, E]`` has that at each
    place: :meth:`by_source` then needs no sort, and puts copies of an edge in the order of their tokens.
    """

    def __init__(self, source: Tensor, segments: Segments, token: Tensor | None = None) -> None:
        self.source, self.segments, self.token = source, segments, token
        self._memo = Memo(source.device)

    @classmethod
    def from_ptr(cls, source: Tensor, ptr: Tensor) -> "Places":
        """Places of segments with the bounds ``ptr`` ``[T + 1]``."""
        return cls(source, Segments(ptr, source.size(1)))

    @property
    def ptr(self) -> Tensor:
        return self.segments.ptr

    def by_source(self, num_sources: int) -> BySource:
        """The order in which the gradients of the sources are added up."""
        return self._memo.compute(
            "by_source", lambda: self._sort(num_sources) if self.token is None else self._follow(self.token)
        )

    def _sort(self, num_sources: int) -> BySource:
        heads, num_places = self.source.shape
        key = self.source.new_empty(self.source.shape, dtype=smallest_integer(heads * num_sources))
        head = torch.arange(heads, device=key.device).view(-1, 1)
        torch.add(self.source, head, alpha=num_sources, out=key)
        key, order = torch.sort(key.view(-1), stable=True)  # [K * E]
        return BySource(
            key.view_as(self.source).sub_(head * num_sources), order.view_as(self.source).sub_(head * num_places)
        )

    def _follow(self, token: Tensor) -> BySource:
        assert isinstance(self.segments, Neighborhoods)
        return self.by_token(*self.segments.by_source)

    def by_token(self, source: Tensor, token: Tensor) -> BySource:
        """The places of some tokens, in ascending order of their sources, ``[E']`` each.

        The tokens by source are the graph's; an order only moves them.
        """
        place = self._memo.compute("place", self._place_of_token)
        return BySource(source.expand(place.size(0), -1), place.index_select(1, token))

    def _place_of_token(self) -> Tensor:
        assert self.token is not None
        place = torch.arange(self.token.size(1), device=self.token.device, dtype=smallest_integer(self.token.size(1)))
        # Zeros: a replayed order that is not a permutation must not lead beyond the tensor.
        return torch.zeros_like(self.token, dtype=place.dtype).scatter_(1, self.token, place.expand_as(self.token))
