import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from torch_goat.ops.adjacency import to_edges
from torch_goat.ops.checks import capturing, check_range, checks_enabled
from torch_goat.ops.segments import Memo, Segments, gather_columns, sorted_columns


class Neighborhoods(Segments):
    r"""The layout of the closed neighbourhoods :math:`\overline{\mathcal{N}}(i)` of a graph.

    A neighbourhood is a segment of *tokens*, sorted by source, so that the place of a token does not depend on the
    order in which edges were given. Multi-edges are one token each. Build it with :meth:`from_edge_index` and pass it
    to any number of layers instead of ``edge_index``. Do not write to its tensors.

    Attributes:
        edge_index: The edges as given, self loops appended ``[2, E]``.
        edge: The edge of each token ``[E]``.
        source: The source of each token ``[E]``.
        target: The target of each token, ascending ``[E]``.
        ptr: Target ``t`` owns the tokens ``ptr[t]`` to ``ptr[t + 1]`` ``[T + 1]``.
        num_sources: The number of source nodes S.
        add_self_loops: Whether each target is in its own neighbourhood, exactly once.
        num_given: The number of edges as given.
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
    ) -> None:
        ptr = torch.searchsorted(target, torch.arange(num_nodes[1] + 1, device=target.device))
        super().__init__(ptr, source.size(0))
        self.edge_index, self.edge, self.source, self.target = edge_index, edge, source, target
        self.num_sources, self.add_self_loops = num_nodes[0], add_self_loops
        self.num_given = num_given
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
        sizes = (num_nodes, num_nodes) if isinstance(num_nodes, int) else num_nodes
        edge_index, _ = to_edges(edge_index, None, None, *sizes)
        return cls._build(edge_index, sizes, add_self_loops, checks)

    @classmethod
    def _build(
        cls, edge_index: Tensor, num_nodes: tuple[int, int], add_self_loops: bool, checks: bool | None
    ) -> "Neighborhoods":
        num_sources, num_targets = num_nodes
        if edge_index.is_cuda and capturing():
            raise RuntimeError(
                "edges cannot be grouped while a CUDA graph is captured; call the layer before with the same "
                "edge_index, an int64 tensor that is not written to, or pass Neighborhoods."
            )
        if num_sources == num_targets:
            check_range("edge_index", edge_index, num_sources, checks)
        else:
            check_range("edge_index[0] (sources)", edge_index[0], num_sources, checks)
            check_range("edge_index[1] (targets)", edge_index[1], num_targets, checks)
        num_given, given = edge_index.size(1), None
        if add_self_loops:
            given = (edge_index[0] != edge_index[1]).nonzero().view(-1)
            loops = torch.arange(num_targets, device=edge_index.device).expand(2, -1)
            edge_index = torch.cat([edge_index[:, given], loops], dim=1)
            if not torch.compiler.is_compiling() and given.numel() == num_given:
                given = None
        source, target = edge_index
        edge = torch.argsort(torch.add(source, target, alpha=num_sources), stable=True)  # [E]
        return cls(edge_index, edge, source[edge], target[edge], num_nodes, add_self_loops, num_given, given)

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

    def _source_columns(self, rows: int) -> tuple[Tensor, Tensor]:
        return self.memo.compute(("columns", rows), lambda: sorted_columns(self.source, self.num_sources, rows))

    def edge_features(self, edge_attr: Tensor) -> Tensor:
        """The features ``[E, D]`` of the edges in :attr:`edge_index`, from those of the given edges.

        A self loop that was added has the mean of the features of its target's other edges. They are summed from small
        to large, so that the order of the edges does not matter, to the last bit.
        """
        if not self.add_self_loops:
            return edge_attr
        edge_attr = edge_attr if self._given is None else edge_attr[self._given]
        value, by_value = edge_attr.sort(dim=0)  # [E', D]
        target = self.edge_index[1, : value.size(0)]
        by_target = target[by_value].sort(dim=0, stable=True).indices  # [E', D]
        count = self.ptr.diff() - 1  # [T], without the self loop
        index = torch.repeat_interleave(count, output_size=value.size(0)).view(-1, 1).expand_as(value)
        total = edge_attr.new_zeros(self.num_targets, edge_attr.size(1))
        total = total.scatter_add(0, index, value.gather(0, by_target))
        return torch.cat([edge_attr, total / count.clamp(min=1).view(-1, 1)])

    def by_edge(self, value: Tensor, token: Tensor) -> Tensor:
        """Values in the order of ``token`` ``[K, E]`` as values by edge ``[E, K]``, zero for edges without a token."""
        empty = value.new_zeros(self.edge_index.size(1), value.size(0))
        return empty.scatter(0, self.edge[token].t(), value.t())

    def keep(self, mask: Tensor) -> "Neighborhoods":
        """The same neighbourhoods with only the tokens in ``mask`` ``[E]``; the edges stay the same."""
        edge, source, target = self.edge[mask], self.source[mask], self.target[mask]
        sizes, rest = (self.num_sources, self.num_targets), (self.add_self_loops, self.num_given, self._given)
        return Neighborhoods(self.edge_index, edge, source, target, sizes, *rest)

    def __repr__(self) -> str:
        return f"Neighborhoods(sources={self.num_sources}, targets={self.num_targets}, tokens={self.num_places})"


def smallest_integer(size: int) -> torch.dtype:
    """The smaller integer type that can count to ``size``: less memory to read, and fewer passes of a sort."""
    return torch.int32 if size < 2**31 else torch.int64


# The only cache: edge_index -> the edges that were read, their version, the layout and the version of its tensors,
# by number of nodes and self loops.
_layouts: WeakIdKeyDictionary = WeakIdKeyDictionary()


@torch.compiler.disable
def neighborhoods(
    edge_index: Tensor, num_nodes: tuple[int, int], add_self_loops: bool, checks: bool | None = None
) -> Neighborhoods:
    """:meth:`Neighborhoods.from_edge_index` of an int64 tensor ``[2, E]``, cached while ``edge_index`` lives.

    The cached layout is used again if ``edge_index`` holds the same edges, which are compared one by one. On a GPU
    without checks, and while a CUDA graph is captured, comparing them would synchronise with the device: there, they
    are the same unless PyTorch has counted a write to ``edge_index`` since.
    """
    memo = _layouts.get(edge_index)
    if torch.compiler.is_compiling() or (memo is None and capturing()):  # a tracer's tensors have no values to compare
        return Neighborhoods._build(edge_index, num_nodes, add_self_loops, checks)
    if memo is None:
        memo = _layouts[edge_index] = Memo(edge_index.device)
    key = (*num_nodes, add_self_loops)
    version = _version(edge_index)
    if (known := memo.get(key)) is not None:
        given, given_version, hood, hood_version = known
        counted = capturing() or (edge_index.is_cuda and given_version is not None and not checks_enabled(checks))
        same = given_version == version if counted else torch.equal(given, edge_index)
        if same and hood_version == _version(hood.ptr, hood.edge_index):  # both are returned to users
            if given_version != version:
                memo.put(key, (given, version, hood, hood_version))
            return hood
    hood = Neighborhoods._build(edge_index, num_nodes, add_self_loops, checks)
    if not torch.is_inference_mode_enabled():
        whole = add_self_loops and hood._given is None
        given = hood.edge_index[:, : edge_index.size(1)] if whole else edge_index.clone()
        if not add_self_loops:  # the layout must not keep the key of a weak dictionary alive
            hood.edge_index = given
        memo.put(key, (given, version, hood, _version(hood.ptr, hood.edge_index)))
    return hood


def _version(*tensors: Tensor) -> tuple[int, ...] | None:
    """How often PyTorch has counted a write to tensors; ``None`` in inference mode, where it does not count."""
    return None if any(tensor.is_inference() for tensor in tensors) else tuple(tensor._version for tensor in tensors)
