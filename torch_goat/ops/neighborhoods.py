from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from torch_goat.ops.adjacency import to_edges
from torch_goat.ops.checks import capturing, check_count, check_range, checks_enabled
from torch_goat.ops.segments import Memo, Segments, gather_columns, segment_reduce, sorted_columns


class Neighborhoods(Segments):
    r"""The layout of the closed neighbourhoods :math:`\overline{\mathcal{N}}(i)` of a graph.

    Build it with :meth:`from_edge_index` and pass it to any number of layers instead of ``edge_index``. Do not write to
    its tensors.

    A neighbourhood is a segment of *tokens*: its edges, sorted by source. The place of a token therefore does not
    depend on the order in which edges were given. Parallel edges are one token each.

    Attributes:
        edge_index: The edges from source to target, in the order in which they were given, self loops appended
            ``[2, E]``.
        edge: The edge of each token ``[E]``.
        source: The source of each token ``[E]``.
        target: The target of each token, ascending ``[E]``.
        ptr: Target ``t`` owns the tokens ``ptr[t]`` to ``ptr[t + 1]`` ``[T + 1]``.
        num_sources: The number of source nodes S.
        add_self_loops: Whether each target is in its own neighbourhood, exactly once.
        num_given: The number of edges as given.
        reverse: Whether the edges were given from target to source.
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge: Tensor,
        source: Tensor,
        target: Tensor,
        num_nodes: tuple[int, int],
        add_self_loops: bool,
        num_given: int,
        given: Tensor | None = None,
        reverse: bool = False,
    ) -> None:
        ptr = torch.searchsorted(target, torch.arange(num_nodes[1] + 1, device=target.device))
        super().__init__(ptr, source.size(0))
        self.edge_index, self.edge, self.source, self.target = edge_index, edge, source, target
        self.num_sources, self.add_self_loops = num_nodes[0], add_self_loops
        self.num_given, self.reverse = num_given, reverse
        self._given = given  # the given edges that are no self loops and stay; None: all of them

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int | tuple[int, int],
        *,
        add_self_loops: bool = True,
        checks: bool | None = None,
    ) -> "Neighborhoods":
        """Groups edges by target.

        Args:
            edge_index: COO ``[2, E]`` in any order, an ``EdgeIndex`` or a torch sparse matrix as PyG's ``adj_t``, whose
                values are ignored.
            num_nodes: The number of nodes, or a pair of the numbers of sources and targets. With self loops, targets
                are the first of the sources.
            add_self_loops: Whether each target is in its own neighbourhood, once. Existing self loops are replaced.
            checks: Whether to check the range of node indices; ``None`` is the default of
                :func:`torch_goat.set_checks`.
        """
        num_sources, num_targets = num_nodes if isinstance(num_nodes, tuple | list) else (num_nodes, num_nodes)
        if not torch.compiler.is_compiling():  # there, they can be symbols
            num_sources = check_count("num_nodes", num_sources, 0, " or a pair of them")
            num_targets = check_count("num_nodes", num_targets, 0, " or a pair of them")
        if add_self_loops and num_targets > num_sources:
            raise ValueError(
                f"{num_targets} targets cannot be the first of {num_sources} sources; pass add_self_loops=False for "
                f"different node sets."
            )
        edge_index, _ = to_edges(edge_index, None, None, num_sources, num_targets)
        return cls._build(edge_index, (num_sources, num_targets), add_self_loops, False, checks)

    @classmethod
    def _build(
        cls, edge_index: Tensor, num_nodes: tuple[int, int], add_self_loops: bool, reverse: bool, checks: bool | None
    ) -> "Neighborhoods":
        num_given, compiling = edge_index.size(1), torch.compiler.is_compiling()
        args = (edge_index, *num_nodes, add_self_loops, reverse, checks)
        with nullcontext() if compiling else torch.inference_mode(False):  # a backward pass can use it, too
            if compiling:
                edge_index, edge, given = _operator(*args, torch.empty(0, device=edge_index.device))
            else:
                edge_index, edge, given = _group(*args)
            source, target = edge_index[:, edge]
            # Only eager code may look at a size that depends on values.
            stay = None if not compiling and (not add_self_loops or given.numel() == num_given) else given
            return cls(edge_index, edge, source, target, num_nodes, add_self_loops, num_given, stay, reverse)

    @property
    def num_targets(self) -> int:
        """The number of target nodes T."""
        return self.num_segments

    @property
    def index(self) -> Tensor:
        return self.target

    @property
    def by_source(self) -> tuple[Tensor, Tensor]:
        """The sources in ascending order and their tokens, both ``[E]``, in small integers."""
        return self.memo.compute("by_source", self._by_source)

    def _by_source(self) -> tuple[Tensor, Tensor]:
        source, token = self.source.sort(stable=True)
        return source.to(smallest_integer(self.num_sources)), token.to(smallest_integer(token.numel()))

    def from_sources(self, value: Tensor) -> Tensor:
        """Values of sources ``[K, S]`` by token ``[K, E]``."""
        return gather_columns(value, self.source, lambda: self._source_columns(value.size(0)))

    def from_targets(self, value: Tensor) -> Tensor:
        """Values of targets ``[K, T]`` by token ``[K, E]``."""
        return gather_columns(value, self.target, lambda: (None, self.offsets(value.size(0))))

    def sum_by_source(self, value: Tensor) -> Tensor:
        """The sums ``[K, S]`` of values by token ``[K, E]``, in a fixed order."""
        order, offsets = self._source_columns(value.size(0))
        return segment_reduce("sum", value.index_select(1, order), offsets)

    def _source_columns(self, rows: int) -> tuple[Tensor, Tensor]:
        return self.memo.compute(("columns", rows), lambda: sorted_columns(self.source, self.num_sources, rows))

    def given_edges(self) -> Tensor:
        """A copy of :attr:`edge_index` in the direction in which the edges were given."""
        return self.edge_index.flip(0) if self.reverse else self.edge_index.clone()

    def edge_features(self, edge_attr: Tensor, fill_value: float | Tensor | str = "mean") -> Tensor:
        """The features ``[E, D]`` of the edges in :attr:`edge_index`, from those of the given edges.

        A self loop that was added has ``fill_value``, or the features of the given edges that point to its node,
        reduced by ``"mean"``, ``"add"``, ``"min"``, ``"max"`` or ``"mul"``. They are reduced from small to large, so
        that the order of the edges does not matter, to the last bit.
        """
        if not self.add_self_loops:
            return edge_attr
        edge_attr = edge_attr if self._given is None else edge_attr[self._given]
        shape = (self.num_targets, edge_attr.size(1))
        if isinstance(fill_value, str):
            return torch.cat([edge_attr, self._reduce_to_nodes(edge_attr, fill_value)[: self.num_targets]])
        fill = torch.as_tensor(fill_value, dtype=edge_attr.dtype, device=edge_attr.device)
        try:
            fill = fill.expand(shape)
        except RuntimeError:
            raise ValueError(
                f"fill_value has shape {list(fill.shape)}, expected {[shape[1]]} or {list(shape)}."
            ) from None
        return torch.cat([edge_attr, fill])

    def _reduce_to_nodes(self, edge_attr: Tensor, how: str) -> Tensor:
        """The features of the edges that point to each node ``[N, D]``, reduced."""
        value, by_value = edge_attr.sort(dim=0)  # [E', D]
        node = self.edge_index[0 if self.reverse else 1, : value.size(0)]
        by_node = node[by_value].sort(dim=0, stable=True).indices  # [E', D]
        value = value.gather(0, by_node)
        count = node.new_zeros(max(self.num_sources, self.num_targets)).scatter_add(0, node, torch.ones_like(node))
        index = torch.repeat_interleave(count, output_size=value.size(0)).view(-1, 1).expand_as(value)
        empty = value.new_full((count.numel(), value.size(1)), how == "mul")
        if how in ("mean", "add"):
            total = empty.scatter_add(0, index, value)
            return total / count.clamp(min=1).view(-1, 1) if how == "mean" else total
        reduce = {"min": "amin", "max": "amax", "mul": "prod"}[how]
        return empty.scatter_reduce(0, index, value, reduce, include_self=how == "mul")

    def by_edge(self, value: Tensor, token: Tensor) -> Tensor:
        """Values in the order of ``token`` ``[K, E]`` as values by edge ``[E, K]``, zero for edges without a token."""
        empty = value.new_zeros(self.edge_index.size(1), value.size(0))
        return empty.scatter(0, self.edge[token].t(), value.t())

    def keep(self, mask: Tensor) -> "Neighborhoods":
        """The same neighbourhoods with only the tokens in ``mask`` ``[E]``; the edges stay the same."""
        return self._with(self.edge_index, self.edge[mask], self.source[mask], self.target[mask], self._given)

    def to(self, device: str | torch.device, non_blocking: bool = False) -> "Neighborhoods":
        """A copy on another device."""
        parts = (self.edge_index, self.edge, self.source, self.target)
        edge_index, edge, source, target = (part.to(device, non_blocking=non_blocking) for part in parts)
        given = None if self._given is None else self._given.to(device, non_blocking=non_blocking)
        return self._with(edge_index, edge, source, target, given)

    def _with(
        self, edge_index: Tensor, edge: Tensor, source: Tensor, target: Tensor, given: Tensor | None
    ) -> "Neighborhoods":
        sizes, rest = (self.num_sources, self.num_targets), (self.add_self_loops, self.num_given, given, self.reverse)
        return Neighborhoods(edge_index, edge, source, target, sizes, *rest)

    def __repr__(self) -> str:
        return f"Neighborhoods(sources={self.num_sources}, targets={self.num_targets}, tokens={self.num_places})"


def smallest_integer(size: int) -> torch.dtype:
    """The smaller integer type that can count to ``size``: less memory to read, and fewer passes of a sort."""
    return torch.int32 if size < 2**31 else torch.int64


def _group(
    edge_index: Tensor, num_sources: int, num_targets: int, add_self_loops: bool, reverse: bool, checks: bool | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The edges from source to target with self loops, the edge of each token, and the given edges that stay."""
    if edge_index.is_cuda and capturing():
        raise RuntimeError(
            "edges cannot be grouped while a CUDA graph is captured; call the layer before with the same "
            "edge_index, an int64 tensor that is not written to, or pass Neighborhoods."
        )
    source, target = ends = edge_index.flip(0) if reverse else edge_index
    if num_sources == num_targets:
        check_range("edge_index", edge_index, num_sources, checks)
    else:
        check_range(f"edge_index[{int(reverse)}] (sources)", source, num_sources, checks)
        check_range(f"edge_index[{int(not reverse)}] (targets)", target, num_targets, checks)
    given = (source != target).nonzero().view(-1) if add_self_loops else edge_index.new_empty(0)
    if add_self_loops:
        loops = torch.arange(num_targets, device=edge_index.device).expand(2, -1)
        ends = torch.cat([ends[:, given], loops], dim=1)
    elif not reverse:
        ends = edge_index.clone()  # the caller may write to its own
    return ends, torch.argsort(torch.add(ends[0], ends[1], alpha=num_sources), stable=True), given


