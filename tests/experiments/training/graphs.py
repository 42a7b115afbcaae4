"""Small graphs to train on, and a network whose results can be worked out."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.experiments.training import train as run_module


def tiny(seed: int = 0, regression: bool = False, nodes: int = 60) -> Data:
    """A random graph with noisy features of its classes or targets."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (nodes,), generator=generator)
    data = Data(
        x=torch.randn(nodes, 5, generator=generator) + y.view(-1, 1),
        edge_index=torch.randint(nodes, (2, 4 * nodes), generator=generator),
        y=y.float() + torch.rand(nodes, generator=generator) if regression else y,
    )
    if not regression:
        data.num_classes = 3
    part = torch.arange(nodes) % 3
    data.train_mask, data.val_mask, data.test_mask = (part == number for number in range(3))
    return data


@contextmanager
def tiny_steps() -> Iterator[None]:
    """While it lasts, runs train on the tiny graph and write a checkpoint after every epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "_load", lambda *arguments: tiny())
        patch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
        yield


class Constant(torch.nn.Module):
    """Learns one number per output and ignores the graph."""

    def __init__(self, channels: int = 2, start: float = 0.0) -> None:
        super().__init__()
        self.score = torch.nn.Parameter(torch.full((channels,), start))
        self.calls = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls += 1
        return self.score.expand(x.size(0), -1)


def constant_data() -> Data:
    """Class 1 in training; half of the validation nodes and a quarter of the test nodes are of class 0."""
    parts = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    graph = Data(x=torch.zeros(9, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    graph.y = torch.tensor([1, 1, 1, 1, 0, 1, 1, 1, 0])
    graph.train_mask, graph.val_mask, graph.test_mask = (parts == part for part in range(3))
    return graph
