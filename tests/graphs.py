"""Small graphs that the tests share."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from torch_goat.ops import Neighborhoods


def small_graph(num_nodes: int = 10, num_edges: int = 28, seed: int = 0) -> Tensor:
    """Random directed edges with multi-edges, self loops and isolated nodes (the last two have no edge at all)."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(num_nodes - 2, (2, num_edges), generator=generator)
    return torch.cat([edge_index, edge_index[:, :2], torch.tensor([[1, 3], [1, 3]])], dim=1)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8, max_edges: int = 24) -> tuple[int, Tensor]:
    """A number of nodes and edges among them: none, isolated nodes, multi-edges, self loops and hubs all occur."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=max_edges))
    return num_nodes, torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous()


def neighborhoods(
    edge_index: Tensor, edge_attr: None, num_sources: int, num_targets: int, add_self_loops: bool
) -> Neighborhoods:
    return Neighborhoods.from_edge_index(edge_index, (num_sources, num_targets), add_self_loops=add_self_loops)
