"""A graph in blocks: some nodes with all their neighbours at a time, so that a layer computes these nodes exactly."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from torch_goat.data.loader.csc import CSC
from torch_goat.nn.ordering import Ordering

_CHUNK = 1 << 24  # edges that are looked at at a time, so that those of a file need not be in memory


class Block(NamedTuple):
    """Nodes with all edges into them; the numbering of the block's nodes has the order of the graph's."""

    nodes: Tensor  # [b], those that the block computes, in the numbers of the graph, ascending
    n_id: Tensor  # [n], all that it reads, likewise
    own: Tensor  # [b], where the former stand among the latter
    edge_index: Tensor  # [2, e], in the numbers of the block
    e_id: Tensor  # [e], the edges in the numbers of the graph


class Blocks:
    """The blocks of a graph.

    Args:
        csc: The graph.
        max_edges: The most edges of a block; only a block of one node may have more.
    """

    def __init__(self, csc: CSC, max_edges: int = 1 << 20) -> None:
        if max_edges < 1:
            raise ValueError(f"max_edges must be at least 1, got {max_edges}.")
        self.csc, self.max_edges = csc, max_edges

    @cached_property
    def degree(self) -> Tensor:
        """The sizes of the closed neighbourhoods ``[N]``: neighbours, each copy of an edge counted, and the node."""
        ptr, degree = self.csc.ptr, self.csc.ptr.diff() + 1
        for first in range(0, self.csc.source.numel(), _CHUNK):
            source = self.csc.source[first : first + _CHUNK].long()
            target = torch.searchsorted(ptr, torch.arange(first, first + source.numel()), right=True) - 1
            degree -= torch.bincount(target[source == target], minlength=degree.numel())
        return degree

    @cached_property
    def _begin(self) -> Tensor:
        return self.degree.cumsum(0) - self.degree  # [N]

    def read_by(self, nodes: Tensor) -> Tensor:
        """The nodes that a layer reads to compute some, these among them, ascending."""
        mask = torch.zeros(self.csc.num_nodes, dtype=torch.bool)
        mask[nodes] = True
        for part in self._split(nodes):
            mask[self.csc.source[self.csc.into(part)[0]].long()] = True
        return mask.nonzero().view(-1)

    def of(self, nodes: Tensor) -> Iterator[Block]:
        """The blocks that compute some nodes, given ascending."""
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
        """The part of the graph's ordering that a block replays; nodes that it only reads have themselves alone.

        Args:
            ordering: The graph's ordering.
            block: The block.
            closed: Whether the layer adds self loops.
        """
        ptr, start = self._starts(block, closed)
        size = torch.full_like(block.n_id, int(closed))
        run = ordering.ptr[block.nodes + 1] - ordering.ptr[block.nodes]
        size[block.own] = run
        begin = size.cumsum(0) - size  # [n], where the runs of the block begin
        heads, total = ordering.heads, int(size.sum())
        token = ptr[:-1].repeat_interleave(size).repeat(heads, 1)  # [K, total], of the nodes that are only read
        source = torch.arange(size.numel()).repeat_interleave(size).repeat(heads, 1)
        inner = torch.arange(int(run.sum())) - (run.cumsum(0) - run).repeat_interleave(run)
        here = begin[block.own].repeat_interleave(run) + inner
        there = ordering.ptr[block.nodes].repeat_interleave(run) + inner
        shift = (ptr[block.own] - start).repeat_interleave(run)
        token[:, here] = ordering.token[:, there] + shift
        source[:, here] = torch.searchsorted(block.n_id, ordering.source[:, there])
        empty = torch.zeros(heads, total)
        return Ordering(torch.cat([begin, begin.new_tensor([total])]), token, source, empty, empty)

    def give(self, ordering: Ordering, block: Block, closed: bool, selected: int | None = None) -> tuple[Tensor, ...]:
        """A block's ordering in the numbers of the graph: sizes of the runs, tokens, sources, scores, coefficients.

        Args:
            ordering: The block's ordering.
            block: The block.
            closed: Whether the layer adds self loops.
            selected: How many neighbours the nodes before the block have, if the layer selected some before it ordered
                them: only these have a token.
        """
        run = ordering.ptr.diff()[block.own]
        if selected is None:
            ptr, start = self._starts(block, closed)
        else:
            ptr, start = ordering.ptr, selected + run.cumsum(0) - run
        inner = torch.arange(int(run.sum())) - (run.cumsum(0) - run).repeat_interleave(run)
        here = ordering.ptr[block.own].repeat_interleave(run) + inner
        shift = (start - ptr[block.own]).repeat_interleave(run)
        token, source = ordering.token[:, here] + shift, block.n_id[ordering.source[:, here]]
        return run, token, source, ordering.score[:, here], ordering.weight[:, here]

    def _starts(self, block: Block, closed: bool) -> tuple[Tensor, Tensor]:
        """Where the block's tokens begin ``[n + 1]``, and where those of its own nodes begin in the graph ``[b]``."""
        begin = self._begin if closed else self.csc.ptr[:-1]
        size = torch.full_like(block.n_id, int(closed))
        size[block.own] = (self.degree if closed else self.csc.ptr.diff())[block.nodes]
        return torch.cat([size.new_zeros(1), size.cumsum(0)]), begin[block.nodes]
