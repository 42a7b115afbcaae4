import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import add_self_loops, remove_self_loops

from tests.compare import relative_error
from tests.graphs import graphs, neighborhoods, small_graph
from torch_goat.nn import GOAT, GOATConv, Neighborhoods
from torch_goat.ops import Places, sort_tokens


@given(graphs(), st.booleans())
def test_tokens_are_the_edges_grouped_by_target(graph: tuple[int, torch.Tensor], loops: bool) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, loops)
    assert torch.equal(hood.edge_index[:, hood.edge], torch.stack([hood.source, hood.target]))
    for node in range(num_nodes):
        expected = [j for j, i in edge_index.t().tolist() if i == node and not (loops and i == j)]
        found = hood.source[hood.ptr[node] : hood.ptr[node + 1]].tolist()
        assert found == sorted(expected + [node] * loops)


def test_self_loops_and_their_features_are_those_of_pyg() -> None:
    edge_index, edge_attr = small_graph(), torch.randn(32, 3, dtype=torch.double)
    hood = Neighborhoods.from_edge_index(edge_index, 10)
    expected_index, expected_attr = add_self_loops(
        *remove_self_loops(edge_index, edge_attr), fill_value="mean", num_nodes=10
    )
    assert torch.equal(hood.edge_index, expected_index)
    assert relative_error(hood.edge_features(edge_attr), expected_attr) < 1e-14


@given(st.randoms(use_true_random=False))
def test_mean_of_edge_features_does_not_depend_on_their_order(random) -> None:
    edge_attr = torch.randn(40, 2) * 10 ** torch.randint(-4, 4, (40, 2))
    edge_index = torch.stack([torch.arange(1, 41), torch.zeros(40, dtype=torch.long)])
    order = list(range(40))
    random.shuffle(order)
    plain = neighborhoods(edge_index, None, 41, 1, add_self_loops=True).edge_features(edge_attr)
    shuffled = neighborhoods(edge_index[:, order], None, 41, 1, add_self_loops=True).edge_features(edge_attr[order])
    assert torch.equal(plain[-1], shuffled[-1])


@pytest.mark.parametrize("node", [4, -1])
def test_nodes_out_of_range_are_refused(node: int) -> None:
    edge_index = torch.tensor([[0, node], [1, 2]])
    with pytest.raises(IndexError, match=f"node {node}, but there are 4 nodes"):
        Neighborhoods.from_edge_index(edge_index, 4)
    with pytest.raises(IndexError, match=f"edge_index\\[0\\] \\(sources\\) has node {node}"):
        Neighborhoods.from_edge_index(edge_index, (4, 3), add_self_loops=False)
    assert Neighborhoods.from_edge_index(edge_index.clamp(min=0), (4, 3), checks=False).num_targets == 3


CASES = {
    "self loops": {},
    "no self loops": {"add_self_loops": False},
    "edge features": {"edge_dim": 2, "attention": "gatv2"},
    "mini-batch": {},
    "bipartite": {"in_channels": (5, 3), "add_self_loops": False},
    "top": {"max_neighbors": 2, "neighbor_selection": "top"},
}


@pytest.mark.parametrize("case", CASES)
def test_neighborhoods_equal_edge_index(case: str) -> None:
    conv = GOATConv(**{"in_channels": 5, "out_channels": 4, "heads": 2} | CASES[case]).double()
    x, edge_index, num_nodes = torch.randn(10, 5).double().requires_grad_(), small_graph(), (10, 10)
    states: Tensor | tuple[Tensor, Tensor] = x
    if case == "mini-batch":
        edge_index, num_nodes = edge_index[:, edge_index[1] < 4], (10, 4)
        states = (x, x[:4])
    elif case == "bipartite":
        states = (x, torch.randn(10, 3).double())
    edge_attr = torch.randn(edge_index.size(1), 2).double().requires_grad_() if case == "edge features" else None
    hood = Neighborhoods.from_edge_index(edge_index, num_nodes, add_self_loops=conv.add_self_loops)
    leaves = [x, *([] if edge_attr is None else [edge_attr]), *conv.parameters()]
    results = []
    for edges in (edge_index, hood):
        out, (_, alpha), ordering = conv(states, edges, edge_attr, return_attention_weights=True, return_ordering=True)
        grads = torch.autograd.grad(out.square().sum(), leaves)
        results.append([out, alpha, ordering.source, *grads])
    assert all(torch.equal(value, expected) for value, expected in zip(*results, strict=True))


