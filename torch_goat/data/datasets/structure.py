"""The paper's prediction of structural properties (section 5.2)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.data.datasets.erdos_renyi import erdos_renyi
from torch_goat.data.datasets.splits import generated_parts, masks


def betweenness(seed: int = 0, num_nodes: int = 100, edge_probability: float = 0.09) -> Data:
    """The betweenness centrality of every node of a random graph, scaled to [0, 1] over the graph.

    An Erdős–Rényi graph with the identity matrix as features; 60/20/20 percent of the nodes are for training,
    validation and testing.

    Args:
        seed: The seed of the graph and the split.
        num_nodes: The number of nodes.
        edge_probability: The probability of each edge.
    """
    return _task(betweenness_value, seed, num_nodes, edge_probability)


def effective_size(seed: int = 0, num_nodes: int = 100, edge_probability: float = 0.09) -> Data:
    """The effective size of every node of a random graph; else as :func:`betweenness`."""
    return _task(effective_size_value, seed, num_nodes, edge_probability)


def _task(value: Callable[[Tensor], Tensor], seed: int, num_nodes: int, edge_probability: float) -> Data:
    generator = torch.Generator().manual_seed(seed)
    adjacent = erdos_renyi(num_nodes, edge_probability, generator)
    return Data(
        x=torch.eye(num_nodes),
        edge_index=adjacent.nonzero().t().contiguous(),
        y=scaled(value(adjacent)).float(),
        **masks(generated_parts(num_nodes, generator), num_nodes),
    )


def scaled(value: Tensor) -> Tensor:
    """Values moved and stretched to reach from 0 to 1; all 0 where they are all the same."""
    low, high = value.aminmax()
    return (value - low) / (high - low if high > low else 1)


def betweenness_value(adjacent: Tensor) -> Tensor:
    r"""The betweenness centrality :math:`b(u) = \sum_{s,t} \sigma(s, t \mid u) / \sigma(s, t)` of every node ``[N]``.

    Every unordered pair of other nodes counts once. This is Brandes' algorithm for all sources at once, a level of the
    breadth-first searches at a time: column :math:`s` of a matrix belongs to the search from :math:`s`.

    Args:
        adjacent: A symmetric adjacency ``[N, N]``.
    """
    edges = adjacent.double().to_sparse()
    distance = torch.full(adjacent.shape, -1).fill_diagonal_(0)  # [N, N], -1 where not reached
    paths = torch.eye(len(adjacent), dtype=torch.double)  # how many shortest ones lead here
    frontier, level = paths, 0
    while True:
        arriving = torch.sparse.mm(edges, frontier)
        new = (arriving > 0) & (distance < 0)
        if not new.any():
            break
        level += 1
        distance[new] = level
        frontier = torch.where(new, arriving, 0)
        paths = paths + frontier

    # How much of the paths that lead on goes through a node, from the far end of the searches back to their start.
    through = torch.zeros_like(paths)
    for far in range(level, 1, -1):
        share = torch.where(distance == far, (1 + through) / paths, 0)
        through += torch.where(distance == far - 1, torch.sparse.mm(edges, share) * paths, 0)
    return through.sum(dim=1) / 2


def effective_size_value(adjacent: Tensor) -> Tensor:
    r"""The effective size :math:`e(u) = n - 2q / n` of every node ``[N]``, with :math:`q` ties among its :math:`n`
    neighbours; 0 for a node without any.

    Args:
        adjacent: A symmetric adjacency ``[N, N]``.
    """
    hop = adjacent.float()
    degree = hop.sum(dim=1)
    return degree - 2 * ties(hop) / degree.clamp(min=1)


def ties(adjacent: Tensor) -> Tensor:
    """How many edges there are among the neighbours of every node ``[N]``.

    Args:
        adjacent: A symmetric adjacency of real numbers ``[N, N]``.
    """
    return ((adjacent @ adjacent) * adjacent).sum(dim=1) / 2
