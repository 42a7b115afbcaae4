import torch
from torch import Tensor


def erdos_renyi(num_nodes: int, edge_probability: float, generator: torch.Generator) -> Tensor:
    """A symmetric adjacency ``[N, N]`` without loops, in which every edge is there with the same probability."""
    if num_nodes < 1:
        raise ValueError(f"num_nodes = {num_nodes} is impossible; a graph has at least 1 node.")
    if not 0 <= edge_probability <= 1:
        raise ValueError(f"edge_probability = {edge_probability} is impossible; it must be from 0 to 1.")
    above = torch.rand(num_nodes, num_nodes, generator=generator).triu(diagonal=1) > 1 - edge_probability
    return above | above.t()
