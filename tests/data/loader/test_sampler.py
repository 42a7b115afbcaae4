from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
import torch_geometric.typing
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import sort_edge_index

from torch_goat.data.loader import CSC, NeighborSampler, neighbor_loader
from torch_goat.data.loader.sampler import check_fanout

BOTH = pytest.mark.parametrize("compiled", [False, True])
FIELDS = ("node", "row", "col", "edge")


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    """Graphs with isolated nodes, hubs, self loops and multi-edges."""
    nodes = draw(st.integers(1, 12))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=60))
    if draw(st.booleans()):
        hub = draw(ends)
        edges += [(other, hub) for other in range(nodes)]
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    return Data(x=torch.arange(nodes).float().view(-1, 1), edge_index=edge_index)


def sampled(sampler: NeighborSampler, seeds: list[int]) -> SamplerOutput:
    return sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor(seeds, dtype=torch.long)))


def star(leaves: int) -> Data:
    """Every node from 1 leads to node 0."""
    sources = torch.arange(1, leaves + 1)
    return Data(edge_index=torch.stack([sources, torch.zeros_like(sources)]), num_nodes=leaves + 1)


@given(graphs(), st.data())
def test_draws_true_edges_within_the_fanout_once_each(data: Data, more: st.DataObject) -> None:
    fanout = more.draw(st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=3))
    seeds = more.draw(st.lists(st.integers(0, data.num_nodes - 1), max_size=6))
    outs = [sampled(NeighborSampler(data, fanout, compiled=kind), seeds) for kind in (False, True)]
    for field in FIELDS:
        assert torch.equal(*(getattr(out, field) for out in outs))
    out, csc = outs[0], CSC.of(data)
    edge = out.edge if csc.edge is None else csc.edge[out.edge]
    assert torch.equal(data.edge_index[:, edge], torch.stack([out.node[out.row], out.node[out.col]]))
    assert out.node[: len(seeds)].tolist() == seeds
    later = out.node[len(seeds) :].tolist()
    assert len({*later} | {*seeds}) == len(later) + len({*seeds})  # no node twice, but for the seeds as given
    assert {*later} <= {*out.node[out.row].tolist()}
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    bounds = torch.tensor([0, *out.num_sampled_nodes]).cumsum(0).tolist()
    assert bounds[-1] == out.node.numel()
    assert sum(out.num_sampled_edges) == out.edge.numel()
    drawn: dict[int, list[int]] = {}
    for hop, most in enumerate(fanout):
        for place in range(bounds[hop], bounds[hop + 1]):
            mine = out.edge[out.col == place].tolist()
            wanted = int(degree[out.node[place]])
            assert len(mine) == len({*mine}) == (wanted if most < 0 else min(most, wanted))
            assert drawn.setdefault(int(out.node[place]), mine) == mine  # also of a seed that is asked for twice
    assert not bool((out.col >= bounds[len(fanout)]).any())  # those of the last hop are read, not computed


@BOTH
def test_every_choice_of_neighbours_is_equally_likely(compiled: bool) -> None:
    data = star(5)
    counts: Counter[frozenset[int]] = Counter()
    for seed in range(2000):
        counts[frozenset(sampled(NeighborSampler(data, [2], seed=seed, compiled=compiled), [0]).node[1:].tolist())] += 1
    pairs = [frozenset(pair) for pair in combinations(range(1, 6), 2)]
    assert {*counts} == {*pairs}
    assert chisquare([counts[pair] for pair in pairs]).pvalue > 1e-3


def test_a_hub_in_shuffled_batches_gives_all_its_neighbours_alike() -> None:
    data = star(50)
    loader = neighbor_loader(data, [5], input_nodes=torch.zeros(1, dtype=torch.long), batch_size=1)
    sampler = loader.node_sampler
    counts = torch.zeros(51)
    for other in range(1, 51):  # the same seed; what differs are the nodes of the batch
        for another in range(1, 51):
            out = sampled(sampler, [0, other, another])
            counts[out.node[out.row[out.col == 0]]] += 1
    # Drawn without replacement, the counts vary less than those of a multinomial draw.
    statistic = chisquare(counts[1:].numpy()).statistic * 49 / 45
    assert 20 < statistic < 95  # 49 degrees of freedom: both bounds are beyond one in ten thousand


