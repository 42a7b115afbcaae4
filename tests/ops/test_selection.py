import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import graphs, neighborhoods
from torch_goat.ops.selection import keep_random, keep_top, random_order


@given(graphs(), st.integers(1, 5), st.booleans(), st.booleans())
def test_keeps_the_node_itself_and_at_most_k_others(graph, k: int, loops: bool, fresh: bool) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, loops)
    kept = hood.keep(keep_random(hood, k, fresh))
    for node in range(num_nodes):
        before = hood.source[hood.ptr[node] : hood.ptr[node + 1]].tolist()
        after = kept.source[kept.ptr[node] : kept.ptr[node + 1]].tolist()
        assert after.count(node) == before.count(node)
        others = len(before) - before.count(node)
        assert len(after) - after.count(node) == min(k, others)
        assert all(after.count(j) <= before.count(j) for j in after)


def star(num_leaves: int) -> torch.Tensor:
    return torch.stack([torch.arange(1, num_leaves + 1), torch.zeros(num_leaves, dtype=torch.long)])


def test_training_draws_are_uniform() -> None:
    hood = neighborhoods(star(10), None, 11, 11, add_self_loops=True)
    draws = 4000
    count = sum(keep_random(hood, 3, fresh=True)[:11].long() for _ in range(draws))
    assert count[0] == draws
    expected = 0.3 * draws
    # The indicator of one leaf has variance 0.21; over 10 leaves the sum of squares, scaled, is chi-square with 9
    # degrees of freedom (the counts sum to a constant), whose 99.99 % quantile is 33.7.
    chi_square = float(((count[1:] - expected) ** 2).sum() / (draws * 0.21) * 0.9)
    assert chi_square < 33.7


def test_evaluation_draws_once_and_looks_at_nothing_but_the_edge() -> None:
    hood = neighborhoods(star(30), None, 31, 31, add_self_loops=True)
    kept = hood.keep(keep_random(hood, 5, fresh=False))
    again = hood.keep(keep_random(hood, 5, fresh=False))
    assert torch.equal(kept.source, again.source)
    more = torch.cat([star(30), torch.tensor([[3, 4, 5], [7, 7, 9]])], dim=1)
    elsewhere = neighborhoods(more, None, 31, 31, add_self_loops=True)
    elsewhere = elsewhere.keep(keep_random(elsewhere, 5, fresh=False))
    assert torch.equal(kept.source[: kept.ptr[1]], elsewhere.source[: elsewhere.ptr[1]])


def test_the_fixed_draw_spreads_over_the_leaves() -> None:
    # 400 stars of 10 leaves each, 3 kept: each place in the star is taken about 120 times.
    targets = torch.arange(400).repeat_interleave(10)
    sources = 400 + torch.arange(4000)
    hood = neighborhoods(torch.stack([sources, targets]), None, 4400, 400, add_self_loops=False)
    count = keep_random(hood, 3, fresh=False).view(400, 10).sum(dim=0)
    assert float(((count - 120) ** 2).sum() / (400 * 0.21) * 0.9) < 33.7


def test_copies_of_an_edge_are_drawn_on_their_own() -> None:
    copies = torch.stack([torch.ones(8, dtype=torch.long), torch.zeros(8, dtype=torch.long)])
    hood = neighborhoods(copies, None, 2, 2, add_self_loops=True)
    assert hood.keep(keep_random(hood, 3, fresh=False)).ptr.tolist() == [0, 4, 5]


def test_top_takes_the_first_of_each_head() -> None:
    hood = neighborhoods(star(4), None, 5, 1, add_self_loops=True)  # tokens 0 (itself), 1, 2, 3, 4
    order = torch.tensor([[4, 0, 2, 1, 3], [1, 2, 3, 4, 0]])
    kept = keep_top(hood, order, 2)
    assert order[kept].view(2, -1).tolist() == [[4, 0, 2], [1, 2, 0]]


@given(graphs(), st.booleans(), st.integers(0, 3))
def test_a_random_order_permutes_each_neighbourhood(graph, fresh: bool, number: int) -> None:
    num_nodes, edge_index = graph
    hood = neighborhoods(edge_index, None, num_nodes, num_nodes, add_self_loops=False)
    order = random_order(hood, fresh, number)
    assert order.sort().values.tolist() == list(range(edge_index.size(1)))
    assert torch.equal(hood.target[order], hood.target)


def test_fixed_orders_are_uniform_and_independent_of_each_other() -> None:
    # 600 nodes with three neighbours each: a fixed draw gives each of the six orders about 100 times.
    targets = torch.arange(600).repeat_interleave(3)
    hood = neighborhoods(torch.stack([600 + torch.arange(1800), targets]), None, 2400, 600, add_self_loops=False)
    code = torch.tensor([9, 3, 1])
    drawn = [((random_order(hood, False, number) % 3).view(600, 3) * code).sum(dim=1) for number in (0, 1)]
    for one in drawn:
        count = torch.unique(one, return_counts=True)[1]
        # Chi-square with 5 degrees of freedom, whose 99.99 % quantile is 25.7.
        assert count.numel() == 6
        assert float(((count - 100) ** 2 / 100).sum()) < 25.7
    # Independent draws agree in a sixth of the nodes, with a standard deviation of 9.1.
    assert abs(int((drawn[0] == drawn[1]).sum()) - 100) < 4 * 9.2
