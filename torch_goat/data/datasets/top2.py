import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.data.datasets.erdos_renyi import erdos_renyi
from torch_goat.data.datasets.splits import generated_parts, masks


def top2(seed: int = 0, num_nodes: int = 1000, edge_probability: float = 0.01) -> Data:
    r"""The paper's Top-2 pooling task (section 5.1) on one random graph, made on the spot.

    An Erdős–Rényi graph whose one-dimensional features come from three equally weighted Gaussians (means 1, 1, 2,
    standard deviations 1, 4, 1). A node's value is :math:`\phi(a, b) = \sqrt{e^a + e^b}` of the two largest distinct
    features among its neighbours and theirs, those at distance 2 counted 0.8 times; its class is whether this value is
    above the median. 60/20/20 percent of the nodes are for training, validation and testing.

    Args:
        seed: The seed of the graph, the features and the split.
        num_nodes: The number of nodes.
        edge_probability: The probability of each edge.
    """
    generator = torch.Generator().manual_seed(seed)
    adjacent = erdos_renyi(num_nodes, edge_probability, generator)  # [N, N]
    component = torch.randint(3, (num_nodes,), generator=generator)
    mean, deviation = torch.tensor([[1.0, 1.0, 2.0], [1.0, 4.0, 1.0]])[:, component]
    feature = mean + deviation * torch.randn(num_nodes, generator=generator)  # [N]
    value = top2_value(feature, adjacent)

    return Data(
        x=feature.view(-1, 1),
        edge_index=adjacent.nonzero().t().contiguous(),
        y=(value > value.median()).long(),
        **masks(generated_parts(num_nodes, generator), num_nodes),
    )


def top2_value(feature: Tensor, adjacent: Tensor) -> Tensor:
    """The value of every node ``[N]``, from features ``[N]`` and a symmetric adjacency ``[N, N]``.

    The node itself does not count, and where two paths lead to a node the shorter one decides. With fewer than two
    distinct features around, those that are missing count as minus infinity.
    """
    hop = adjacent.float()
    second = (hop @ hop > 0) & ~adjacent
    second.fill_diagonal_(False)
    nothing = torch.full((), -torch.inf)
    around = torch.where(adjacent, feature, torch.where(second, 0.8 * feature, nothing))  # [N, N]
    largest = around.amax(dim=1, keepdim=True)
    runner_up = torch.where(around < largest, around, nothing).amax(dim=1)
    return (largest.squeeze(1).exp() + runner_up.exp()).sqrt()