@BOTH
def test_isolated_nodes_and_empty_batches(compiled: bool) -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=4)
    sampler = NeighborSampler(data, [3, -1], compiled=compiled)
    empty = sampled(sampler, [])
    assert [getattr(empty, field).numel() for field in FIELDS] == [0, 0, 0, 0]
    alone = sampled(sampler, [3])
    assert alone.node.tolist() == [3]
    assert alone.num_sampled_edges == [0, 0]
    nothing = NeighborSampler(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=2), [1], compiled=compiled)
    assert sampled(nothing, [1, 0]).node.tolist() == [1, 0]


@given(graphs(), st.integers(0, 5))
def test_bidirectional_and_induced(data: Data, seed: int) -> None:
    seeds = [seed % data.num_nodes]
    drawn = sampled(NeighborSampler(data, [2, 2], seed=seed), seeds)
    both = sampled(NeighborSampler(data, [2, 2], seed=seed, subgraph_type="bidirectional"), seeds)
    there = {*zip(drawn.row.tolist(), drawn.col.tolist(), strict=True)}
    assert {*zip(both.row.tolist(), both.col.tolist(), strict=True)} == there | {(b, a) for a, b in there}
    whole = sampled(NeighborSampler(data, [2, 2], seed=seed, subgraph_type="induced"), seeds)
    chosen = whole.node.tolist()
    wanted = [(a, b) for a, b in data.edge_index.t().tolist() if a in chosen and b in chosen]
    found = zip(whole.node[whole.row].tolist(), whole.node[whole.col].tolist(), strict=True)
    assert sorted(found) == sorted(wanted)


def power_law(nodes: int = 300, edges: int = 4000) -> Data:
    generator = torch.Generator().manual_seed(1)
    ends = (torch.rand(2, edges, generator=generator) ** 3 * nodes).long()
    x = torch.randn(nodes, 4, generator=generator)
    return Data(x=x, edge_index=ends, edge_attr=torch.arange(edges).float().view(-1, 1), y=torch.arange(nodes))


def batches(data: Data, workers: int, seed: int = 7) -> list[Data]:
    generator = torch.Generator().manual_seed(3)
    loader = neighbor_loader(
        data, [6, 3], seed=seed, batch_size=64, shuffle=True, generator=generator, num_workers=workers
    )
    return [*loader, *loader]


