"""Blocks of a graph: some nodes with all their neighbours, so that a layer computes these nodes exactly."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.data.loader.csc import CHUNK, CSC, spans
from torch_goat.nn.ordering import Ordering


class Block(NamedTuple):
    """Some nodes with all edges into them; nodes keep their relative order."""

    nodes: Tensor  # [b]: the nodes that the block computes, ascending
    n_id: Tensor  # [n]: all nodes that it reads, ascending
    own: Tensor  # [b]: the positions of nodes in n_id
    edge_index: Tensor  # [2, e]: in positions of n_id
    e_id: Tensor  # [e]: the edges' positions in the graph's edge_index


class Blocks:
    """Splits nodes of a graph into blocks of at most ``max_edges`` edges; only a block of one node may have more."""

    def __init__(self, csc: CSC, max_edges: int = 1 << 20) -> None:
        if max_edges < 1:
            raise ValueError(f"max_edges must be at least 1, got {max_edges}.")
        self.csc, self.max_edges = csc, max_edges

    @cached_property
    def degree(self) -> Tensor:
        """The sizes of the closed neighbourhoods ``[N]``: the node itself, and its neighbours with multiplicity."""
        ptr, degree = self.csc.ptr, self.csc.ptr.diff() + 1
        for first in range(0, self.csc.source.numel(), CHUNK):
            source = self.csc.source[first : first + CHUNK].long()
            target = torch.searchsorted(ptr, torch.arange(first, first + source.numel()), right=True) - 1
            degree -= torch.bincount(target[source == target], minlength=degree.numel())
        return degree

    @cached_property
    def _begin(self) -> Tensor:
        return self.degree.cumsum(0) - self.degree  # [N]

    def read_by(self, nodes: Tensor) -> Tensor:
        """The nodes that a layer reads to compute some nodes, including these, ascending."""
        mask = torch.zeros(self.csc.num_nodes, dtype=torch.bool)
        mask[nodes] = True
        for part in self._split(nodes):
            mask[self.csc.source[self.csc.into(part)[0]].long()] = True
        return mask.nonzero().view(-1)

    def of(self, nodes: Tensor) -> Iterator[Block]:
        """The blocks that compute the given nodes, which must be in ascending order."""
        for part in self._split(nodes):
            edge, count = self.csc.into(part)
            source = self.csc.source[edge].long()
            n_id, place = torch.cat([part, source]).unique(return_inverse=True)
            own = place[: part.numel()]
            edge_index = torch.stack([place[part.numel() :], own.repeat_interleave(count)])
            yield Block(part, n_id, own, edge_index, edge if self.csc.edge is None else self.csc.edge[edge])

    def _split(self, nodes: Tensor) -> Iterator[Tensor]:
        upto = (self.csc.ptr[nodes + 1] - self.csc.ptr[nodes]).cumsum(0)
        start = 0
        while start < nodes.numel():
            before = int(upto[start - 1]) if start else 0
            end = int(torch.searchsorted(upto, before + self.max_edges, right=True))
            end = max(end, start + 1)
            yield nodes[start:end]
            start = end

    def take(self, ordering: Ordering, block: Block, closed: bool) -> Ordering:
        """The part of the graph's ordering that a block replays; nodes that are only read have at most a self loop,
        which they have if the layer adds self loops (``closed``)."""
        ptr, start = self._starts(block, closed)
        size = torch.full_like(block.n_id, int(closed))
        length = ordering.ptr[block.nodes + 1] - ordering.ptr[block.nodes]  # [b], of the block's segments
        size[block.own] = length
        begin = size.cumsum(0) - size  # [n]
        heads, total = ordering.heads, int(size.sum())
        token = ptr[:-1].repeat_interleave(size).repeat(heads, 1)  # [K, total], of the nodes that are only read
        source = torch.arange(size.numel()).repeat_interleave(size).repeat(heads, 1)
        here, there = spans(begin[block.own], length), spans(ordering.ptr[block.nodes], length)
        token[:, here] = ordering.token[:, there] + (ptr[block.own] - start).repeat_interleave(length)
        source[:, here] = torch.searchsorted(block.n_id, ordering.source[:, there])
        empty = torch.zeros(heads, total)
        return Ordering.unchecked(torch.cat([begin, begin.new_tensor([total])]), token, source, empty, empty)

    def give(self, ordering: Ordering, block: Block, closed: bool, selected: int | None = None) -> tuple[Tensor, ...]:
        """A block's ordering in the graph's numbering: segment sizes, tokens, sources, scores and coefficients.

        If the layer selects neighbours before ordering them, only these have a token, and ``selected`` is the number of
        those that precede the block.
        """
        length = ordering.ptr.diff()[block.own]
        if selected is None:
            ptr, start = self._starts(block, closed)
        else:
            ptr, start = ordering.ptr, selected + length.cumsum(0) - length
        here = spans(ordering.ptr[block.own], length)
        shift = (start - ptr[block.own]).repeat_interleave(length)
        token, source = ordering.token[:, here] + shift, block.n_id[ordering.source[:, here]]
        return length, token, source, ordering.score[:, here], ordering.weight[:, here]

    def _starts(self, block: Block, closed: bool) -> tuple[Tensor, Tensor]:
        """The offsets of the block's tokens ``[n + 1]``, and those of its own nodes' tokens in the graph ``[b]``."""
        begin = self._begin if closed else self.csc.ptr[:-1]
        size = torch.full_like(block.n_id, int(closed))
        size[block.own] = (self.degree if closed else self.csc.ptr.diff())[block.nodes]
        return torch.cat([size.new_zeros(1), size.cumsum(0)]), begin[block.nodes]
