"""Samples of graphs with times, or with several types of nodes and edges."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader

from tests.graphs import graphs
from torch_goat.data import NeighborSampler, neighbor_loader
from torch_goat.nn import GOATConv

PAPERS, AUTHORS = 12, 5


def timed_graph(edge_index: Tensor, num_nodes: int, of_edges: bool) -> Data:
    generator = torch.Generator().manual_seed(0)
    data = Data(edge_index=edge_index, num_nodes=num_nodes, y=torch.arange(num_nodes))
    size = data.num_edges if of_edges else num_nodes
    data["edge_time" if of_edges else "time"] = torch.randint(6, (size,), generator=generator)
    return data


def earlier(data: Data, node: int, limit: int) -> list[int]:
    """The positions of the edges into a node that are not later than ``limit``."""
    time = data.edge_time if "edge_time" in data else data.time[data.edge_index[0]]
    return [e for e in range(data.num_edges) if data.edge_index[1, e] == node and time[e] <= limit]


@given(graphs(max_nodes=6, max_edges=20), st.booleans())
def test_without_a_limit_all_earlier_neighbours_of_each_seed_are_sampled(graph, of_edges: bool) -> None:
    num_nodes, edge_index = graph
    data = timed_graph(edge_index, num_nodes, of_edges)
    seeds, limits = torch.arange(num_nodes).repeat(2), torch.arange(2 * num_nodes) % 6
    attribute = "edge_time" if of_edges else "time"
    loader = neighbor_loader(
        data, [-1, -1], time_attr=attribute, input_nodes=seeds, input_time=limits, batch_size=2 * num_nodes
    )
    (batch,) = loader
    for seed, (root, limit) in enumerate(zip(seeds.tolist(), limits.tolist(), strict=True)):
        first = earlier(data, root, limit)
        reached = {root} | set(edge_index[0, first].tolist())
        expected = Counter(first)
        for node in reached - {root}:
            expected.update(earlier(data, node, limit))
        own = batch.batch[batch.edge_index[1]] == seed
        assert Counter(batch.e_id[own].tolist()) == expected
        assert torch.equal(batch.n_id[batch.edge_index[:, own]], edge_index[:, batch.e_id[own]])
        second = set(edge_index[0, list(expected)].tolist())
        assert sorted(batch.n_id[batch.batch == seed].tolist()) == sorted(reached | second)
    assert batch.n_id[: seeds.numel()].tolist() == seeds.tolist()


def test_the_time_of_a_node_is_its_own_unless_one_is_given() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4]]), num_nodes=5, time=torch.tensor([1, 2, 3, 4, 2]))
    for options, expected in (({}, {0, 1}), ({"input_time": torch.tensor([3])}, {0, 1, 2})):
        (batch,) = neighbor_loader(data, [5, 5], time_attr="time", input_nodes=torch.tensor([4]), **options)
        assert set(batch.n_id[1:].tolist()) == expected
        assert batch.num_sampled_nodes == [1, len(expected), 0]


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_draws_among_earlier_neighbours(strategy: str) -> None:
    leaves, limit = 10, 6
    time = torch.cat([torch.arange(leaves), torch.tensor([limit - 1])])  # neighbours 0 to 5 are early enough
    edge_index = torch.stack([torch.randperm(leaves), torch.full((leaves,), leaves)])
    data = Data(edge_index=edge_index, num_nodes=leaves + 1, time=time)
    seen: Counter[int] = Counter()
    rounds = 600
    for seed in range(rounds):
        sampler = NeighborSampler(data, [2], time_attr="time", temporal_strategy=strategy, seed=seed)
        node = sampler._sample(torch.tensor([leaves])).node.tolist()
        assert node[0] == leaves
        assert len(set(node)) == 3
        seen.update(node[1:])
    if strategy == "last":
        assert seen == {4: rounds, 5: rounds}
    else:  # 200 each; 11.5 is the standard deviation
        assert all(abs(seen[node] - rounds / 3) < 5 * 11.5 for node in range(limit))
        assert sum(seen[node] for node in range(limit)) == 2 * rounds


def test_times_that_do_not_fit_are_refused() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3, edge_time=torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="time_attr='when' is neither an attribute of nodes nor of edges"):
        neighbor_loader(data, [2], time_attr="when")
    with pytest.raises(ValueError, match="edge_time is a time of edges; pass the times of the nodes as input_time"):
        next(iter(neighbor_loader(data, [2], time_attr="edge_time")))
    with pytest.raises(ValueError, match="pass time_attr to the sampler"):
        next(iter(neighbor_loader(data, [2], input_time=torch.zeros(3))))
    with pytest.raises(ValueError, match="'induced' needs a Data without time_attr"):
        neighbor_loader(data, [2], time_attr="edge_time", subgraph_type="induced")
    data.edge_time = torch.tensor([1.0, torch.nan])
    with pytest.raises(ValueError, match=r"edge_time must hold 2 times without NaN, got \[2\]"):
        neighbor_loader(data, [2], time_attr="edge_time")


def hetero_graph() -> HeteroData:
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(PAPERS, 4), torch.randn(AUTHORS, 3)

    def edges(sources: int, targets: int, count: int) -> Tensor:
        ends = [torch.randint(size, (count,), generator=generator) for size in (sources, targets)]
        return torch.stack(ends)

    data["paper", "cites", "paper"].edge_index = edges(PAPERS, PAPERS, 30)
    data["author", "writes", "paper"].edge_index = edges(AUTHORS, PAPERS, 25)
    data["paper", "by", "author"].edge_index = edges(PAPERS, AUTHORS, 25)
    for edge_type in data.edge_types:
        data[edge_type].edge_attr = torch.arange(float(data[edge_type].num_edges)).view(-1, 1)
    return data


def test_all_neighbours_of_every_type() -> None:
    data = hetero_graph()
    seeds = torch.tensor([3, 7])
    (batch,) = neighbor_loader(data, [-1, -1], input_nodes=("paper", seeds), batch_size=2)
    reached = {"paper": set(seeds.tolist()), "author": set()}
    expected: dict = {edge_type: set() for edge_type in data.edge_types}
    targets = reached
    for _ in range(2):
        found: dict = {"paper": set(), "author": set()}
        for edge_type in data.edge_types:
            source, _, target = edge_type
            for edge, (j, i) in enumerate(data[edge_type].edge_index.t().tolist()):
                if i in targets[target]:
                    expected[edge_type].add(edge)
                    found[source].add(j)
        targets = {kind: found[kind] - reached[kind] for kind in found}
        reached = {kind: reached[kind] | found[kind] for kind in found}
    assert batch["paper"].n_id[:2].tolist() == seeds.tolist()
    assert batch["paper"].batch_size == 2
    for kind in data.node_types:
        assert sorted(batch[kind].n_id.tolist()) == sorted(reached[kind])
        assert torch.equal(batch[kind].x, data[kind].x[batch[kind].n_id])
        assert sum(batch[kind].num_sampled_nodes) == batch[kind].num_nodes
    for edge_type in data.edge_types:
        store, given = batch[edge_type], data[edge_type].edge_index
        assert set(store.e_id.tolist()) == expected[edge_type]
        ends = [batch[kind].n_id[row] for kind, row in zip(edge_type[::2], store.edge_index, strict=True)]
        assert torch.equal(torch.stack(ends), given[:, store.e_id])
        assert store.edge_attr.view(-1).tolist() == store.e_id.tolist()


def test_a_limit_for_each_type_of_edges() -> None:
    data, limits = hetero_graph(), {("paper", "cites", "paper"): [1], ("author", "writes", "paper"): [2]}
    limits |= {("paper", "by", "author"): [-1]}
    (batch,) = neighbor_loader(data, limits, input_nodes="paper", batch_size=PAPERS)
    for edge_type, (most,) in limits.items():
        kind = edge_type[2]
        degree = torch.bincount(data[edge_type].edge_index[1], minlength=data[kind].num_nodes)
        degree = degree.clamp(max=most) if most > 0 else torch.zeros_like(degree)  # authors are only in the last hop
        found = torch.bincount(batch[kind].n_id[batch[edge_type].edge_index[1]], minlength=degree.numel())
        assert torch.equal(found, degree)
    with pytest.raises(ValueError, match="fanout must have as many hops for each of the edge types"):
        neighbor_loader(data, {("paper", "cites", "paper"): [1]}, input_nodes="paper")
    with pytest.raises(ValueError, match=r"input_nodes must name one of the node types \['paper', 'author'\]"):
        neighbor_loader(data, [1])


@pytest.mark.parametrize("nodes", ["papers", ("papers", torch.arange(2)), ("paper",), torch.arange(2)])
def test_an_unknown_type_of_nodes_is_refused_and_not_added(nodes) -> None:
    data = hetero_graph()
    with pytest.raises(ValueError, match=r"input_nodes must name one of the node types \['paper', 'author'\]"):
        neighbor_loader(data, [1], input_nodes=nodes)
    assert data.node_types == ["paper", "author"]


def test_a_mask_of_another_number_of_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match=f"a mask of {PAPERS - 1} nodes, but there are {PAPERS}"):
        neighbor_loader(hetero_graph(), [1], input_nodes=("paper", torch.ones(PAPERS - 1, dtype=torch.bool)))


def test_types_with_times() -> None:
    data = hetero_graph()
    data["paper"].time = torch.arange(PAPERS)
    (batch,) = neighbor_loader(data, [-1, -1], input_nodes="paper", time_attr="time", batch_size=PAPERS)
    seed = batch["paper"].batch
    assert bool((data["paper"].time[batch["paper"].n_id] <= seed).all())  # node t is seed t, of time t
    cites = data["paper", "cites", "paper"].edge_index
    for paper in range(PAPERS):
        own = batch["paper"].n_id[seed == paper].tolist()
        direct = cites[0][(cites[1] == paper) & (cites[0] <= paper)].tolist()
        assert set(direct) <= set(own)


def test_edges_of_types_are_sampled_with_their_ends() -> None:
    data, edge_type = hetero_graph(), ("author", "writes", "paper")
    sampler = NeighborSampler(data, [2])
    loader = LinkLoader(
        data, sampler, edge_label_index=(edge_type, data[edge_type].edge_index), neg_sampling_ratio=1.0, batch_size=25
    )
    (batch,) = loader
    assert batch[edge_type].edge_label.sum() == 25
    ends = batch[edge_type].edge_label_index[:, :25]
    found = torch.stack([batch["author"].n_id[ends[0]], batch["paper"].n_id[ends[1]]])
    assert torch.equal(found, data[edge_type].edge_index)


def test_a_layer_on_a_temporal_batch_sees_no_later_neighbour() -> None:
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(20, (2, 100), generator=generator)
    data = Data(torch.randn(20, 4), edge_index, time=torch.arange(20))
    conv = GOATConv(4, 6).double()
    (batch,) = neighbor_loader(data, [-1], time_attr="time", batch_size=20)
    out = conv(batch.x.double(), batch.edge_index)[:20]
    early = edge_index[:, edge_index[0] <= edge_index[1]]
    assert torch.allclose(out, conv(data.x.double(), early), atol=1e-12)
