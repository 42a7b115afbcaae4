import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Literal, SupportsIndex, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from torch_goat.data.loader import vectorised
from torch_goat.data.loader.csc import CSC
from torch_goat.data.loader.draws import batch_key
from torch_goat.ops.checks import check_range

Subgraph = Literal["directional", "bidirectional", "induced"]


class NeighborSampler(BaseSampler):
    """Draws neighbours for mini-batches, uniformly and without replacement, behind PyG's interface for samplers.

    It goes into PyG's ``NodeLoader`` and ``LinkLoader``, and needs neither ``pyg-lib`` nor ``torch-sparse``. What is
    drawn is a function of the seed and of the nodes of a batch in their order: it is the same in whichever worker the
    batch is made, and another one in the next epoch if the nodes are shuffled. numba makes it faster where it is
    installed; the numbers are the same without.

    Args:
        data: The graph: a PyG ``Data``, or a pair of a ``FeatureStore`` and a ``GraphStore``.
        fanout: The most neighbours to draw of each node, hop by hop from the batch's own nodes; -1 takes all of them.
        subgraph_type: ``"directional"`` gives the edges that were drawn, each from a neighbour to the node that it was
            drawn for; ``"bidirectional"`` their reverse ones too; ``"induced"`` all edges between the nodes of a batch.
        seed: The seed of every draw.
        compiled: Whether numba does the work; ``None``: where it is installed.
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
            raise ValueError(f"seed must be from 0 to 2^63 - 1, got {seed}.")
        self.fanout = check_fanout(fanout)
        self.csc = CSC.of(data)
        self.subgraph_type, self.seed = subgraph_type, seed
        self._sampler = _sampler(compiled)
        self._graph = self.csc.ptr.numpy(), self.csc.source.numpy()
        self._sample(torch.empty(0, dtype=torch.long))  # compiles, before workers are started

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the graph."""
        return self.csc.num_nodes

    @property
    def edge_permutation(self) -> Tensor | None:
        """The place of each edge in the graph's own list, as PyG's loaders ask for it."""
        return self.csc.edge

    def sample_from_nodes(self, inputs: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """The neighbourhood of a batch of nodes.

        Args:
            inputs: The nodes.
            **kwargs: Nothing; part of PyG's interface.
        """
        if inputs.time is not None:
            raise ValueError("nodes with times were given, which this sampler does not look at; leave input_time out.")
        return node_sample(inputs, self._sample)

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput:
        """The neighbourhood of the ends of a batch of edges, and of negative ones.

        Args:
            inputs: The edges.
            neg_sampling: How many edges that are not there to draw, and in which form.
        """
        if inputs.time is not None:
            raise ValueError("edges with times were given, which this sampler does not look at; leave them out.")
        ends = torch.cat([inputs.row, inputs.col]).numpy()
        with torch.random.fork_rng(devices=[]):  # PyG draws negative edges from PyTorch's generator
            torch.default_generator.manual_seed(int(batch_key(self.seed, ends)[0] >> np.uint64(1)))  # no other device's
            return edge_sample(inputs, self._sample, self.num_nodes, False, None, neg_sampling)

    def _sample(self, seeds: Tensor, seed_time: None = None) -> SamplerOutput:
        check_range("the batch", seeds, self.num_nodes)
        nodes = seeds.numpy().astype(np.int64, copy=False)
        key = batch_key(self.seed, nodes)
        found = self._sampler(*self._graph, nodes, np.array(self.fanout, np.int64), key)
        node, row, column, edge = map(torch.from_numpy, found[:4])
        sizes, counts = (values.tolist() for values in found[4:])
        if self.subgraph_type == "induced":
            row, column, edge = self._induced(node)
            return SamplerOutput(node, row, column, edge)
        out = SamplerOutput(node, row, column, edge, num_sampled_nodes=sizes, num_sampled_edges=counts)
        return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out

    def _induced(self, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All edges between the nodes, by target."""
        edge, degree = self.csc.into(node)
        column = torch.repeat_interleave(degree)
        source = self.csc.source[edge].long()
        ordered, place = node.sort(stable=True)
        slot = torch.searchsorted(ordered, source).clamp(max=max(node.numel() - 1, 0))
        inside = ordered[slot] == source
        return place[slot[inside]], column[inside], edge[inside]


def check_fanout(fanout: Sequence[int]) -> tuple[int, ...]:
    """Refuses numbers of neighbours that cannot be drawn."""
    values = tuple(fanout)
    if not values:
        raise ValueError("fanout is empty; name the most neighbours of every layer, or -1 for all of them.")
    for most in values:
        if isinstance(most, bool) or not isinstance(most, SupportsIndex) or (most < 1 and most != -1):
            raise ValueError(f"fanout has {most!r}; it must be a number of neighbours from 1, or -1 for all of them.")
    return tuple(map(int, values))


def _sampler(compiled: bool | None) -> Callable[..., vectorised.Sampled]:
    there = importlib.util.find_spec("numba") is not None
    if compiled and not there:
        raise ValueError("compiled=True needs numba: pip install 'torch-goat[cpu]'.")
    if not there or compiled is False:
        return vectorised.sample
    from torch_goat.data.loader import compiled as module

    return module.sample
