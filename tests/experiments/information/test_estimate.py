from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_goat.experiments.information import SmallSampleWarning, estimate
from torch_goat.experiments.information.estimate import neighbor_groups
from torch_goat.nn import GOATConv


def stars(label: Any, nodes: int = 2000, noise: float = 0.0, seed: int = 0) -> tuple[Data, torch.Tensor]:
    """Centres with two leaves whose bits determine the label, and the group of each edge's source."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(2, (nodes, 2), generator=generator)
    flipped = torch.rand(nodes, generator=generator) < noise
    y = label(bits[:, 0], bits[:, 1]) ^ flipped.long()
    return centers(bits, y), torch.tensor([0, 1]).repeat(nodes)


def numbers(found: Any) -> list[float]:
    return [found.unique[0].value, found.unique[1].value, found.redundancy.value, found.synergy.value]


@pytest.mark.parametrize(("measure", "correction"), [("wb", "miller-madow"), ("wb", "shuffle"), ("broja", "shuffle")])
@pytest.mark.parametrize(
    ("label", "expected"),
    [(lambda a, b: a ^ b, [0, 0, 0, 1]), (lambda a, b: a & b, [0, 0, 0.311, 0.5]), (lambda a, b: a, [1, 0, 0, 0])],
    ids=["xor", "and", "first"],
)
def test_known_cases(label: Any, expected: list[float], measure: Any, correction: Any) -> None:
    data, groups = stars(label)
    found = estimate(data, groups, measure=measure, correction=correction, repetitions=50)
    assert numbers(found) == pytest.approx(expected, abs=0.03)
    assert sum(numbers(found)) == pytest.approx(found.total.value)
    assert found.counted == pytest.approx(found.single[0].value + found.single[1].value)
    assert (found.nodes, found.alphabet, found.warning) == (2000, (2, 2, 2), "")
    assert found.total.p_value == pytest.approx(1 / 51)


def centers(values: torch.Tensor, label: torch.Tensor) -> Data:
    """Labelled centres ``[n]`` with one leaf for each of their values ``[n, k]``."""
    nodes, leaves = values.shape
    edge_index = torch.stack([nodes + torch.arange(values.numel()), torch.arange(nodes).repeat_interleave(leaves)])
    x = torch.cat([torch.zeros(nodes), values.flatten()]).view(-1, 1)
    return Data(x=x, edge_index=edge_index, y=torch.cat([label, torch.full((values.numel(),), -1)]))


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_the_unit_of_the_features_does_not_matter(unit: float) -> None:
    """Means of three values have 7 distinct values, which must not be split by rounding errors."""
    values = torch.randint(3, (600, 6))
    label = (values[:, :3].sum(dim=1) > values[:, 3:].sum(dim=1)).long()
    groups = torch.tensor([0, 0, 0, 1, 1, 1]).repeat(600)
    plain, found = (estimate(centers(scale * values, label), groups, repetitions=10) for scale in (1, unit))
    assert found == plain
    assert plain.alphabet == (7, 7, 2)


def test_no_information_is_no_information() -> None:
    """The plug-in estimate finds information about independent labels, the corrected one does not."""
    corrected, plain, p_values = [], [], []
    for seed in range(40):
        data, groups = stars(lambda a, b: torch.randint(2, a.shape), nodes=150, seed=seed)
        found = estimate(data, groups, repetitions=60, seed=seed)
        corrected.append(found.total.value)
        plain.append(found.plug_in)
        p_values.append(found.total.p_value)
    assert np.mean(plain) > 0.01
    assert abs(np.mean(corrected)) < 0.004
    assert np.mean(np.array(p_values) < 0.1) < 0.3
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.2)


def test_the_interval_covers_the_truth() -> None:
    # y is XOR, wrong in a tenth of the cases: 1 - H(0.1) bits of synergy.
    truth = 1 + 0.1 * np.log2(0.1) + 0.9 * np.log2(0.9)
    covered = []
    for seed in range(60):
        data, groups = stars(lambda a, b: a ^ b, nodes=200, noise=0.1, seed=seed)
        synergy = estimate(data, groups, repetitions=200, confidence=0.9, seed=seed).synergy
        assert synergy.low <= synergy.value <= synergy.high
        covered.append(synergy.low <= truth <= synergy.high)
    assert 0.78 <= np.mean(covered) <= 0.98


def test_a_group_without_neighbours_is_a_symbol() -> None:
    data, groups = stars(lambda a, b: a, nodes=300)
    groups[1::4] = -1  # every second centre has an empty second group
    found = estimate(data, groups)
    assert found.alphabet == (2, 3, 2)
    assert found.unique[0].value == pytest.approx(1, abs=0.05)


def test_real_labels_and_real_features() -> None:
    generator = torch.Generator().manual_seed(0)
    data, groups = stars(lambda a, b: a, nodes=1000)
    data.x = data.x + 0.1 * torch.rand(3000, 1, generator=generator)
    first = data.x[data.edge_index[0][groups == 0], 0]
    data.y = torch.cat([first**3, torch.full((2000,), torch.nan)])
    found = estimate(data, groups, bins=2, target_bins=2)
    assert numbers(found) == pytest.approx([1, 0, 0, 0], abs=0.05)


def test_which_nodes_count() -> None:
    data, groups = stars(lambda a, b: a ^ b, nodes=400)
    first = estimate(data, groups, nodes=torch.arange(1200) < 100)
    assert first.nodes == 100
    assert estimate(data, groups, nodes=torch.arange(1200) < 100) == first


def test_halves_and_clusters() -> None:
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(40, (2, 300), generator=generator)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    x = torch.randn(40, 3, generator=generator) + 10 * (torch.arange(40) % 2).view(-1, 1)
    halves = neighbor_groups(edge_index, "random", None, x, seed=0)
    for node in range(40):
        here = halves[edge_index[1] == node]
        assert int((here == 0).sum()) == len(here) // 2
    assert not torch.equal(halves, neighbor_groups(edge_index, "random", None, x, seed=1))
    loops = torch.arange(40).expand(2, -1)  # self loops are in neither group
    looped = neighbor_groups(torch.cat([loops, edge_index], dim=1), "random", None, x, seed=0)
    assert looped.tolist() == [-1] * 40 + halves.tolist()
    clusters = neighbor_groups(edge_index, "features", None, x, seed=0)
    odd = edge_index[0] % 2
    assert torch.equal(clusters, odd) or torch.equal(clusters, 1 - odd)


def test_the_first_of_an_ordering_against_the_rest() -> None:
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(30, (2, 200), generator=generator).unique(dim=1)
    x = torch.randn(30, 4, generator=generator)
    _, ordering = GOATConv(4, 8, heads=2, backend="torch")(x, edge_index, return_ordering=True)
    found = neighbor_groups(edge_index, "order", ordering, x, seed=0)
    for source, target, group in zip(*edge_index.tolist(), found.tolist(), strict=True):
        others = [node for node in ordering.neighbors(target).tolist() if node != target]
        assert group == (-1 if source == target else int(source != others[0]))


def test_the_largest_of_a_group() -> None:
    # The label is the maximum of the two leaves in the first group, about which their mean says less.
    values = torch.randint(3, (600, 3))
    label = values[:, :2].amax(dim=1)
    data, groups = centers(values, label), torch.tensor([0, 0, 1]).repeat(600)
    whole = estimate(data, groups, pool="max", correction="none")
    share = np.bincount(label) / 600
    assert whole.single[0].value == pytest.approx(-(share * np.log2(share)).sum())
    assert estimate(data, groups, correction="none").single[0].value < whole.single[0].value - 0.05


def graph(**changes: Any) -> Data:
    data, _ = stars(lambda a, b: a ^ b, nodes=100)
    for key, value in changes.items():
        data[key] = value
    return data


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (graph(y=None), {}, r"data has no labels \(data.y\)"),
        (graph(y=torch.full((300,), -1)), {}, "no node has a label"),
        (graph(y=torch.full((300,), torch.nan)), {}, "no node has a label"),
        (graph(y=torch.ones(300, dtype=torch.long)), {}, "all nodes have the same label"),
        (graph(y=torch.rand(300)), {}, "the label data.y is continuous .* target_bins="),
        (graph(), {"groups": torch.zeros(200, dtype=torch.long)}, "the second group has no members"),
        (graph(y=torch.zeros(7)), {}, "one label for each of the 300 nodes"),
        (graph(), {"target_bins": 3}, "target_bins=3 needs real labels"),
        (graph(x=torch.rand(300, 2)), {}, "are continuous .* pass bins="),
        (graph(x=None), {}, r"data has no features \(data.x\); pass values="),
        (graph(x=torch.full((300, 1), torch.nan)), {}, "NaN or infinity"),
        (graph(edge_index=None), {}, "no edge_index"),
        (graph(edge_index=torch.zeros(2, 0, dtype=torch.long)), {}, "no labelled node has a neighbour in either group"),
        (graph(edge_index=torch.tensor([[0], [300]])), {}, "nodes 0 to 300, but there are features for 300 nodes"),
        (graph(), {"groups": "halves"}, "groups must be .* got 'halves'"),
        (graph(), {"groups": "order"}, "groups='order' and ordering= must be passed together"),
        (graph(), {"groups": torch.zeros(5)}, "0, 1 or -1 for each of the 200 edges"),
        (graph(), {"pool": "median"}, "pool must be .* got 'median'"),
        (graph(), {"measure": "brojo"}, "measure must be 'wb' or 'broja', got 'brojo'"),
        (graph(), {"correction": "madow"}, "correction must be .* got 'madow'"),
        (graph(), {"measure": "broja", "correction": "miller-madow"}, "not defined for measure='broja'"),
        (graph(), {"repetitions": 2}, "repetitions must be at least 10, got 2"),
        (graph(), {"confidence": 95}, "confidence must be between 0 and 1, got 95"),
        (graph(), {"seed": -1}, "seed must be between 0 and 4294967295, got -1"),
        (graph(), {"nodes": torch.ones(3)}, r"nodes must be a mask of shape \[300\]"),
        (graph(x=torch.rand(300, 1)), {"bins": 9}, "the alphabet is too large for the sample"),
    ],
)
def test_bad_input(data: Data, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(data, **options)


def test_an_ordering_of_another_graph() -> None:
    data = graph()
    _, ordering = GOATConv(1, 2, backend="torch")(data.x, data.edge_index.flip(0), return_ordering=True)
    with pytest.raises(ValueError, match="the ordering belongs to another graph"):
        estimate(data, "order", ordering=ordering)


def test_a_small_sample_triggers_a_warning() -> None:
    with pytest.warns(SmallSampleWarning, match="100 samples for 3 x 4 x 2 symbols|the sample is small"):
        found = estimate(graph(x=torch.rand(300, 1)), bins=4)
    assert "use fewer bins" in found.warning
