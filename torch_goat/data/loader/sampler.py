import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from torch_goat.data.fanout import check_fanout
from torch_goat.data.loader.csc import CSC
from torch_goat.data.loader.draws import batch_key, generator_seed
from torch_goat.data.loader.typed import Relation, relations_of, sample_typed
from torch_goat.ops.checks import check_choice, check_count, check_range

Subgraph = Literal["directional", "bidirectional", "induced"]


class NeighborSampler(BaseSampler):
    """Samples neighbours for mini-batches, uniformly and without replacement.

    It implements PyG's sampler interface for ``NodeLoader`` and ``LinkLoader`` without ``pyg-lib`` or
    ``torch-sparse``. A sample depends only on ``seed``, ``epoch`` and the nodes of the batch in their order, not on the
    process that draws it. numba makes samples from a ``Data`` without times faster if installed; they are the same
    without it.

    Args:
        data: The graph: a PyG ``Data`` or ``HeteroData``, or a pair of a ``FeatureStore`` and a ``GraphStore``.
        fanout: The maximum number of neighbours per node, hop by hop from the batch's nodes; -1 takes all. For a
            ``HeteroData``, along every type of edges, or a dictionary by type.
        subgraph_type: ``"directional"`` returns the sampled edges, from each neighbour to the node that it was sampled
            for; ``"bidirectional"`` adds their reverse edges; ``"induced"`` returns all edges between the nodes.
        time_attr: The attribute of nodes or edges with their times. Every node of a batch then has a sample of its own
            (``batch`` says whose a sampled node is), in which no neighbour or edge is later than the node of the batch.
        temporal_strategy: ``"uniform"`` draws among the neighbours that are not too late; ``"last"`` takes the latest.
        seed: The seed of all samples.
        compiled: Whether to use numba; by default if it is installed.

    Attributes:
        epoch: The number of the epoch, a tensor that worker processes share. :func:`neighbor_loader` counts it; with
            other loaders, ``epoch += 1`` before each epoch gives new neighbours to batches with the same nodes.
    """

    def __init__(
        self,
        data: Any,
        fanout: Sequence[int] | Mapping[Any, Sequence[int]],
        *,
        subgraph_type: Subgraph = "directional",
        time_attr: str | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        seed: int = 0,
        compiled: bool | None = None,
    ) -> None:
        check_choice("subgraph_type", subgraph_type, *get_args(Subgraph))
        check_choice("temporal_strategy", temporal_strategy, "uniform", "last")
        self.subgraph_type, self.seed, self.time_attr = subgraph_type, check_count("seed", seed, 0), time_attr
        self.epoch = torch.zeros((), dtype=torch.long).share_memory_()
        self._hetero, self._compiled = isinstance(data, HeteroData), False
        typed = self._hetero or time_attr is not None
        self._last = typed and temporal_strategy == "last"
        if typed:
            if subgraph_type == "induced":
                raise ValueError("subgraph_type='induced' needs a Data without time_attr; choose 'directional'.")
            if not isinstance(data, Data | HeteroData):
                raise TypeError(f"time_attr needs a Data or a HeteroData, got {type(data).__name__}.")
            fanout = _fanouts(fanout, data.edge_types if isinstance(data, HeteroData) else [])
            self._sizes, self._relations, self._node_time = relations_of(data, fanout, time_attr)
            return
        fanout = check_fanout(fanout)  # type: ignore[arg-type]
        self.csc = CSC.of(data)
        self._sizes, self._node_time = {None: self.csc.num_nodes}, {}
        self._relations = [Relation(None, self.csc, fanout)]
        self._compiled = _wants_numba(compiled)
        self._sample(torch.empty(0, dtype=torch.long))  # compiles before workers are started

    @property
    def num_nodes(self) -> Any:
        """The number of nodes of the graph, or the numbers by type."""
        return self._sizes if self._hetero else self._sizes[None]

    @property
    def edge_permutation(self) -> Any:
        """The position of each edge in the graph's ``edge_index``, used by PyG's loaders."""
        if self._hetero:
            return {relation.edge_type: relation.csc.edge for relation in self._relations}
        return self._relations[0].csc.edge

    @property
    def _epoch_seed(self) -> int:
        epoch = int(self.epoch)
        return generator_seed(self.seed, np.array([epoch])) if epoch else self.seed

    def sample_from_nodes(self, inputs: NodeSamplerInput, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """Samples the neighbourhood of a batch of nodes; other arguments of PyG's interface are ignored."""
        self._check_time(inputs.time)
        return node_sample(inputs, self._sample)

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples the neighbourhood of the endpoints of a batch of edges and of negative edges."""
        self._check_time(inputs.time)
        ends = torch.cat([inputs.row, inputs.col]).numpy()
        node_time = (self._node_time if self._hetero else self._node_time.get(None)) if self.time_attr else None
        with torch.random.fork_rng(devices=[]):  # PyG draws negative edges from the generator of the CPU
            torch.default_generator.manual_seed(generator_seed(self._epoch_seed, ends))
            separate = self.time_attr is not None
            return edge_sample(inputs, self._sample, self.num_nodes, separate, node_time, neg_sampling)

    def _check_time(self, time: Tensor | None) -> None:
        if time is not None and self.time_attr is None:
            raise ValueError("times of a batch need the times of the graph; pass time_attr to the sampler.")

    def _sample(self, seeds: Any, seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        by_type: dict[Any, Tensor] = seeds if isinstance(seeds, dict) else {None: seeds}
        times: dict[Any, Tensor | None] = seed_time if isinstance(seed_time, dict) else {None: seed_time}
        found_times: list[Any] = []
        for kind, nodes in by_type.items():
            check_range("the batch", nodes, self._sizes[kind])
            time = times.get(kind)
            if time is None and kind in self._node_time:
                time = self._node_time[kind][nodes]
            if time is None and self.time_attr is not None:
                raise ValueError(f"{self.time_attr} is a time of edges; pass the times of the nodes as input_time.")
            found_times.append(time)
        arrays = {kind: nodes.numpy().astype(np.int64, copy=False) for kind, nodes in by_type.items()}
        key = batch_key(self._epoch_seed, np.concatenate(list(arrays.values())))
        limit = None if self.time_attr is None else torch.cat(found_times).numpy()
        if self._compiled:
            from torch_goat.data.loader import compiled

            found = compiled.sample(self._relations[0], arrays[None], key)
        else:
            found = sample_typed(self._sizes, self._relations, arrays, limit, key, self._last)
        node, batch = ({kind: torch.from_numpy(v) for kind, v in part.items()} for part in (found.node, found.batch))
        if self.subgraph_type == "induced":
            return SamplerOutput(node[None], *self._induced(node[None]))
        types = [relation.edge_type for relation in self._relations]
        rows, columns, edges = (
            {kind: torch.from_numpy(parts[number]) for kind, parts in zip(types, found.edges, strict=True)}
            for number in range(3)
        )
        counts = dict(zip(types, found.counts, strict=True))
        parts: list[Any] = [node, rows, columns, edges, *([] if limit is None else [batch])]
        numbers: dict[str, Any] = {"num_sampled_nodes": found.sizes, "num_sampled_edges": counts}
        if self._hetero:
            out: Any = HeteroSamplerOutput(*parts, **numbers)
        else:
            out = SamplerOutput(*(part[None] for part in parts), **{name: one[None] for name, one in numbers.items()})
        return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out

    def _induced(self, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The sources, targets and positions of all edges between the nodes, by target."""
        edge, degree = self.csc.into(node)
        column = torch.repeat_interleave(degree)
        source = self.csc.source[edge].long()
        ordered, place = node.sort(stable=True)
        slot = torch.searchsorted(ordered, source).clamp(max=max(node.numel() - 1, 0))
        inside = ordered[slot] == source
        return place[slot[inside]], column[inside], edge[inside]


class _EpochLoader(NodeLoader):
    """A loader that draws new neighbours in every epoch."""

    def __iter__(self) -> Any:
        self.node_sampler.epoch += 1
        return super().__iter__()


def neighbor_loader(
    data: Any,
    num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]],
    *,
    input_nodes: Any = None,
    subgraph_type: Subgraph = "directional",
    time_attr: str | None = None,
    temporal_strategy: Literal["uniform", "last"] = "uniform",
    seed: int = 0,
    **options: Any,
) -> NodeLoader:
    """A loader of mini-batches: PyG's ``NeighborLoader`` if ``pyg-lib`` is installed, otherwise a ``NodeLoader`` with
    :class:`NeighborSampler`.

    Neighbours are drawn without replacement, and anew in every epoch. Those of :class:`NeighborSampler` depend only on
    ``seed``, on how often the loader was iterated before and on the nodes of the batch, not on ``num_workers`` or
    ``torch.manual_seed``. To resume after ``n`` epochs, call ``loader.node_sampler.epoch.fill_(n)``.

    Args:
        data: The graph: a PyG ``Data`` or ``HeteroData``, or a pair of a ``FeatureStore`` and a ``GraphStore``.
        num_neighbors: The maximum number of neighbours per node, hop by hop; -1 takes all. A dictionary gives them by
            type of edges.
        input_nodes: The nodes to create batches for, as indices or as a mask; all nodes by default. For a
            ``HeteroData``, their type, or a pair of type and nodes.
        subgraph_type: See :class:`NeighborSampler`.
        time_attr: The attribute with times of nodes or edges: no sampled neighbour is later than the node of the batch,
            whose time is its own or given by ``input_time``. See :class:`NeighborSampler`.
        temporal_strategy: See :class:`NeighborSampler`.
        seed: The seed of the samples; PyG's ``NeighborLoader`` uses PyTorch's generator instead.
        **options: Options of PyG's ``NodeLoader`` and PyTorch's ``DataLoader``: ``batch_size``, ``shuffle``,
            ``num_workers``, ``transform``, ``input_time``, ...
    """
    supported, known = (inspect.signature(loader).parameters for loader in (NodeLoader, NeighborLoader))
    for name in options:
        if name in known and name not in supported:
            raise TypeError(
                f"neighbor_loader does not support {name}={options[name]!r}; leave it out, or use PyG's NeighborLoader "
                "with pyg-lib."
            )
    temporal: dict[str, Any] = {"time_attr": time_attr, "temporal_strategy": temporal_strategy}
    kind, nodes = None, input_nodes
    if isinstance(data, HeteroData):
        pair = isinstance(input_nodes, tuple | list) and len(input_nodes) == 2
        kind, nodes = input_nodes if pair else (input_nodes, None)
        if not isinstance(kind, str) or kind not in data.node_types:
            raise ValueError(
                f"input_nodes must name one of the node types {data.node_types}, alone or with the nodes, as in "
                f"('{data.node_types[0]}', mask), got {kind!r}."
            )
    if isinstance(data, Data) and data.get("edge_index") is None:
        input_nodes = torch.arange(data.num_nodes) if input_nodes is None else input_nodes
        if data.get("edge_attr") is not None:
            options["transform"] = partial(_add_edge_attr, data.edge_attr, options.get("transform"))
        data = (data, data)  # PyG's loaders read grouped edges only from stores
    if torch_geometric.typing.WITH_PYG_LIB and subgraph_type != "induced":
        neighbors = _fanouts(num_neighbors, data.edge_types if isinstance(data, HeteroData) else [])
        return NeighborLoader(
            data, neighbors, input_nodes=input_nodes, subgraph_type=subgraph_type, **temporal, **options
        )
    sampler = NeighborSampler(data, num_neighbors, subgraph_type=subgraph_type, seed=seed, **temporal)
    num_nodes = sampler.num_nodes if kind is None else sampler.num_nodes[kind]
    if isinstance(nodes, Tensor) and nodes.dtype == torch.bool and len(nodes) != num_nodes:
        raise ValueError(f"input_nodes is a mask of {len(nodes)} nodes, but there are {num_nodes}.")
    every = torch.arange(num_nodes) if input_nodes is None else input_nodes
    return _EpochLoader(data, sampler, input_nodes=every, **options)


def _add_edge_attr(edge_attr: Tensor, then: Callable[[Any], Any] | None, batch: Any) -> Any:
    """Adds ``edge_attr`` to a batch, which PyG does not read from stores, then applies the user's transform."""
    batch.edge_attr = edge_attr[batch.e_id]
    return batch if then is None else then(batch)


def _fanouts(fanout: Any, edge_types: Sequence[Any]) -> Any:
    """Validates the number of neighbours of each hop, which may differ between types of edges."""
    if not isinstance(fanout, Mapping):
        return list(check_fanout(fanout))
    if set(fanout) != set(edge_types) or len({len(hops) for hops in fanout.values()}) != 1:
        raise ValueError(
            f"fanout must have as many hops for each of the edge types {list(edge_types)}, got {dict(fanout)}."
        )
    return {edge_type: list(check_fanout(fanout[edge_type])) for edge_type in edge_types}


def _wants_numba(compiled: bool | None) -> bool:
    installed = importlib.util.find_spec("numba") is not None
    if compiled and not installed:
        raise ValueError("compiled=True needs numba: pip install 'torch-goat[cpu]'.")
    return installed and compiled is not False