# For torch.compile and torch.export, grouping is an opaque operator, since its sizes depend on the data. PyTorch's
# compiler would merge equal calls of two layers, but not the sizes of their results, and fail: `new`, a tensor of each
# call, keeps them apart.
@torch.library.custom_op("torch_goat::group_edges", mutates_args=())
def _operator(
    edge_index: Tensor,
    num_sources: int,
    num_targets: int,
    add_self_loops: bool,
    reverse: bool,
    checks: bool | None,
    new: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    hood = neighborhoods(edge_index, (num_sources, num_targets), add_self_loops, reverse, checks)
    given = hood._given
    if given is None:
        given = torch.arange(edge_index.size(1) if add_self_loops else 0, device=edge_index.device)
    # Copies: the caller may write to what an operator returns, and the layout is kept.
    return hood.edge_index.clone(), hood.edge.clone(), given.clone()


@_operator.register_fake
def _(
    edge_index: Tensor, num_sources: int, num_targets: int, add_self_loops: bool, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    if not add_self_loops:
        return torch.empty_like(edge_index), edge_index.new_empty(edge_index.size(1)), edge_index.new_empty(0)
    stay = torch.library.get_ctx().new_dynamic_size()
    num_tokens = stay + num_targets
    return edge_index.new_empty(2, num_tokens), edge_index.new_empty(num_tokens), edge_index.new_empty(stay)


# The only cache: edge_index -> the edges that were read, their version and the layout, by number of nodes, self loops
# and direction.
_layouts: WeakIdKeyDictionary = WeakIdKeyDictionary()


def neighborhoods(
    edge_index: Tensor,
    num_nodes: tuple[int, int],
    add_self_loops: bool,
    reverse: bool = False,
    checks: bool | None = None,
) -> Neighborhoods:
    """:meth:`Neighborhoods.from_edge_index` of an int64 tensor ``[2, E]``, cached while ``edge_index`` lives.

    With ``reverse``, edges lead from ``edge_index[1]`` to ``edge_index[0]``. The cached layout is used again if
    ``edge_index`` holds the same edges, which are compared one by one. On a GPU without checks, and while a CUDA graph
    is captured, comparing them would synchronise with the device: there, they are the same unless PyTorch has counted a
    write to ``edge_index`` since.
    """
    if torch.compiler.is_compiling():  # a tracer's tensors have no values to compare
        return Neighborhoods._build(edge_index, num_nodes, add_self_loops, reverse, checks)
    memo = _layouts.get(edge_index)
    if memo is None and capturing():
        return Neighborhoods._build(edge_index, num_nodes, add_self_loops, reverse, checks)
    if memo is None:
        memo = _layouts[edge_index] = Memo(edge_index.device)
    key = (*num_nodes, add_self_loops, reverse)
    version = _version(edge_index)
    if (known := memo.get(key)) is not None:
        given, given_version, hood = known
        counted = capturing() or (edge_index.is_cuda and version is not None and not checks_enabled(checks))
        if version is not None and version == given_version if counted else torch.equal(given, edge_index):
            if given_version != version:
                memo.put(key, (given, version, hood))
            return hood
    hood = Neighborhoods._build(edge_index, num_nodes, add_self_loops, reverse, checks)
    whole = hood._given is None and not reverse
    memo.put(key, (hood.edge_index[:, : edge_index.size(1)] if whole else edge_index.clone(), version, hood))
    return hood


def _version(tensor: Tensor) -> int | None:
    """How often PyTorch has counted a write to a tensor; ``None`` in inference mode, where it does not count."""
    return None if tensor.is_inference() else tensor._version
