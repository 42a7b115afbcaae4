from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader, NodeLoader

from torch_goat.data.loader.sampler import NeighborSampler, Subgraph, check_fanout


def neighbor_loader(
    data: Any,
    fanout: Sequence[int],
    *,
    input_nodes: Tensor | None = None,
    subgraph_type: Subgraph = "directional",
    seed: int = 0,
    **options: Any,
) -> NodeLoader:
    """A loader of mini-batches: PyG's ``NeighborLoader`` where ``pyg-lib`` is installed, else one that needs neither.

    Args:
        data: The graph: a PyG ``Data``, or a pair of a ``FeatureStore`` and a ``GraphStore``.
        fanout: The most neighbours to draw of each node, hop by hop; -1 takes all of them.
        input_nodes: The nodes that batches are made for, as numbers or as a mask; all of them if ``None``.
        subgraph_type: As in :class:`NeighborSampler`.
        seed: The seed of the draws; PyG's own loader draws from PyTorch's generator instead.
        **options: Of PyG's ``NodeLoader`` and PyTorch's ``DataLoader``: ``batch_size``, ``shuffle``, ``num_workers``,
            ``transform``, ...
    """
    if isinstance(data, Data) and data.get("edge_index") is None:
        input_nodes = torch.arange(data.num_nodes) if input_nodes is None else input_nodes
        if data.get("edge_attr") is not None:
            options["transform"] = _WithEdges(data.edge_attr, options.get("transform"))
        data = (data, data)  # a Data is both stores; PyG's loaders ask it for its edges in this form alone
    if torch_geometric.typing.WITH_PYG_LIB and subgraph_type != "induced":
        neighbors = list(check_fanout(fanout))
        return NeighborLoader(data, neighbors, input_nodes=input_nodes, subgraph_type=subgraph_type, **options)
    sampler = NeighborSampler(data, fanout, subgraph_type=subgraph_type, seed=seed)
    if isinstance(input_nodes, Tensor) and input_nodes.dtype == torch.bool and len(input_nodes) != sampler.num_nodes:
        raise ValueError(
            f"input_nodes is a mask of {len(input_nodes)} nodes, but the graph has {sampler.num_nodes}; mask them all."
        )
    every = torch.arange(sampler.num_nodes) if input_nodes is None else input_nodes
    return NodeLoader(data, sampler, input_nodes=every, **options)


class _WithEdges:
    """Gives batches the features of their edges, which PyG asks no store for.

    Args:
        edge_attr: The features of all edges ``[E, D]``.
        then: What else is done to a batch.
    """

    def __init__(self, edge_attr: Tensor, then: Callable[[Any], Any] | None) -> None:
        self.edge_attr, self.then = edge_attr, then

    def __call__(self, batch: Any) -> Any:
        batch.edge_attr = self.edge_attr[batch.e_id]
        return batch if self.then is None else self.then(batch)
