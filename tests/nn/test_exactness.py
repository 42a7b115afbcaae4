"""Every configuration of the layer equals the oracle, values and gradients, given one ordering."""

import itertools

import pytest
import torch
from torch import Tensor

from tests.backends import AVAILABLE, COMPILED, device_of
from tests.compare import assert_close, with_gradients
from tests.graphs import small_graph
from torch_goat.nn import GOATConv, Ordering

CONFIGURATIONS = [
    pytest.param(*configuration, id="-".join(str(choice) for choice in configuration))
    for configuration in itertools.product(
        ["gat", "gatv2"], ["lstm", "gru", "rnn"], ["two-way", "one-way"], [1, 3], ["cat", "sum", "mean"],
        ["edges", "plain"], ["bipartite", "square"],
    )
]  # fmt: skip
# A scan differs from the other cells in the RNN alone.
CONFIGURATIONS += [
    pytest.param("gat", rnn, ways, heads, "cat", "plain", "square", id=f"{rnn}-{ways}-{heads}")
    for rnn, ways, heads in itertools.product(["mingru", "minlstm"], ["two-way", "one-way"], [1, 3])
]


def evaluate(conv: GOATConv, backend: str, ordering, x: tuple[Tensor, ...], edges: tuple[Tensor, Tensor | None]):
    device = device_of(backend)
    conv.to(device).rnn.backend = backend
    dtype = next(conv.parameters()).dtype
    x = tuple(value.detach().to(device, dtype).requires_grad_() for value in x)
    edge_attr = None if edges[1] is None else edges[1].detach().to(device, dtype).requires_grad_()
    out = conv(x if len(x) > 1 else x[0], edges[0].to(device), edge_attr, ordering=ordering.to(device))
    results = with_gradients(conv, out.cpu(), *x, *([] if edge_attr is None else [edge_attr]))
    return {name: value.cpu() for name, value in results.items()}


def bends(ordering: Ordering) -> bool:
    """Whether every head has a target with sizeable scores on both sides of LeakyReLU's bend.

    Where all scores of a target are on one side, the target's share of them cancels in the softmax. Were it so for all
    targets, its true gradient would be zero, which no relative error can be measured against.
    """
    runs = list(itertools.pairwise(ordering.ptr.tolist()))
    sizeable = ordering.weight > 0.05

    def has_both(head: int, start: int, end: int) -> bool:
        score = ordering.score[head, start:end][sizeable[head, start:end]]
        return bool((score > 0).any() and (score < 0).any())

    return all(any(has_both(head, *run) for run in runs) for head in range(ordering.weight.size(0)))


@pytest.mark.parametrize(("attention", "rnn", "ways", "heads", "pooling", "features", "nodes"), CONFIGURATIONS)
def test_equals_the_reference(attention, rnn, ways, heads, pooling, features, nodes) -> None:
    bipartite = nodes == "bipartite"
    edge_index = small_graph(num_nodes=9, num_edges=50)
    for seed in range(20):
        torch.manual_seed(seed)
        conv = GOATConv.paper(
            (5, 3) if bipartite else 5, 4, heads, attention=attention, rnn=rnn, bidirectional=ways == "two-way",
            head_pooling=pooling, edge_dim=2 if features == "edges" else None, add_self_loops=not bipartite,
        ).double()  # fmt: skip
        x: tuple[Tensor, ...] = (torch.randn(9, 5).double(),)
        if bipartite:
            x = (*x, torch.randn(9, 3).double())
        edge_attr = torch.randn(edge_index.size(1), 2).double() if features == "edges" else None
        ordering = conv(x if bipartite else x[0], edge_index, edge_attr, return_ordering=True)[1]
        if bends(ordering):
            break
    else:
        pytest.fail("no seed gives scores on both sides of the bend")

    edges = (edge_index, edge_attr)
    expected = evaluate(conv, "reference", ordering, x, edges)
    for backend in COMPILED:
        assert_close(evaluate(conv, backend, ordering, x, edges), expected, 1e-10)
    conv.float()
    for backend in COMPILED:
        assert_close(evaluate(conv, backend, ordering, x, edges), expected, 1e-5)
    conv.double()


@pytest.mark.parametrize("backend", [name for name in AVAILABLE if name not in COMPILED])
@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn", "mingru", "minlstm"])
def test_equals_the_reference_in_an_interpreter(rnn: str, backend: str) -> None:
    conv = GOATConv.paper(3, 4, rnn=rnn).double()
    x, edges = (torch.randn(4, 3).double(),), (torch.tensor([[0, 1, 2, 3, 3], [1, 1, 1, 2, 1]]), None)
    ordering = conv(x[0], edges[0], return_ordering=True)[1]
    expected = evaluate(conv, "reference", ordering, x, edges)
    # The target's share of the scores cancels in the softmax of one that has no neighbours on LeakyReLU's other side.
    found = evaluate(conv, backend, ordering, x, edges)
    del expected["attention.att_dst"], found["attention.att_dst"]
    assert_close(found, expected, 1e-10)


@pytest.mark.parametrize(
    ("rnn", "attention"),
    [*itertools.product(["lstm", "gru", "rnn"], ["gat", "gatv2"]), ("mingru", "gat"), ("minlstm", "gat")],
)
def test_gradients_are_those_of_finite_differences(rnn: str, attention: str) -> None:
    conv = GOATConv(3, 4, heads=2, rnn=rnn, attention=attention, edge_dim=1).double()
    edge_index = small_graph(num_nodes=6, num_edges=8)
    x = torch.randn(6, 3, dtype=torch.double, requires_grad=True)
    edge_attr = torch.randn(edge_index.size(1), 1, dtype=torch.double, requires_grad=True)
    ordering = conv(x, edge_index, edge_attr, return_ordering=True)[1]
    gap = -ordering.score.diff(dim=1)
    within = torch.isin(torch.arange(1, ordering.token.size(1)), ordering.ptr, invert=True)
    different = ordering.source.diff(dim=1) != 0
    assert gap[within & different].min() > 1e-4  # no step of 1e-6 changes the order

    names, values = zip(*conv.named_parameters(), strict=True)

    def run(x: Tensor, edge_attr: Tensor, *parameters: Tensor) -> Tensor:
        weights = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(conv, weights, (x, edge_index, edge_attr))

    assert torch.autograd.gradcheck(run, (x, edge_attr, *values), fast_mode=False)
