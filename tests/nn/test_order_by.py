"""``order_by``: neighbours in a given order."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from tests.compare import assert_close, with_gradients
from tests.graphs import small_graph
from torch_goat.data import neighbor_loader
from torch_goat.nn import GOAT, GOATConv, Neighborhoods, inputs

STAR = torch.tensor([[1, 2, 3, 4, 0], [0, 0, 0, 0, 0]])  # four neighbours of node 0, and a self loop, which is replaced


def order_of(keys: Any, x: Tensor | None = None, **options: Any) -> list[list[int]]:
    """The neighbours of node 0 in the star, in the order in which each head reads them."""
    torch.manual_seed(0)
    conv = GOATConv(2, 2, heads=2, **options)
    x = torch.randn(5, 2) if x is None else x
    keys = keys if isinstance(keys, Tensor) else torch.tensor(keys)
    _, ordering = conv(x, STAR, order_by=keys, return_ordering=True)
    return [ordering.neighbors(0, head=head).tolist() for head in range(2)]


def test_decreasing_with_the_node_itself_first() -> None:
    assert order_of([3, 7, -2, 5, 100]) == [[0, 2, 4, 1, 3]] * 2


def test_infinities_are_keys_as_others() -> None:
    inf = float("inf")
    assert order_of([-inf, inf, 0.0, 1.0, 0.0]) == [[0, 2, 4, 3, 1]] * 2


@pytest.mark.parametrize("keys", [torch.tensor([2**53, 2**53 + 1, 2**53 + 2, -(2**62), 0]),
                                  torch.tensor([0, 1, 2, -1, 0], dtype=torch.double) * 1e-12 + 1.0,
                                  torch.tensor([1, 2, 3, 0, 0], dtype=torch.uint8)])  # fmt: skip
def test_keys_are_compared_exactly(keys: Tensor) -> None:
    assert order_of(keys) == [[0, 3, 2, 1, 4]] * 2


def test_ties_follow_algorithm_1() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1.0, -1.0], [0.5, 9.0], [3.0, 0.0]])
    assert order_of([1, 1, 1, 2, 0], x) == [[0, 4, 3, 2, 1]] * 2  # 4 by its key, then by the states of 3, 2 and 1


def test_ties_of_equal_states_follow_the_edge_features() -> None:
    torch.manual_seed(0)
    conv = GOATConv(2, 2, heads=2, edge_dim=2)
    edge_attr = torch.tensor([[1.0, 5.0], [0.0, 9.0], [1.0, 4.0], [-1.0, 0.0], [0.0, 0.0]])
    arguments = torch.zeros(5, 2), STAR, edge_attr
    _, ordering = conv(*arguments, order_by=torch.tensor([1, 1, 1, 0, 0]), return_ordering=True)
    assert ordering.neighbors(0, head=1).tolist() == [0, 2, 3, 1, 4]  # 4 by its key


@pytest.mark.parametrize("options", [{"edge_dim": 2}, {"max_neighbors": 2, "neighbor_selection": "top"}])
@given(seed=st.integers(0, 2**31))
def test_the_order_of_nodes_and_edges_does_not_matter(seed: int, options: dict) -> None:
    torch.manual_seed(seed)
    edge_index, edge_attr = torch.randint(6, (2, 30)), torch.randn(30, 2).double() if "edge_dim" in options else None
    keys, node, edge = torch.randint(3, (30,)), torch.randperm(6), torch.randperm(30)
    conv, x = GOATConv(3, 2, heads=2, **options).double(), torch.randint(2, (6, 3)).double()
    out = conv(x, edge_index, edge_attr, order_by=keys)
    features = None if edge_attr is None else edge_attr[edge]
    moved = conv(x[node.argsort()], node[edge_index][:, edge], features, order_by=keys[edge])
    assert_close({"out": moved[node]}, {"out": out}, 1e-10)


def test_a_random_selection_comes_first() -> None:
    first, second = order_of([3, 7, -2, 5, 0], max_neighbors=2)
    assert first == second == [node for node in [0, 2, 4, 1, 3] if node in first]
    assert len(first) == 3


def test_the_top_selection_comes_first() -> None:
    torch.manual_seed(0)
    conv, x = GOATConv(2, 2, heads=2, max_neighbors=2, neighbor_selection="top"), torch.randn(5, 2)
    _, by_score = conv(x, STAR, return_ordering=True)
    by_key = order_of([3, 7, -2, 5, 0], x, max_neighbors=2, neighbor_selection="top")
    for head in range(2):
        selected = by_score.neighbors(0, head=head).tolist()
        assert by_key[head] == [node for node in [0, 2, 4, 1, 3] if node in selected]


@given(st.integers(0, 10_000), st.booleans())
def test_equals_an_order_that_is_replayed(seed: int, loops: bool) -> None:
    """The order of ``sorted`` in Python, replayed, gives the same output and gradients."""
    generator = torch.Generator().manual_seed(seed)
    edges, x = small_graph(seed=seed), torch.randn(10, 3, generator=generator).double()
    keys = torch.randperm(edges.size(1), generator=generator)
    conv = GOATConv(3, 4, heads=2, add_self_loops=loops, backend="torch").double()
    out, ordering = conv(x, edges, order_by=keys, return_ordering=True)
    for node in range(10):
        into = [(int(key), int(source)) for source, target, key in zip(*edges, keys, strict=True) if target == node]
        into = [(key, source) for key, source in into if not loops or source != node]
        expected = [node] * loops + [source for _, source in sorted(into, reverse=True)]
        assert ordering.neighbors(node, head=1).tolist() == expected
    replayed = conv(x, edges, ordering=ordering)
    assert_close(with_gradients(conv, out), with_gradients(conv, replayed), 1e-12)


def test_forms_of_edges() -> None:
    """The order of the edges, a layout and ``flow`` do not matter; nor does ``torch.compile``."""
    torch.manual_seed(0)
    conv, edges, x = GOATConv(3, 4).double(), small_graph(), torch.randn(10, 3, dtype=torch.double)
    keys, shuffle = torch.randn(edges.size(1)), torch.randperm(edges.size(1))
    out = conv(x, edges, order_by=keys)
    assert torch.equal(conv(x, edges[:, shuffle], order_by=keys[shuffle]), out)
    assert torch.equal(conv(x, Neighborhoods.from_edge_index(edges, 10), order_by=keys), out)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, edges, order_by=keys), out)
    conv.flow = "target_to_source"
    assert torch.equal(conv(x, edges.flip(0), order_by=keys), out)


def test_networks_and_mini_batches_pass_it_on() -> None:
    """Mini-batches with all neighbours, trimmed or not, and inference give the output of the whole graph."""
    torch.manual_seed(0)
    model, edges = GOAT(3, 8, 2, out_channels=2, heads=2).eval(), small_graph()
    data = Data(x=torch.randn(10, 3), edge_index=edges, edge_time=torch.randn(edges.size(1)))
    expected = model(data.x, edges, order_by=data.edge_time)
    assert not torch.allclose(model(data.x, edges), expected)
    for batch in neighbor_loader(data, [-1, -1], batch_size=4):
        hops = (batch.num_sampled_nodes, batch.num_sampled_edges)
        for options in ({}, {"num_sampled_nodes_per_hop": hops[0], "num_sampled_edges_per_hop": hops[1]}):
            out = model(batch.x, batch.edge_index, order_by=batch.edge_time, **options)[: batch.batch_size]
            assert torch.allclose(out, expected[batch.input_id], atol=1e-6)
        with pytest.raises(ValueError, match="one number per edge"):
            model(batch.x, batch.edge_index, order_by=torch.arange(99), **options)
    loader = neighbor_loader(data, [-1], batch_size=4)
    for cache in (False, True):
        assert torch.allclose(model.inference(loader, order_by="edge_time", cache=cache), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        (torch.zeros(4), ValueError, r"one number per edge, \[5\], got shape \[4\]"),
        (torch.zeros(5, 1), ValueError, r"got shape \[5, 1\]"),
        (torch.tensor([0, 0, float("nan"), 0, 0]), ValueError, "order_by is NaN at edge 2"),
        ([1, 2, 3, 4, 5], TypeError, "order_by must be a tensor of real numbers, got list"),
        (torch.zeros(5, dtype=torch.cfloat), TypeError, "got torch.complex64"),
    ],
)
def test_bad_keys(keys: Any, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "layout", lambda *_: pytest.fail("the edges are sorted before the keys are checked"))
    with pytest.raises(error, match=message):
        GOATConv(2, 2)(torch.randn(5, 2), STAR, order_by=keys)


def test_invalid_edges_are_reported_as_such() -> None:
    with pytest.raises(TypeError, match="edge_index must be a tensor"):
        GOATConv(2, 2)(torch.randn(5, 2), STAR.tolist(), order_by=torch.zeros(5))
    with pytest.raises(ValueError, match=r"edge_index must have shape \[2, E\]"):
        GOATConv(2, 2)(torch.randn(5, 2), STAR[0], order_by=torch.zeros(5))


def test_what_it_cannot_be_combined_with() -> None:
    conv, x = GOATConv(2, 2), torch.randn(5, 2)
    _, ordering = conv(x, STAR, return_ordering=True)
    with pytest.raises(ValueError, match=r"ordering= and order_by= both give the order"):
        conv(x, STAR, ordering=ordering, order_by=torch.zeros(5))
    adj_t = torch.sparse_coo_tensor(STAR.flip(0), torch.ones(5), (5, 5))
    with pytest.raises(ValueError, match="order_by needs edge_index as"):
        conv(x, adj_t, order_by=torch.zeros(5))
