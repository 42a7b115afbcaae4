from itertools import permutations

import pytest
import torch
from torch import Tensor

from tests.compare import relative_error
from tests.graphs import small_graph
from torch_goat.experiments.models import JanossyConv
from torch_goat.ops.neighborhoods import Neighborhoods
from torch_goat.ops.selection import random_order

N, IN, OUT = 10, 4, 3


def layer(**options) -> JanossyConv:
    return JanossyConv(IN, OUT, backend="torch", **options).double()


def read(conv: JanossyConv, x: Tensor, neighbors: list[int]) -> Tensor:
    """The final state of PyTorch's own RNN over some neighbours, zeros if there are none."""
    if not neighbors:
        return x.new_zeros(IN)
    return conv.aggr_module.as_torch()(x[neighbors])[0][-1]


def combine(conv: JanossyConv, state: Tensor, own: Tensor) -> Tensor:
    return conv.lin_l.weight @ state + conv.lin_l.bias + conv.lin_r.weight @ own


@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("length", [None, 1, 2, 50])
def test_evaluation_is_the_mean_over_orders_node_by_node(length: int | None, rnn: str) -> None:
    conv = layer(length=length, permutations=4, rnn=rnn).eval()
    x, edge_index = torch.randn(N, IN, dtype=torch.double), small_graph()
    hood = Neighborhoods.from_edge_index(edge_index, N, add_self_loops=False)
    orders = [hood.source[random_order(hood, False, number)].tolist() for number in range(4)]
    out = conv(x, edge_index)
    for node in range(N):
        first, last = int(hood.ptr[node]), int(hood.ptr[node + 1])
        states = [read(conv, x, order[first:last][:length]) for order in orders]
        expected = combine(conv, torch.stack(states).mean(dim=0), x[node])
        assert relative_error(out[node], expected) < 1e-12


def test_a_training_step_draws_one_of_all_orders_uniformly() -> None:
    conv = layer(length=2, permutations=5)
    x, edge_index = torch.randn(4, IN, dtype=torch.double), torch.tensor([[1, 2, 3], [0, 0, 0]])
    possible = torch.stack(
        [combine(conv, read(conv, x, list(pair)), x[0]) for pair in permutations([1, 2, 3], 2)]
    )  # [6, OUT]
    count = torch.zeros(6)
    draws = 1200
    with torch.no_grad():
        for _ in range(draws):
            match = (possible - conv(x, edge_index)[0]).abs().amax(dim=1) < 1e-12
            assert int(match.sum()) == 1
            count += match
    # Chi-square with 5 degrees of freedom, whose 99.99 % quantile is 25.7.
    assert float(((count - draws / 6) ** 2 / (draws / 6)).sum()) < 25.7


def test_the_order_of_the_edges_leaves_no_trace() -> None:
    conv = layer(length=3, permutations=3).eval()
    x, edge_index = torch.randn(N, IN, dtype=torch.double), small_graph()
    shuffled = edge_index[:, torch.randperm(edge_index.size(1))]
    assert torch.equal(conv(x, edge_index), conv(x, shuffled))
    conv.train()
    results = []
    for edges in (edge_index, shuffled):
        torch.manual_seed(3)
        results.append(conv(x, edges))
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"length": 0}, "length must be at least 1 or None, got 0"), ({"permutations": 0}, "at least 1, got 0")],
)
def test_impossible_options_and_edges(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer(**options)
    with pytest.raises(IndexError, match="node 10, but there are 10 nodes"):
        layer()(torch.randn(N, IN, dtype=torch.double), torch.tensor([[10], [0]]))
