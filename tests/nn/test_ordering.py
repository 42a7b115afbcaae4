import itertools
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.graphs import graphs, small_graph
from torch_goat.nn import GOATConv, Ordering
from torch_goat.nn.ordering import kendall_tau


def an_ordering(heads: int = 2, seed: int = 0) -> Ordering:
    torch.manual_seed(seed)
    return GOATConv(4, 4, heads)(torch.randn(10, 4), small_graph(), return_ordering=True)[1]


def test_reads_as_lists_of_neighbours() -> None:
    ordering = an_ordering()
    edges = small_graph()
    for node, head in itertools.product(range(10), range(2)):
        into = {j for j, i in edges.t().tolist() if i == node} | {node}
        assert set(ordering.neighbors(node, head).tolist()) == into
        score, weight = ordering.scores(node, head), ordering.weights(node, head)
        assert torch.equal(score, score.sort(descending=True).values)
        assert torch.allclose(weight, score.softmax(dim=0))
        assert not score.requires_grad
        assert not weight.requires_grad


def test_frame_has_a_row_per_node_head_and_position(monkeypatch: pytest.MonkeyPatch) -> None:
    ordering = an_ordering()
    frame = ordering.to_frame()
    assert list(frame.columns) == ["node", "head", "position", "neighbor", "score", "weight"]
    for (node, head), part in frame.groupby(["node", "head"]):
        assert part.position.tolist() == list(range(len(part)))
        assert part.neighbor.tolist() == ordering.neighbors(node, head).tolist()
        assert part.score.tolist() == ordering.scores(node, head).tolist()
        assert part.weight.tolist() == ordering.weights(node, head).tolist()
    assert len(frame) == ordering.token.numel()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"torch-goat\[frame\]"):
        ordering.to_frame()


