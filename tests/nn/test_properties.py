"""What holds for every graph: equivariance, independence of the order of edges, locality, sortedness."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from tests.compare import relative_error
from tests.graphs import graphs
from torch_goat.nn import GOATConv, Ordering

OPTIONS = st.fixed_dictionaries(
    {
        "attention": st.sampled_from(["gat", "gatv2"]),
        "rnn": st.sampled_from(["lstm", "gru", "rnn", "mingru", "minlstm"]),
        "bidirectional": st.booleans(),
        "heads": st.sampled_from([1, 2]),
        "add_self_loops": st.booleans(),
    }
)


def features(num_nodes: int, seed: int, ties: bool, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random rows; with ties, few different small integers, so that rows repeat."""
    generator = torch.Generator().manual_seed(seed)
    if ties:
        return torch.randint(2, (num_nodes, 3), generator=generator).to(dtype)
    return torch.randn(num_nodes, 3, generator=generator).to(dtype)


def whole_numbers(conv: GOATConv) -> GOATConv:
    """Integer weights: sums of products of integers are exact in any order, so that equal scores are equal."""
    with torch.no_grad():
        for name, parameter in conv.named_parameters():
            if not name.startswith("rnn"):
                parameter.copy_(torch.randint(-1, 2, parameter.shape))
    return conv


@given(graphs(), OPTIONS, st.integers(0, 99), st.booleans(), st.randoms(use_true_random=False))
def test_shuffling_edges_changes_nothing_to_the_last_bit(graph, options, seed, ties, random) -> None:
    num_nodes, edge_index = graph
    torch.manual_seed(seed)
    conv = GOATConv(3, 4, edge_dim=1, **options)
    if ties:
        conv = whole_numbers(conv)
    x = features(num_nodes, seed, ties)
    edge_attr = features(edge_index.size(1), seed, ties)[:, :1]
    order = list(range(edge_index.size(1)))
    random.shuffle(order)
    out, ordering = conv(x, edge_index, edge_attr, return_ordering=True)
    shuffled, shuffled_ordering = conv(x, edge_index[:, order], edge_attr[order], return_ordering=True)
    assert torch.equal(out, shuffled)
    assert torch.equal(ordering.source, shuffled_ordering.source)


@given(graphs(), OPTIONS, st.integers(0, 99), st.randoms(use_true_random=False))
def test_shuffling_edges_changes_no_gradient_to_the_last_bit(graph, options, seed, random) -> None:
    num_nodes, edge_index = graph
    torch.manual_seed(seed)
    conv = GOATConv(3, 4, **options)
    order = list(range(edge_index.size(1)))
    random.shuffle(order)
    grads = []
    for edges in (edge_index, edge_index[:, order]):
        x = features(num_nodes, seed, ties=True).requires_grad_()
        conv.zero_grad()
        conv(x, edges).square().sum().backward()
        grads.append([x.grad, *(parameter.grad.clone() for parameter in conv.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@given(graphs(), OPTIONS, st.integers(0, 99), st.booleans(), st.randoms(use_true_random=False))
def test_relabelling_nodes_permutes_the_output(graph, options, seed, ties, random) -> None:
    num_nodes, edge_index = graph
    torch.manual_seed(seed)
    conv = GOATConv(3, 4, **options).double()
    if ties:
        conv = whole_numbers(conv)
    x = features(num_nodes, seed, ties, torch.double)
    new = list(range(num_nodes))
    random.shuffle(new)
    new = torch.tensor(new)  # old node i becomes new[i]
    old = torch.argsort(new)
    out, ordering = conv(x, edge_index, return_ordering=True)
    assume(ties or far_apart(ordering))
    relabelled = conv(x[old], new[edge_index])
    assert relative_error(relabelled[new], out) < 1e-10


def far_apart(ordering: Ordering) -> bool:
    """No two scores of one neighbourhood are so close that rounding could swap them, unless they are one node's."""
    if ordering.token.size(1) == 0:
        return True
    inside = torch.isin(torch.arange(1, ordering.token.size(1)), ordering.ptr, invert=True)
    gap = ordering.score.diff(dim=1).abs()[:, inside]
    return bool(((gap > 1e-9) | (ordering.source.diff(dim=1)[:, inside] == 0)).all())


@given(graphs(), OPTIONS, st.integers(0, 99), st.data())
def test_a_node_sees_its_neighbourhood_alone(graph, options, seed, data) -> None:
    num_nodes, edge_index = graph
    torch.manual_seed(seed)
    conv = GOATConv(3, 4, **options).double()
    x = features(num_nodes, seed, False, torch.double)
    node = data.draw(st.integers(0, num_nodes - 1))
    into = edge_index[1] == node
    seen = torch.zeros(num_nodes, dtype=torch.bool)
    seen[edge_index[0, into]] = True
    seen[node] = True
    elsewhere = x.clone()
    elsewhere[~seen] = torch.randn(int((~seen).sum()), 3, dtype=torch.double)
    out, ordering = conv(x, edge_index, return_ordering=True)
    assume(far_apart(ordering))
    # Other nodes' features change, and edges into other nodes are gone or new.
    others = torch.randint(num_nodes, (2, 7))
    others = others[:, others[1] != node]
    changed = conv(elsewhere, torch.cat([edge_index[:, into], others], dim=1))
    assert relative_error(changed[node], out[node]) < 1e-10


@given(graphs(), OPTIONS, st.integers(0, 99), st.booleans())
def test_the_ordering_is_sorted_by_its_scores(graph, options, seed, ties) -> None:
    num_nodes, edge_index = graph
    torch.manual_seed(seed)
    conv = GOATConv(3, 4, **options)
    ordering = conv(features(num_nodes, seed, ties), edge_index, return_ordering=True)[1]
    for node in range(num_nodes):
        for head in range(options["heads"]):
            score = ordering.scores(node, head)
            assert bool((score.diff() <= 0).all())


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_weights_move_between_backends(backend: str) -> None:
    conv = GOATConv(3, 4, heads=2)
    other = GOATConv(3, 4, heads=2, backend=backend)
    other.load_state_dict(conv.state_dict())
    x, edge_index = torch.randn(5, 3), torch.tensor([[0, 1, 2, 3, 4], [1, 1, 1, 4, 0]])
    assert relative_error(other(x, edge_index), conv(x, edge_index)) < 1e-5
