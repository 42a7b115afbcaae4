import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from torch_goat.data.datasets.splits import masks, shuffled_parts


def disease_sim(seed: int = 0, num_nodes: int = 1044, num_features: int = 10) -> Data:
    """An epidemic on a random tree, for use where the features of the real Disease data cannot be had.

    As in Disease, the root is infected first, the class of a node is whether it was ever infected, 30/10/60 percent of
    the nodes are for training, validation and testing, and the tree has as many nodes and as many children a node. A
    node's susceptibility is a Gaussian number: above -0.4 the node all but surely catches the disease from an infected
    neighbour in a step, below it hardly. Its features are noisy readings of that number, so that a node's own features
    say who is safe, but not who was reached. Results on this graph say nothing about results on Disease.

    Args:
        seed: The seed of the tree, the epidemic, the features and the split.
        num_nodes: The number of nodes, 10 at least.
        num_features: The number of readings.
    """
    if num_nodes < 10:
        raise ValueError(f"an epidemic needs 10 nodes or more, got num_nodes={num_nodes}.")
    generator = torch.Generator().manual_seed(seed)
    edge_index = random_tree(num_nodes, generator)
    start = torch.arange(num_nodes) == 0
    while True:
        susceptibility = torch.randn(num_nodes, generator=generator)
        ever = epidemic(edge_index, (10 * (susceptibility + 0.4)).sigmoid(), start, generator)
        if 0.1 * num_nodes <= int(ever.sum()) <= 0.5 * num_nodes:  # else one class is hardly there: draw again
            break
    return Data(
        x=susceptibility.view(-1, 1) + torch.randn(num_nodes, num_features, generator=generator),
        edge_index=edge_index,
        y=ever.long(),
        **masks(shuffled_parts(num_nodes, 0.3, 0.1, seed), num_nodes),
    )


def random_tree(num_nodes: int, generator: torch.Generator) -> Tensor:
    """A tree that grows from node 0, level by level, each node with 2 to 6 children as long as nodes are left."""
    children = torch.randint(2, 7, (num_nodes,), generator=generator)
    parent = torch.arange(num_nodes).repeat_interleave(children)[: num_nodes - 1]
    return to_undirected(torch.stack([parent, torch.arange(1, num_nodes)]), num_nodes=num_nodes)


def epidemic(
    edge_index: Tensor, chance: Tensor, start: Tensor, generator: torch.Generator, recovery: float = 0.5
) -> Tensor:
    """Which nodes ``[N]`` a disease ever reaches that makes susceptible nodes infected and infected ones recover.

    Args:
        edge_index: The edges ``[2, E]``, in both directions.
        chance: How likely each node ``[N]`` catches the disease from one infected neighbour in one step.
        start: The nodes ``[N]`` that are infected at first.
        generator: The source of randomness.
        recovery: How likely an infected node recovers in a step, never to be infected again.
    """
    source, target = edge_index
    infected, ever = start, start.clone()
    while infected.any():
        contacts = torch.zeros_like(chance).index_add_(0, target, infected[source].to(chance.dtype))
        escapes = (1 - chance) ** contacts > torch.rand(len(chance), generator=generator)
        lasting = torch.rand(len(chance), generator=generator) >= recovery
        infected = (infected & lasting) | ~(ever | escapes)
        ever = ever | infected
    return ever
