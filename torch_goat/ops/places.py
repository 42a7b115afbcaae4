"""The places of an order by source: the order in which a gradient of the sources is added up."""

from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.ops.memory import derived, own


class BySource(NamedTuple):
    """The places of each head with those of one source behind each other, each source's ascending."""

    source: Tensor  # [K, E], ascending within a head; one row for all heads if they have the same tokens
    place: Tensor  # [K, E], where it stands within its head


def remember_order(source: Tensor, token: Tensor | None, of_token: Tensor) -> None:
    """Keeps the places by source, once somebody asks for them, for as long as ``source`` lives.

    Args:
        source: The source at each place ``[K, E]``.
        token: The token at each place ``[K, E]``, every token once per head: the places follow from it without a sort.
            Copies of an edge stand in the order of their tokens then. ``None``: they are sorted.
        of_token: The source of each token ``[E]``.
    """
    own(source)
    if token is not None:
        derived(source, "tokens", lambda _: (token, of_token))


def places_by_source(source: Tensor, num_sources: int) -> BySource:
    """The places of ``source`` ``[K, E]`` by source; computed once after :func:`remember_order`."""
    return derived(source, "places", _places, num_sources)


def _places(source: Tensor, num_sources: int) -> BySource:
    tokens = derived(source, "tokens", lambda _: None)
    return _sort(source, num_sources) if tokens is None else _from_tokens(*tokens, num_sources)


def _sort(source: Tensor, num_sources: int) -> BySource:
    heads, num_places = source.shape
    key = source.new_empty(source.shape, dtype=_integer(heads * num_sources))
    head = torch.arange(heads, device=source.device).view(-1, 1)
    torch.add(source, head, alpha=num_sources, out=key)
    key, order = torch.sort(key.view(-1), stable=True)  # [K * E]
    return BySource(key.view_as(source).sub_(head * num_sources), order.view_as(source).sub_(head * num_places))


def _from_tokens(token: Tensor, of_token: Tensor, num_sources: int) -> BySource:
    """The same without a sort of every head: tokens by source are the graph's, and an order only moves them."""
    source, by_source = derived(of_token, "by source", _tokens_by_source, num_sources)  # [E], [E]
    place = torch.arange(token.size(1), device=token.device, dtype=by_source.dtype).expand_as(token)
    # Zeros: a broken order must not lead beyond the tensor.
    place_of_token = torch.zeros_like(place, memory_format=torch.contiguous_format).scatter_(1, token, place)
    return BySource(source.expand_as(token), place_of_token.index_select(1, by_source))


def _tokens_by_source(source: Tensor, num_sources: int) -> tuple[Tensor, Tensor]:
    ascending, token = source.sort(stable=True)
    return ascending.to(_integer(num_sources)), token.to(_integer(token.numel()))


def _integer(size: int) -> torch.dtype:
    """The smallest type that counts so far: half the memory to read, and half the passes of a sort."""
    return torch.int32 if size < 2**31 else torch.int64
