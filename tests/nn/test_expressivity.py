"""Neighbourhoods that other aggregators cannot tell apart (paper, section 2.1), beside the layers that fail on them."""

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv

from torch_goat.nn import GOATConv


def pair_of_stars(first: list[list[float]], second: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Two stars whose centres are alike and whose leaves have the given features."""
    leaves = [*first, *second]
    x = torch.tensor([[1.0, 1.0], [1.0, 1.0], *leaves])
    target = torch.tensor([0] * len(first) + [1] * len(second))
    return x, torch.stack([torch.arange(2, len(leaves) + 2), target])


def distance(conv: torch.nn.Module, x: Tensor, edge_index: Tensor) -> float:
    out = conv(x, edge_index).detach()
    return float((out[0] - out[1]).abs().max())


A, B, C, D = [2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [2.0, 2.0]
# Without the centre among the tokens a mean of attention is a mean of the leaves alone.
CASES = {
    "mean, multiplicity": (SAGEConv(2, 4, aggr="mean"), [A, B], [A, A, B, B]),
    "mean, multiset": (SAGEConv(2, 4, aggr="mean"), [A, B], [C, C]),
    "max, multiplicity": (SAGEConv(2, 4, aggr="max"), [A, B], [A, B, B]),
    "max, multiset": (SAGEConv(2, 4, aggr="max"), [A, B, D], [C, D]),
    "GAT, multiplicity": (GATConv(2, 4, add_self_loops=False), [A, B], [A, A, B, B]),
    "GATv2, multiplicity": (GATv2Conv(2, 4, add_self_loops=False), [A, B], [A, A, B, B]),
    "GCN as a mean": (GCNConv(2, 4, normalize=False, add_self_loops=False, aggr="mean"), [A, B], [C, C]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn", "mingru", "minlstm"])
def test_goat_tells_apart_what_others_do_not(case: str, rnn: str) -> None:
    other, first, second = CASES[case]
    x, edge_index = pair_of_stars(first, second)
    assert distance(other, x, edge_index) < 1e-6
    for add_self_loops in (True, False):
        conv = GOATConv.paper(2, 8, rnn=rnn, add_self_loops=add_self_loops)
        assert distance(conv, x, edge_index) > 1e-4


def test_equal_neighbourhoods_stay_equal() -> None:
    x, edge_index = pair_of_stars([A, B, C], [C, B, A])
    assert distance(GOATConv.paper(2, 8), x, edge_index) < 1e-6