def test_layers_share_neighborhoods(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GOAT(5, 8, num_layers=3, out_channels=3, heads=2).eval()
    x, edge_index = torch.randn(10, 5), small_graph()
    expected = model(x, edge_index)
    hood = Neighborhoods.from_edge_index(edge_index, 10)
    monkeypatch.setattr(Neighborhoods, "_build", None)  # nothing is grouped again
    assert torch.equal(model(x, hood), expected)


def test_an_exported_module_groups_graphs_of_any_size() -> None:
    class Grouped(GOATConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, Neighborhoods.from_edge_index(edge_index, x.size(0)))

    conv, dynamic = Grouped(5, 4), torch.export.Dim.DYNAMIC
    given = torch.randn(10, 5), small_graph()
    program = torch.export.export(conv, given, dynamic_shapes=({0: dynamic}, {1: dynamic}))
    x, edge_index = torch.randn(12, 5), small_graph(12, 40)
    assert torch.equal(program.module()(x, edge_index), GOATConv.forward(conv, x, edge_index))


@pytest.mark.parametrize(
    ("num_nodes", "message"),
    [
        (10.0, r"num_nodes must be a whole number of at least 0 or a pair of them, got 10\.0"),
        ((10, -1), "num_nodes must be .* got -1"),
        ((8, 10), "10 targets cannot be the first of 8 sources; pass add_self_loops=False"),
    ],
)
def test_impossible_numbers_of_nodes_are_refused(num_nodes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Neighborhoods.from_edge_index(small_graph(), num_nodes)
    assert Neighborhoods.from_edge_index(small_graph(), np.int64(10)).num_targets == 10


def test_neighborhoods_that_do_not_fit_are_refused() -> None:
    hood, x = Neighborhoods.from_edge_index(small_graph(), 10), torch.randn(10, 5)
    with pytest.raises(ValueError, match="size says 10 sources, but x has 9 rows"):
        GOATConv(5, 4)(x[:9], hood)
    with pytest.raises(ValueError, match="but the neighborhoods were built with add_self_loops=True"):
        GOATConv(5, 4, add_self_loops=False)(x, hood)
    with pytest.raises(ValueError, match="10 sources and 4 targets, but edge_index is Neighborhoods"):
        GOATConv(5, 4)((x, x[:4]), hood, size=(10, 4))
    with pytest.raises(ValueError, match="edge_attr has 5 rows, but edge_index has 32 edges"):
        GOATConv(5, 4, edge_dim=1)(x, hood, torch.ones(5))
    with pytest.raises(ValueError, match="cannot be trimmed"):
        GOAT(5, 8, num_layers=2)(x, hood, num_sampled_nodes_per_hop=[1, 2], num_sampled_edges_per_hop=[2])


def by_hand(source: Tensor) -> tuple[list[list[int]], list[list[int]]]:
    """The sources and places of each head, by source and then by place."""
    pairs = [sorted((node, place) for place, node in enumerate(row)) for row in source.tolist()]
    return [[node for node, _ in row] for row in pairs], [[place for _, place in row] for row in pairs]


@given(graphs())
def test_places_follow_from_the_tokens(graph: tuple[int, Tensor]) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, False)
    node_score = torch.randn(3, num_nodes)  # copies of an edge have equal scores
    score = node_score[:, hood.source]
    token, source = sort_tokens(score, torch.randn(num_nodes, 2), hood.source, hood.target, num_nodes)
    expected = by_hand(source)
    found = Places(source, hood).by_source(num_nodes)
    assert (found.source.tolist(), found.place.tolist()) == expected
    found = Places(source, hood, token).by_source(num_nodes)
    assert (found.source.tolist(), found.place.tolist()) == expected


@pytest.mark.parametrize("by_tokens", [True, False])
def test_places_are_found_once(by_tokens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hood = neighborhoods(torch.tensor([[4, 0, 4], [0, 0, 1]]), None, 5, 5, False)
    token = torch.tensor([[1, 0, 2], [0, 1, 2]])
    places = Places(hood.source[token], hood, token if by_tokens else None)
    monkeypatch.setattr(Places, "_sort" if by_tokens else "_follow", None)  # the other way
    assert places.by_source(5) is places.by_source(5)


def test_data_moves_them_to_another_device() -> None:
    hood = Neighborhoods.from_edge_index(torch.tensor([[0, 1, 1], [1, 1, 2]]), 3)
    moved = Data(hood=hood).to("meta").hood
    assert {part.device.type for part in (moved.ptr, moved.source, moved.edge, moved.edge_index)} == {"meta"}
    assert (moved.num_sources, moved.num_targets, moved.num_places) == (3, 3, hood.num_places)
    own = hood.to("cpu")
    assert torch.equal(
        own.edge_features(torch.arange(3.0).view(-1, 1)), hood.edge_features(torch.arange(3.0).view(-1, 1))
    )
