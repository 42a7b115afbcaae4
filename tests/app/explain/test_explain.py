import json
import math
from itertools import combinations, permutations
from pathlib import Path

import pytest
import torch
from scipy.stats import kendalltau
from torch import Tensor

from tests.small_runs import run, small
from torch_goat.app.explain import Agreement, Explanation, Stability, explain
from torch_goat.app.explain.figure import save_figure, short
from torch_goat.experiments import Run, RunError
from torch_goat.nn import Ordering
from torch_goat.settings import SettingsError

NODE = 7
GOAT, GCN = "compared/goat/0", "compared/gcn"


@pytest.fixture(scope="module")
def deep(runs: Path) -> tuple[Run, Explanation]:
    opened = Run(runs / GOAT)
    return opened, explain(opened, str(NODE))


def without(opened: Run, *sources: int) -> Tensor:
    """The calibrated output at the node on the graph without some edges."""
    data = small(opened.experiment.dataset)
    edges = [edge for edge in data.edge_index.t().tolist() if not (edge[1] == NODE and edge[0] in sources)]
    out = opened.network(data.x, torch.tensor(edges).t())[NODE].detach().double()
    return out if opened.result.temperature is None else out / opened.result.temperature


def log_odds(out: Tensor, chosen: int) -> float:
    share = float(out.softmax(-1)[chosen])
    return math.log(share / (1 - share))


@pytest.mark.parametrize("name", [GOAT, GCN])
def test_contributions_are_lost_log_odds(runs: Path, name: str) -> None:
    opened = Run(runs / name)
    found = explain(opened, str(NODE))
    data = small("top2")
    around = sorted(data.edge_index[0, data.edge_index[1] == NODE].tolist())
    assert sorted(one.neighbor for one in found.effects) == around
    whole = without(opened)
    chosen = int(whole.argmax())
    assert found.prediction.value == chosen
    assert found.prediction.probability == pytest.approx(float(whole.softmax(-1)[chosen]), abs=1e-6)
    assert found.prediction.truth == int(data.y[NODE])
    for one in found.effects:
        left = without(opened, one.neighbor)
        assert one.contribution == pytest.approx(log_odds(whole, chosen) - log_odds(left, chosen), abs=1e-5)
        assert one.without == pytest.approx(float(left.softmax(-1)[chosen]), abs=1e-6)
    sizes = [abs(one.contribution) for one in found.effects]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 1e-4
    if name == GCN:  # no GOAT layers
        assert found.readings == found.stability.epochs == found.stability.seeds == ()


def test_interactions_are_joint_minus_single_contributions(deep: tuple[Run, Explanation]) -> None:
    opened, found = deep
    whole, chosen = without(opened), int(found.prediction.value)
    lost = {
        sources: log_odds(whole, chosen) - log_odds(without(opened, *sources), chosen)
        for size in (1, 2)
        for sources in combinations(sorted(one.neighbor for one in found.effects), size)
    }
    assert len(found.interactions) == math.comb(len(found.effects), 2)
    for one in found.interactions:
        first, second = sorted((one.first, one.second))
        expected = lost[first, second] - lost[first,] - lost[second,]
        assert one.value == pytest.approx(expected, abs=3e-5)
    assert abs(found.interactions[0].value) > 1e-4


