"""Networks that the tests of this part share."""

from typing import Any

import torch
from torch import Tensor

from tests.graphs import small_graph
from torch_goat.experiments.models import MODELS, ModelOptions, Network, degree_histogram
from torch_goat.experiments.models.kinds import KINDS

RANDOM = ("sage-lstm", "janossy")  # read neighbours in an order that node numbers decide in evaluation
DETERMINISTIC = tuple(name for name in MODELS if name not in RANDOM)
N, IN, OUT = 10, 5, 3
DEGREE = degree_histogram(small_graph(), N)


def options(name: str, **values: Any) -> ModelOptions:
    """Options that run on PyTorch's own kernels, which need no compiling."""
    if "backend" in KINDS[name].reads:
        values = {"backend": "torch"} | values
    return ModelOptions(name=name, **values)


def network(name: str, edge_dim: int = 0, **values: Any) -> Network:
    return Network(options(name, **values), IN, OUT, degree=DEGREE, edge_dim=edge_dim)


def graph(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Features and edges with multi-edges, self loops and isolated nodes."""
    return torch.randn(N, IN, dtype=dtype), small_graph()
