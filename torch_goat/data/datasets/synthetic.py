"""The paper's synthetic tasks on random graphs, tasks about an order, and a simulated epidemic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from torch_goat.data.datasets.splits import generated_parts, masks, shuffled_parts
from torch_goat.lazy import lazy_module

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor
    from torch_geometric.data import Data
else:
    torch = lazy_module("torch")
pyg_data = lazy_module("torch_geometric.data")
pyg_utils = lazy_module("torch_geometric.utils")

OrderTask = Literal["alternations", "median", "run"]


def top2(seed: int = 0, num_nodes: int = 1000, edge_probability: float = 0.01) -> Data:
    r"""The paper's Top-2 pooling task (section 5.1) on an Erdős–Rényi graph.

    The one-dimensional features are drawn from three equally weighted Gaussians (means 1, 1, 2, standard deviations
    1, 4, 1). A node's value is :math:`\phi(a, b) = \sqrt{e^a + e^b}` of the two largest distinct features within two
    hops, those at distance 2 scaled by 0.8; its class is whether its value exceeds the median. 60/20/20 percent of the
    nodes are for training, validation and testing.
    """
    generator = torch.Generator().manual_seed(seed)
    adjacent = erdos_renyi(num_nodes, edge_probability, generator)  # [N, N]
    component = torch.randint(3, (num_nodes,), generator=generator)
    mean, deviation = torch.tensor([[1.0, 1.0, 2.0], [1.0, 4.0, 1.0]])[:, component]
    feature = mean + deviation * torch.randn(num_nodes, generator=generator)  # [N]
    value = top2_value(feature, adjacent)
    return _on_random_graph(feature.view(-1, 1), adjacent, (value > value.median()).long(), generator)


def betweenness(seed: int = 0, num_nodes: int = 100, edge_probability: float = 0.09) -> Data:
    """The betweenness centrality of every node of an Erdős–Rényi graph (section 5.2), scaled to [0, 1].

    The features are the identity matrix; 60/20/20 percent of the nodes are for training, validation and testing.
    """
    return _structure(betweenness_value, seed, num_nodes, edge_probability)


def effective_size(seed: int = 0, num_nodes: int = 100, edge_probability: float = 0.09) -> Data:
    """The effective size of every node of an Erdős–Rényi graph; otherwise the same as :func:`betweenness`."""
    return _structure(effective_size_value, seed, num_nodes, edge_probability)


def order_task(
    seed: int = 0,
    task: OrderTask = "alternations",
    num_nodes: int = 8000,
    neighbors: tuple[int, int] = (6, 12),
    noise_columns: int = 6,
) -> Data:
    """A directed random graph whose labels are read from the neighbours in the order of a hidden key.

    Every node has a key and a value, both standard normal. The features are these two and ``noise_columns`` columns of
    standard normal noise, times a random rotation. A node has edges from ``neighbors[0]`` to ``neighbors[1]`` other
    nodes, all drawn uniformly; :func:`order_label` gives its label. 60/20/20 percent of the nodes are for training,
    validation and testing. ``key`` ``[N]`` is the hidden key, ``edge_key`` ``[E]`` that of each edge's source.
    """
    low, high = neighbors
    if not 0 <= low <= high < num_nodes:
        raise ValueError(f"neighbors must be two ascending numbers from 0 to num_nodes - 1, got {neighbors}.")
    if noise_columns < 0:
        raise ValueError(f"noise_columns must be at least 0, got {noise_columns}.")
    generator, width = torch.Generator().manual_seed(seed), 2 + noise_columns
    columns = torch.randn(num_nodes, width, generator=generator, dtype=torch.double)
    key, value = columns[:, 0].float(), columns[:, 1].float()
    rotation, upper = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.double))
    rotation *= upper.diagonal().sign()  # without it, rotations would not be uniform
    drawn = torch.empty(num_nodes, 0, dtype=torch.long)  # distinct numbers in every row
    for taken in range(high):
        new = torch.randint(num_nodes - 1 - taken, (num_nodes,), generator=generator)
        for other in drawn.sort(dim=1).values.unbind(dim=1):
            new += new >= other
        drawn = torch.cat([drawn, new.view(-1, 1)], dim=1)
    size = torch.randint(low, high + 1, (num_nodes, 1), generator=generator)
    target, column = (torch.arange(high) < size).nonzero().t()
    edge_index = torch.stack([(target + 1 + drawn[target, column]) % num_nodes, target])
    return pyg_data.Data(
        x=(columns @ rotation).float(),
        edge_index=edge_index,
        y=order_label(task, key, value, edge_index),
        key=key,
        edge_key=key[edge_index[0]],
        **masks(generated_parts(num_nodes, generator), num_nodes),
    )


def order_label(task: OrderTask, key: Tensor, value: Tensor, edge_index: Tensor) -> Tensor:
    """The label of every node ``[N]``, from the signs of its neighbours' values ``[N]`` in decreasing order of their
    keys ``[N]``.

    ``"alternations"`` is the number of changes of the sign, ``"run"`` the length of the longest run of one sign, and
    ``"median"`` whether the sign in the middle is positive; of two in the middle, the second counts. Equal keys are
    ordered by the number of the node, ascending. A value of zero is not positive. All labels of a node without
    neighbours are 0.
    """
    from torch_goat.ops.checks import check_choice

    check_choice("task", task, *get_args(OrderTask))
    source, target = edge_index
    place = torch.from_numpy(np.lexsort((source, -key[source], target)))
    source, target = edge_index[:, place]
    positive = value[source] > 0  # [E]
    if task == "median":
        size = torch.bincount(target, minlength=len(key))
        middle = (size.cumsum(0) - size + size // 2)[size > 0]
        return torch.zeros_like(size).masked_scatter(size > 0, positive[middle].long())
    first = torch.ones_like(positive)  # [E], whether a run begins there
    first[1:] = (target.diff() != 0) | (positive[1:] != positive[:-1])
    owner, length = target[first], torch.bincount(first.cumsum(0) - 1)
    if task == "alternations":
        return (torch.bincount(owner, minlength=len(key)) - 1).clamp(min=0)
    return torch.zeros(len(key), dtype=torch.long).scatter_reduce(0, owner, length, "amax")


def disease_sim(seed: int = 0, num_nodes: int = 1044, num_features: int = 10) -> Data:
    """A simulated epidemic on a random tree, a substitute for Disease if its features are unavailable.

    As in Disease, the root is infected first, a node's class is whether it was ever infected, and 30/10/60 percent of
    the nodes are for training, validation and testing. Each node has a Gaussian susceptibility: above -0.4 it almost
    certainly catches the disease from an infected neighbour in one step, below it rarely does. The features are noisy
    measurements of the susceptibility: they show which nodes are safe, but not which were reached. Results on this
    graph are not comparable with results on Disease.
    """
    if num_nodes < 10:
        raise ValueError(f"num_nodes must be at least 10, got {num_nodes}.")
    generator = torch.Generator().manual_seed(seed)
    edge_index = random_tree(num_nodes, generator)
    start = torch.arange(num_nodes) == 0
    while True:
        susceptibility = torch.randn(num_nodes, generator=generator)
        ever = epidemic(edge_index, (10 * (susceptibility + 0.4)).sigmoid(), start, generator)
        if 0.1 * num_nodes <= int(ever.sum()) <= 0.5 * num_nodes:  # otherwise one class is too rare: draw again
            break
    return pyg_data.Data(
        x=susceptibility.view(-1, 1) + torch.randn(num_nodes, num_features, generator=generator),
        edge_index=edge_index,
        y=ever.long(),
        **masks(shuffled_parts(num_nodes, 0.3, 0.1, seed), num_nodes),
    )


def erdos_renyi(num_nodes: int, edge_probability: float, generator: Generator) -> Tensor:
    """The symmetric adjacency matrix ``[N, N]`` of a random graph without self loops."""
    if num_nodes < 1:
        raise ValueError(f"num_nodes must be at least 1, got {num_nodes}.")
    if not 0 <= edge_probability <= 1:
        raise ValueError(f"edge_probability must be between 0 and 1, got {edge_probability}.")
    above = torch.rand(num_nodes, num_nodes, generator=generator).triu(diagonal=1) > 1 - edge_probability
    return above | above.t()


def random_tree(num_nodes: int, generator: Generator) -> Tensor:
    """The ``edge_index`` of a tree that grows level by level from node 0, with 2 to 6 children per node."""
    children = torch.randint(2, 7, (num_nodes,), generator=generator)
    parent = torch.arange(num_nodes).repeat_interleave(children)[: num_nodes - 1]
    return pyg_utils.to_undirected(torch.stack([parent, torch.arange(1, num_nodes)]), num_nodes=num_nodes)


def epidemic(edge_index: Tensor, chance: Tensor, start: Tensor, generator: Generator, recovery: float = 0.5) -> Tensor:
    """Simulates an SIR epidemic and returns which nodes were ever infected ``[N]``: in one step, a node catches the
    disease from each infected neighbour with probability ``chance`` ``[N]``, and recovers with ``recovery``."""
    source, target = edge_index
    infected, ever = start, start.clone()
    while infected.any():
        contacts = torch.zeros_like(chance).index_add_(0, target, infected[source].to(chance.dtype))
        escapes = (1 - chance) ** contacts > torch.rand(len(chance), generator=generator)
        lasting = torch.rand(len(chance), generator=generator) >= recovery
        infected = (infected & lasting) | ~(ever | escapes)
        ever = ever | infected
    return ever


def top2_value(feature: Tensor, adjacent: Tensor) -> Tensor:
    """The value of every node ``[N]``, from features ``[N]`` and a symmetric adjacency matrix ``[N, N]``.

    The node itself does not count, and the shortest path decides the distance. If there are fewer than two distinct
    features within two hops, the missing ones count as minus infinity.
    """
    hop = adjacent.float()
    second = (hop @ hop > 0) & ~adjacent
    second.fill_diagonal_(False)
    nothing = torch.full((), -torch.inf)
    around = torch.where(adjacent, feature, torch.where(second, 0.8 * feature, nothing))  # [N, N]
    largest = around.amax(dim=1, keepdim=True)
    runner_up = torch.where(around < largest, around, nothing).amax(dim=1)
    return (largest.squeeze(1).exp() + runner_up.exp()).sqrt()


def betweenness_value(adjacent: Tensor) -> Tensor:
    r"""The betweenness centrality :math:`b(u) = \sum_{s,t} \sigma(s, t \mid u) / \sigma(s, t)` of every node ``[N]``,
    over unordered pairs of other nodes, from a symmetric adjacency matrix ``[N, N]``.

    This is Brandes' algorithm, level by level for all sources at once: column :math:`s` belongs to the breadth-first
    search from :math:`s`.
    """
    edges = adjacent.double().to_sparse()
    distance = torch.full(adjacent.shape, -1).fill_diagonal_(0)  # [N, N], -1 if not reached
    paths = torch.eye(len(adjacent), dtype=torch.double)  # [N, N], the number of shortest paths
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

    # The share of longer paths that pass through a node, accumulated from the last level of the searches backwards.
    through = torch.zeros_like(paths)
    for far in range(level, 1, -1):
        share = torch.where(distance == far, (1 + through) / paths, 0)
        through += torch.where(distance == far - 1, torch.sparse.mm(edges, share) * paths, 0)
    return through.sum(dim=1) / 2


def effective_size_value(adjacent: Tensor) -> Tensor:
    r"""The effective size :math:`e(u) = n - 2q / n` of every node ``[N]`` with :math:`n` neighbours and :math:`q` edges
    among them, from a symmetric adjacency matrix ``[N, N]``; 0 for isolated nodes."""
    hop = adjacent.float()
    degree = hop.sum(dim=1)
    return degree - ((hop @ hop) * hop).sum(dim=1) / degree.clamp(min=1)


def _structure(measure: Callable[[Tensor], Tensor], seed: int, num_nodes: int, edge_probability: float) -> Data:
    generator = torch.Generator().manual_seed(seed)
    adjacent = erdos_renyi(num_nodes, edge_probability, generator)
    value = measure(adjacent)
    low, high = value.aminmax()
    y = (value - low) / (high - low if high > low else 1)
    return _on_random_graph(torch.eye(num_nodes), adjacent, y.float(), generator)


def _on_random_graph(x: Tensor, adjacent: Tensor, y: Tensor, generator: Generator) -> Data:
    split = masks(generated_parts(len(x), generator), len(x))
    return pyg_data.Data(x=x, edge_index=adjacent.nonzero().t().contiguous(), y=y, **split)