def test_saves_and_loads_and_refuses_other_files(tmp_path) -> None:
    ordering = an_ordering()
    ordering.save(tmp_path / "order.safetensors")
    loaded = Ordering.load(tmp_path / "order.safetensors")
    assert loaded == ordering
    assert torch.equal(loaded.score, ordering.score)
    assert torch.equal(loaded.weight, ordering.weight)
    save_file({"ptr": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"was not written by Ordering\.save"):
        Ordering.load(tmp_path / "other.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"not a safetensors file at all")
    with pytest.raises(ValueError, match="not a readable ordering"):
        Ordering.load(tmp_path / "broken.safetensors")
    with pytest.raises(FileNotFoundError):
        Ordering.load(tmp_path / "missing.safetensors")


def test_equality_is_of_the_order() -> None:
    assert an_ordering(seed=1) == an_ordering(seed=1)
    assert an_ordering(seed=1) != an_ordering(seed=2)
    assert an_ordering() != "an ordering"
    same = an_ordering()
    same.score = same.score + 1
    assert same == an_ordering()


@pytest.mark.parametrize(("node", "head"), [(10, 0), (-1, 0), (0, 2), (0, -1)])
def test_unknown_node_or_head_is_refused(node: int, head: int) -> None:
    with pytest.raises(IndexError, match=f"{'node' if head == 0 else 'head'} {node if head == 0 else head}"):
        an_ordering().neighbors(node, head)


def test_inconsistent_parts_are_refused() -> None:
    o = an_ordering()
    with pytest.raises(ValueError, match="four tensors"):
        Ordering(o.ptr, o.token, o.source, o.score[:1], o.weight)
    with pytest.raises(ValueError, match="ptr must start at 0, never decrease and end at"):
        Ordering(o.ptr[:-1], o.token, o.source, o.score, o.weight)


@pytest.mark.parametrize("change", ["repeated", "of another node", "negative"])
def test_an_ordering_that_is_no_permutation_is_refused(change: str, tmp_path) -> None:
    o = an_ordering()
    first = int((o.ptr.diff() > 1).nonzero()[0])  # a node with two neighbours at least
    start, end = int(o.ptr[first]), int(o.ptr[first + 1])
    token = o.token.clone()
    token[1, start] = {"repeated": token[1, start + 1], "of another node": end, "negative": -1}[change]
    if change == "of another node":
        token[1, token[1] == end] = torch.tensor([end, int(o.token[1, start])])  # swapped
    message = "does not read every neighbour of node [0-9]+ exactly once in each head"
    with pytest.raises(ValueError, match=message):
        Ordering(o.ptr, token, o.source, o.score, o.weight)
    Ordering.unchecked(o.ptr, token, o.source, o.score, o.weight).save(tmp_path / "wrong.safetensors")
    with pytest.raises(ValueError, match=message):
        Ordering.load(tmp_path / "wrong.safetensors")


def test_a_layer_refuses_an_ordering_that_swaps_neighbours_of_two_nodes() -> None:
    edge_index = torch.tensor([[0, 1, 0, 1], [2, 2, 3, 3]])  # 2 and 3 read the same sources
    conv, x = GOATConv(5, 4, add_self_loops=False), torch.randn(4, 5)
    o = conv(x, edge_index, return_ordering=True)[1]
    swapped = Ordering.unchecked(o.ptr, o.token[:, [2, 3, 0, 1]], o.source[:, [2, 3, 0, 1]], o.score, o.weight)
    with pytest.raises(ValueError, match="of another graph"):
        conv(x, edge_index, ordering=swapped)


@pytest.mark.parametrize("loops", [True, False])
def test_writing_to_returned_tensors_changes_nothing(loops: bool) -> None:
    conv, x, edge_index = GOATConv(5, 4, heads=2, add_self_loops=loops), torch.randn(10, 5), small_graph()
    expected, (edges, alpha), ordering = conv(x, edge_index, return_attention_weights=True, return_ordering=True)
    expected = expected.clone()
    with torch.no_grad():
        for returned in (edges, alpha, ordering.ptr, ordering.token, ordering.source, ordering.score, ordering.weight):
            returned.numpy()[...] = 0
    assert torch.equal(conv(x, edge_index), expected)


def tau_by_pairs(first: list[int], second: list[int]) -> float:
    place = {token: position for position, token in enumerate(second)}
    signs = [1 if place[a] < place[b] else -1 for a, b in itertools.combinations(first, 2)]
    return sum(signs) / len(signs) if signs else float("nan")


@given(graphs(max_nodes=4, max_edges=30), st.integers(0, 1000))
def test_kendall_tau_counts_pairs(graph, seed: int) -> None:
    num_nodes, edge_index = graph
    first, second = (
        GOATConv(3, 2, heads=2)(torch.randn(num_nodes, 3), edge_index, return_ordering=True)[1] for _ in range(2)
    )
    tau = first.kendall_tau(second)
    assert tau.shape == (num_nodes, 2)
    for node, head in itertools.product(range(num_nodes), range(2)):
        run = slice(int(first.ptr[node]), int(first.ptr[node + 1]))
        expected = tau_by_pairs(first.token[head, run].tolist(), second.token[head, run].tolist())
        assert float(tau[node, head]) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_kendall_tau_of_a_reversed_hub() -> None:
    order = torch.arange(5000).view(1, -1)
    assert float(kendall_tau(order, order.flip(1), torch.tensor([0, 5000]))) == -1
    assert float(kendall_tau(order, order, torch.tensor([0, 5000]))) == 1


def test_kendall_tau_refuses_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="different graphs or heads"):
        an_ordering(heads=1).kendall_tau(an_ordering(heads=2))
    with pytest.raises(TypeError, match="got list"):
        an_ordering().kendall_tau([])
    x, edge_index = torch.randn(10, 4), small_graph()
    top = GOATConv(4, 4, max_neighbors=1, neighbor_selection="top")
    orders = [top(x * sign, edge_index, return_ordering=True)[1] for sign in (1, -1)]
    with pytest.raises(ValueError, match="same neighbours"):
        orders[0].kendall_tau(orders[1])


def test_kendall_tau_of_a_selection() -> None:
    x, edge_index = torch.randn(10, 4), small_graph()
    order = GOATConv(4, 4, heads=2, max_neighbors=2, neighbor_selection="top")(x, edge_index, return_ordering=True)[1]
    tau = order.kendall_tau(order)
    assert int(order.token.max()) >= order.token.size(1)  # there are more tokens than places
    assert bool((tau[~tau.isnan()] == 1).all())
    assert not bool(tau.isnan().all())
