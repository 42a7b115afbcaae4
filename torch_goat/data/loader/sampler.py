import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, SupportsIndex, get_args

import numpy as np
import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from torch_goat.data.loader import draws
from torch_goat.data.loader.csc import CSC
from torch_goat.data.loader.draws import batch_key, generator_seed
from torch_goat.ops.checks import check_range

Subgraph = Literal["directional", "bidirectional", "induced"]


class NeighborSampler(BaseSampler):
    """Samples neighbours for mini-batches, uniformly and without replacement.

    It implements PyG's sampler interface for ``NodeLoader`` and ``LinkLoader`` without ``pyg-lib`` or
    ``torch-sparse``. A sample depends only on the seed and on the nodes of the batch in their order: it is the same in
    every worker, and differs between epochs if the nodes are shuffled. numba makes it faster if installed; the samples
    are the same without it.

    Args:
        data: The graph: a PyG ``Data``, or a pair of a ``FeatureStore`` and a ``GraphStore``.
        fanout: The maximum number of neighbours per node, hop by hop from the batch's nodes; -1 takes all.
        subgraph_type: ``"directional"`` returns the sampled edges, from each neighbour to the node that it was sampled
            for; ``"bidirectional"`` adds their reverse edges; ``"induced"`` returns all edges between the nodes.
        seed: The seed of all samples.
        compiled: Whether to use numba; by default if it is installed.
    """

    def __init__(
        self,
        data: Any,
        fanout: Sequence[int],
        *,
        subgraph_type: Subgraph = "directional",
        seed: int = 0,
        compiled: bool | None = None,
    ) -> None:
        if subgraph_type not in get_args(Subgraph):
            raise ValueError(f"subgraph_type must be one of {list(get_args(Subgraph))}, got {subgraph_type!r}.")
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be between 0 and 2^63 - 1, got {seed}.")
        self.fanout = check_fanout(fanout)
        self.csc = CSC.of(data)
        self.subgraph_type, self.seed = subgraph_type, seed
        self._sampler = _implementation(compiled)
        self._graph = self.csc.ptr.numpy(), self.csc.source.numpy()
        self._sample(torch.empty(0, dtype=torch.long))  # compiles before workers are started

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the graph."""
        return self.csc.num_nodes

    @property
    def edge_permutation(self) -> Tensor | None:
        """The position of each edge in the graph's ``edge_index``, used by PyG's loaders."""
        return self.csc.edge

    def sample_from_nodes(self, inputs: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """Samples the neighbourhood of a batch of nodes; other arguments of PyG's interface are ignored."""
        if inputs.time is not None:
            raise ValueError("temporal sampling is not supported; leave input_time out.")
        return node_sample(inputs, self._sample)

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput:
        """Samples the neighbourhood of the endpoints of a batch of edges and of negative edges."""
        if inputs.time is not None:
            raise ValueError("temporal sampling is not supported; leave edge_label_time out.")
        ends = torch.cat([inputs.row, inputs.col]).numpy()
        with torch.random.fork_rng(devices=[]):  # PyG draws negative edges from the generator of the CPU
            torch.default_generator.manual_seed(generator_seed(self.seed, ends))
            return edge_sample(inputs, self._sample, self.num_nodes, False, None, neg_sampling)

    def _sample(self, seeds: Tensor, seed_time: None = None) -> SamplerOutput:
        check_range("the batch", seeds, self.num_nodes)
        nodes = seeds.numpy().astype(np.int64, copy=False)
        key = batch_key(self.seed, nodes)
        found = self._sampler(*self._graph, nodes, np.array(self.fanout, np.int64), key)
        node, row, column, edge = map(torch.from_numpy, found[:4])
        if self.subgraph_type == "induced":
            return SamplerOutput(node, *self._induced(node))
        sizes, counts = (values.tolist() for values in found[4:])
        out = SamplerOutput(node, row, column, edge, num_sampled_nodes=sizes, num_sampled_edges=counts)
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


def neighbor_loader(
    data: Any,
    fanout: Sequence[int],
    *,
    input_nodes: Tensor | None = None,
    subgraph_type: Subgraph = "directional",
    seed: int = 0,
    **options: Any,
) -> NodeLoader:
    """A loader of mini-batches: PyG's ``NeighborLoader`` if ``pyg-lib`` is installed, otherwise a ``NodeLoader`` with
    :class:`NeighborSampler`.

    Args:
        data: The graph: a PyG ``Data``, or a pair of a ``FeatureStore`` and a ``GraphStore``.
        fanout: The maximum number of neighbours per node, hop by hop; -1 takes all.
        input_nodes: The nodes to create batches for, as indices or as a mask; all nodes by default.
        subgraph_type: See :class:`NeighborSampler`.
        seed: The seed of the samples; PyG's ``NeighborLoader`` uses PyTorch's generator instead.
        **options: Options of PyG's ``NodeLoader`` and PyTorch's ``DataLoader``: ``batch_size``, ``shuffle``,
            ``num_workers``, ``transform``, ...
    """
    if isinstance(data, Data) and data.get("edge_index") is None:
        input_nodes = torch.arange(data.num_nodes) if input_nodes is None else input_nodes
        if data.get("edge_attr") is not None:
            options["transform"] = partial(_add_edge_attr, data.edge_attr, options.get("transform"))
        data = (data, data)  # PyG's loaders read grouped edges only from stores
    if torch_geometric.typing.WITH_PYG_LIB and subgraph_type != "induced":
        neighbors = list(check_fanout(fanout))
        return NeighborLoader(data, neighbors, input_nodes=input_nodes, subgraph_type=subgraph_type, **options)
    sampler = NeighborSampler(data, fanout, subgraph_type=subgraph_type, seed=seed)
    if isinstance(input_nodes, Tensor) and input_nodes.dtype == torch.bool and len(input_nodes) != sampler.num_nodes:
        raise ValueError(
            f"input_nodes is a mask of {len(input_nodes)} nodes, but the graph has {sampler.num_nodes} nodes."
        )
    every = torch.arange(sampler.num_nodes) if input_nodes is None else input_nodes
    return NodeLoader(data, sampler, input_nodes=every, **options)


def _add_edge_attr(edge_attr: Tensor, then: Callable[[Any], Any] | None, batch: Any) -> Any:
    """Adds ``edge_attr`` to a batch, which PyG does not read from stores, then applies the user's transform."""
    batch.edge_attr = edge_attr[batch.e_id]
    return batch if then is None else then(batch)


def check_fanout(fanout: Sequence[int]) -> tuple[int, ...]:
    """Validates the number of neighbours of each hop."""
    values = tuple(fanout)
    if not values:
        raise ValueError("fanout is empty; give the maximum number of neighbours of every layer, or -1 for all.")
    for most in values:
        if isinstance(most, bool) or not isinstance(most, SupportsIndex) or (most < 1 and most != -1):
            raise ValueError(f"fanout must contain positive integers, or -1 for all neighbours, got {most!r}.")
    return tuple(map(int, values))


def _implementation(compiled: bool | None) -> Callable[..., draws.Sampled]:
    installed = importlib.util.find_spec("numba") is not None
    if compiled and not installed:
        raise ValueError("compiled=True needs numba: pip install 'torch-goat[cpu]'.")
    if not installed or compiled is False:
        return draws.sample
    from torch_goat.data.loader import compiled as module

    return module.sample
