import torch
from torch import Tensor


def erdos_renyi(num_nodes: int, edge_probability: float, generator: torch.Generator) -> Tensor:
    """A symmetric adjacency ``[N, N]`` without loops, in which every edge is there with the same probability."""
    above = torch.rand(num_nodes, num_nodes, generator=generator).triu(diagonal=1) > 1 - edge_probability
    return above | above.t()