def test_batches_depend_on_the_epoch_and_the_seed_and_not_on_workers() -> None:
    data = power_law()
    one, two, other = batches(data, 0), batches(data, 2), batches(data, 0, seed=8)
    for alone, shared in zip(one, two, strict=True):
        assert alone.keys() == shared.keys()
        for key in ("x", "y", "edge_index", "edge_attr", "n_id", "e_id", "input_id"):
            assert torch.equal(alone[key], shared[key])
    assert not torch.equal(one[0].n_id, one[len(one) // 2].n_id)
    assert torch.equal(one[0].input_id, other[0].input_id)
    assert not torch.equal(one[0].e_id, other[0].e_id)


@pytest.mark.parametrize("options", [{}, {"time_attr": "time"}])
def test_every_epoch_draws_new_neighbours_without_shuffling_too(options: dict) -> None:
    data = power_law()
    data.time = torch.zeros(300)

    def epochs(number: int, done: int = 0, **more) -> list[Tensor]:
        loader = neighbor_loader(data, num_neighbors=[3], batch_size=100, **options, **more)
        loader.node_sampler.epoch.fill_(done)
        return [torch.cat([batch.e_id for batch in loader]) for _ in range(number)]

    alone = epochs(3)
    for one, other in combinations(alone, 2):
        assert not torch.equal(one, other)
    torch.manual_seed(len(alone))
    for again in (epochs(3, num_workers=2), epochs(3, num_workers=1, persistent_workers=True)):
        assert all(map(torch.equal, again, alone))
    assert torch.equal(epochs(1, done=2)[0], alone[2])  # resumes


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("option", ["replace", "disjoint", "weight_attr", "is_sorted", "directed"])
def test_options_of_pyg_that_are_not_supported(option: str, installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", installed)
    with pytest.raises(TypeError, match=f"does not support {option}=True; leave it out, or use PyG's NeighborLoader"):
        neighbor_loader(power_law(), [2], **{option: True})


def test_features_of_edges_follow_them_and_transforms_run() -> None:
    data = power_law()
    loader = neighbor_loader(
        data, [4], input_nodes=data.y < 100, batch_size=30, transform=lambda batch: batch.update({"seen": True})
    )
    for batch in loader:
        assert batch.seen
        assert torch.equal(batch.edge_attr.view(-1).long(), batch.e_id)
        assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
        assert torch.equal(batch.x, data.x[batch.n_id])
    assert batch.batch_size == 10


@pytest.mark.parametrize("workers", [0, 2])
def test_link_loader(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not workers:
        monkeypatch.setattr("torch.cuda.manual_seed_all", None)  # generators of other devices are left alone
    data = power_law()
    wanted = data.edge_index[:, :90]
    runs = []
    for _ in range(2):
        torch.default_generator.manual_seed(len(runs))  # negative edges do not depend on the process's generator either
        sampler = NeighborSampler(data, [5, 2], seed=4)
        negative = NegativeSampling("binary", 1.0)
        loader = LinkLoader(data, sampler, wanted, neg_sampling=negative, batch_size=30, num_workers=workers)
        runs.append(list(loader))
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first.edge_label_index, second.edge_label_index)
        assert torch.equal(first.n_id, second.n_id)
        place, label = first.edge_label_index, first.edge_label
        assert torch.equal(first.n_id[place[:, label == 1]], wanted[:, first.input_id])
        assert int((label == 0).sum()) == 30


def test_pyg_loader_where_pyg_lib_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    assert isinstance(neighbor_loader(power_law(), [2]), NeighborLoader)
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    loader = neighbor_loader(power_law(), [2])
    assert isinstance(loader, NodeLoader)
    assert isinstance(loader.node_sampler, NeighborSampler)


def test_a_pair_of_stores_is_read_as_a_graph() -> None:
    data = power_law()
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    graph.put_edge_index(tuple(data.edge_index), edge_type=None, layout="coo", size=(300, 300))
    batches = list(neighbor_loader((features, graph), [3], batch_size=50))
    assert torch.equal(torch.cat([batch.n_id[:50] for batch in batches]), torch.arange(300))
    for batch in batches:
        assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
        assert torch.equal(batch.x, data.x[batch.n_id])


def test_sorted_edges_are_not_copied() -> None:
    edge_index = sort_edge_index(power_law().edge_index, sort_by_row=False)
    csc = CSC.of(Data(edge_index=edge_index, num_nodes=300))
    assert csc.edge is None
    assert csc.source.data_ptr() == edge_index.data_ptr()


def test_bad_input() -> None:
    for fanout, options, message in (
        ([], {}, "fanout is empty"),
        ([3, 0], {}, "got 0"),
        ([-2], {}, "got -2"),
        ([1.5], {}, "got 1.5"),
        ([2], {"subgraph_type": "whole"}, "got 'whole'"),
        ([2], {"seed": -1}, "got -1"),
        ([2], {"seed": 1.5}, "seed must be a whole number of at least 0, got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            NeighborSampler(star(3), fanout, **options)
    with pytest.raises(TypeError, match=r"fanout must be a list of numbers, one for each hop, got 15; pass \[15\]"):
        NeighborSampler(star(3), 15)
    sampler = NeighborSampler(star(3), [2])
    with pytest.raises(IndexError, match="node 4"):
        sampled(sampler, [4])
    with pytest.raises(ValueError, match="the graph has no edges of any type"):
        NeighborSampler(HeteroData(), [2])
    with pytest.raises(IndexError, match="node 9"):
        NeighborSampler(Data(edge_index=torch.tensor([[9], [0]]), num_nodes=2), [2])
    times = torch.zeros(1)
    with pytest.raises(ValueError, match="pass time_attr to the sampler"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.zeros(1).long(), times))
    with pytest.raises(ValueError, match="pass time_attr to the sampler"):
        sampler.sample_from_edges(EdgeSamplerInput(None, torch.zeros(1).long(), torch.zeros(1).long(), time=times))
    with pytest.raises(TypeError, match="do not apply ToSparseTensor"):
        neighbor_loader(ToSparseTensor(layout=torch.sparse_coo)(star(3)), [2])
    with pytest.raises(ValueError, match="a mask of 2 nodes, but there are 4"):
        neighbor_loader(star(3), [2], input_nodes=torch.ones(2, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_edges_of_every_type_of_whole_numbers(dtype: torch.dtype) -> None:
    edge_index = torch.tensor([[0, 1, 2], [2, 1, 0]])
    csc = CSC.of(Data(edge_index=edge_index.to(dtype), num_nodes=3))
    assert csc.edge_index().tolist() == [[2, 1, 0], [0, 1, 2]]
    assert check_fanout(np.array([2, -1])) == (2, -1)