def test_only_the_strongest_are_paired(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_goat.app.explain.explanation.STRONGEST", 3)
    found = explain(Run(runs / GCN), str(NODE))
    strongest = {one.neighbor for one in found.effects[:3]}
    assert len(found.interactions) == 3
    assert {node for one in found.interactions for node in (one.first, one.second)} == strongest


def orderings_of(opened: Run) -> list[Ordering]:
    data = small("top2")
    return opened.network(data.x, data.edge_index, return_orderings=True)[1]


def test_readings_are_the_orders_of_the_layers(deep: tuple[Run, Explanation]) -> None:
    opened, found = deep
    orderings = orderings_of(opened)
    expected = [
        (layer, head + 1, ordering.neighbors(NODE, head).tolist())
        for layer, ordering in enumerate(orderings, start=1)
        for head in range(ordering.heads)
    ]
    assert [(one.layer, one.head, list(one.neighbors)) for one in found.readings] == expected
    for one in found.readings:
        assert sum(one.coefficients) == pytest.approx(1, abs=1e-5)
        assert list(one.coefficients) == sorted(one.coefficients, reverse=True)
        assert NODE in one.neighbors


def tau(first: list[int], second: list[int]) -> float:
    """SciPy's tau of two orders of the same nodes."""
    return float(kendalltau(*([order.index(node) for node in first] for order in (first, second)))[0])


def test_stability_over_epochs_is_kendalls_tau(runs: Path, deep: tuple[Run, Explanation]) -> None:
    found = deep[1]
    recorded = {(one.number, one.layer): one for one in found.stability.epochs}
    assert sorted(recorded) == [(0, 1), (0, 2), (4, 1), (4, 2)]
    for (epoch, layer), one in recorded.items():
        there = Ordering.load(runs / GOAT / f"orderings/epoch-{epoch}-layer-{layer}.safetensors")
        heads = [reading for reading in found.readings if reading.layer == layer]
        expected = [tau(list(head.neighbors), there.neighbors(NODE, head.head - 1).tolist()) for head in heads]
        assert one.tau[0].tolist() == pytest.approx(expected)
        assert one.mean == pytest.approx(float(one.tau.nanmean()))


def test_stability_over_seeds_matches_heads(runs: Path, deep: tuple[Run, Explanation]) -> None:
    """Of all ways to pair the heads, that with the greatest agreement up to reversal, by trying them all."""
    found = deep[1].stability
    ours, theirs = (orderings_of(Run(runs / name))[0] for name in (GOAT, "compared/goat/1"))
    by_pair = torch.tensor(
        [
            [[tau(ours.neighbors(n, k).tolist(), theirs.neighbors(n, j).tolist()) for n in found.nodes.tolist()]
             for j in range(2)]
            for k in range(2)
        ]
    )  # fmt: skip
    mean = by_pair[..., 1::2][..., :100].nanmean(dim=-1)  # [K, K], of the nodes by which heads are matched
    best = max(permutations(range(2)), key=lambda heads: sum(mean[k, j].abs() for k, j in enumerate(heads)))
    expected = torch.stack([by_pair[k, j] * mean[k, j].sign() for k, j in enumerate(best)], dim=1)
    expected[1::2][:100] = torch.nan
    first = next(one for one in found.seeds if one.layer == 1)
    assert first.number == 1
    assert torch.allclose(first.tau, expected.to(first.tau.dtype), equal_nan=True)
    assert first.best == pytest.approx(float(expected.nanmean(dim=0).max()))


@pytest.mark.parametrize(
    ("tau", "meaning"),
    [
        (0.9, "The best heads of other seeds agree with this order (mean tau 0.90, and 0.45 over all heads; "),
        (0.2, "Even the best heads of other seeds agree little (mean tau 0.20, and 0.10 over all heads; "),
        (math.nan, ""),
    ],
)
def test_what_other_seeds_say_of_the_order(tau: float, meaning: str) -> None:
    one = Agreement(1, 1, torch.tensor([[-0.1, tau], [0.1, tau]]))
    nothing = Agreement(1, 1, torch.full((2, 2), math.nan))
    found = Stability(torch.arange(2), seeds=(one if tau == tau else nothing, nothing)).meaning
    end = "unrelated orders have about 0)" + ("." if tau > 0.5 else ": the order means little.")
    assert found == (meaning + end if meaning else "")


def test_regression_contributions_are_differences(runs: Path) -> None:
    opened = Run(runs / "number")
    found = explain(opened, str(NODE))
    whole = float(without(opened)[0])
    assert found.prediction.value == pytest.approx(whole, abs=1e-6)
    assert math.isnan(found.prediction.probability)
    for one in found.effects:
        assert one.contribution == pytest.approx(whole - float(without(opened, one.neighbor)[0]), abs=1e-6)
        assert one.without == pytest.approx(whole - one.contribution, abs=1e-6)


def test_a_node_without_neighbors(runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened = Run(runs / GOAT)
    named = opened.graph()
    named.data.edge_index = named.data.edge_index[:, named.data.edge_index[1] != NODE]
    monkeypatch.setattr(Run, "graph", lambda self, data_dir=None: named)
    found = explain(opened, str(NODE), others=[])
    assert found.effects == found.interactions == ()
    assert [one.neighbors for one in found.readings] == [(NODE,)] * len(found.readings)
    save_figure(found, tmp_path / "alone.png")
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_dictionary_uses_names(deep: tuple[Run, Explanation]) -> None:
    found = deep[1]
    table = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert table["node"] == str(NODE)
    assert table["prediction"] in ("0", "1")
    assert [one["neighbor"] for one in table["contributions"]] == [str(one.neighbor) for one in found.effects]
    assert table["orders"][0]["coefficients"] == list(found.readings[0].coefficients)
    assert {one["epoch"] for one in table["stability"]["epochs"]} == {0, 4}
    assert [one["seed"] for one in table["stability"]["seeds"]] == [1, 1]


def test_an_explanation_is_printed_in_one_line(runs: Path, deep: tuple[Run, Explanation]) -> None:
    _, found = deep
    value, probability, truth = found.prediction
    names = found.graph.classes
    expected = f"prediction={names[int(value)]!r}, probability={probability:.4g}, truth={names[int(truth)]!r}"
    assert repr(found) == f"Explanation(node='{NODE}', {expected}, neighbors={len(found.effects)})"
    number = explain(Run(runs / "number"), str(NODE))
    assert repr(number).startswith(f"Explanation(node='{NODE}', prediction={number.prediction.value:.4g}, truth=")
    assert len(repr(number)) < 120


@pytest.mark.parametrize("name", [GOAT, GCN, "number"])
def test_the_figure_is_a_picture(runs: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Run(runs / name)
    named = opened.graph()
    strange = named._replace(ids=tuple(f"$\\frac{{{node}$ <b>\n漢" for node in range(len(named.ids))))
    monkeypatch.setattr(Run, "graph", lambda self, data_dir=None: strange)
    save_figure(explain(opened, strange.ids[NODE]), tmp_path / "why.png")
    assert (tmp_path / "why.png").read_bytes()[:4] == b"\x89PNG"


def test_names_are_cut_to_one_line() -> None:
    assert short("a\tb\nc") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert short("x" * 30) == "x" * 23 + "…"


def test_runs_and_nodes_that_cannot_be_explained(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no node '60'"):
        explain(Run(runs / GCN), "60")
    run(tmp_path / "held", "goat", fixed_ordering=0, epochs=2)
    with pytest.raises(RunError, match="trained with fixed orders"):
        explain(Run(tmp_path / "held"), str(NODE))
