"""docs/information.md agrees with the recorded results."""

import hashlib
import importlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from torch_goat.data.datasets import NEIGHBORHOOD_TASKS
from torch_goat.experiments.information import decompose
from torch_goat.experiments.information.captured import MODELS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "information"
PAGE = (ROOT / "docs" / "information.md").read_text()
DIAL = [f"synergy-{percent}{graph}" for graph in ("", "-tree") for percent in (0, 50, 100)]


MEASURED = json.loads((RESULTS / "information.json").read_text())


def share(row: dict[str, Any], part: str) -> float:
    return row[part]["value"] / row["total"]["value"]


def test_claims_about_the_graphs() -> None:
    rows = json.loads((RESULTS / "neighborhoods.json").read_text())["rows"]
    for row in rows:
        parts = [*row["unique"], row["redundancy"], row["synergy"]]
        assert sum(part["value"] for part in parts) == pytest.approx(row["total"]["value"])
    found = {(row["dataset"], row["groups"]): row for row in rows}
    papers = [found[name, "random"] for name in ("cora-content", "citeseer", "computers")]
    assert all(share(row, "redundancy") > 0.5 for row in papers)
    assert all(share(found["top2", "random"], "synergy") > share(row, "synergy") > 0.2 for row in papers)
    for groups in ("features", "random"):
        assert found["betweenness-100", groups]["total"]["p_value"] > 0.05


def seeds(dataset: str, model: str, key: str) -> list[float]:
    (found,) = (row[key] for row in MEASURED["rows"] if (row["dataset"], row["model"]) == (dataset, model))
    return list(found)


def captured(dataset: str, model: str, key: str = "bits") -> float:
    return mean(seeds(dataset, model, key))


def test_every_model_has_every_seed() -> None:
    assert MEASURED["seeds"] == list(range(10))
    assert len(MEASURED["rows"]) == len(MODELS) * len(MEASURED["available"])
    for row in MEASURED["rows"]:
        assert row["seeds"] == MEASURED["seeds"]
        assert len(row["accuracy"]) == len(row["bits"]) == 10
    assert all(one["parameters"] <= MEASURED["budget"] for one in MEASURED["settings"].values())
    for name, bits in MEASURED["available"].items():
        assert bits == pytest.approx(decompose(NEIGHBORHOOD_TASKS[name].distribution()).total)


def test_claims_about_aggregators() -> None:
    for graph in ("", "-tree"):
        assert all(captured(f"synergy-0{graph}", model) > 0.95 for model in MODELS)
        assert captured(f"synergy-100{graph}", "sage-max", "accuracy") < 0.625 + 0.05  # sampling error of 600 nodes
    for dataset in ("xor", "xor-3", "synergy-100"):
        assert all(captured(dataset, model) > 0.5 for model in ("gin", "gcn", "sage-mean"))
    assert all(captured(dataset, "sage-max") > 0.95 for dataset in ("xor", "xor-3"))


def test_claims_about_attention() -> None:
    assert set(sorted(MODELS, key=lambda model: captured("xor", model))[:2]) == {"gat", "gatv2"}
    for model in ("gat", "gatv2"):
        assert max(seeds("xor", model, "accuracy")) > 0.95
        found = seeds("synergy-100", model, "bits")
        assert max(found) > 0.6
        assert min(found) < 0.4


def test_claims_about_goat() -> None:
    rnns = [f"goat-{rnn}" for rnn in ("lstm", "gru", "rnn")]
    assert all(captured(dataset, model) > 0.5 for dataset in ("xor", "xor-3", "synergy-100") for model in rnns)
    assert all(captured("synergy-100", model) < captured("synergy-100", "gcn") for model in rnns)


def best_accuracy(dataset: str, seen: Callable[[tuple[int, ...]], Any]) -> float:
    """The best accuracy given the rule and a function of the values of the informative neighbours."""
    chance: dict[Any, dict[int, float]] = {}
    for outcome in NEIGHBORHOOD_TASKS[dataset].outcomes():
        labels = chance.setdefault((outcome.rule, seen(outcome.values)), {})
        labels[outcome.label] = labels.get(outcome.label, 0.0) + outcome.probability
    return sum(max(labels.values()) for labels in chance.values())


def test_limits_of_sums_and_maxima() -> None:
    """The first neighbour is marked, the others are indistinguishable."""
    for dataset in DIAL:
        assert best_accuracy(dataset, lambda values: (values[0], sum(values[1:]))) == pytest.approx(1)
    for dataset, best in (("xor", 1), ("xor-3", 1), ("synergy-100", 0.625), ("synergy-50", 0.8125)):
        assert best_accuracy(dataset, lambda values: (values[0], frozenset(values[1:]))) == pytest.approx(best)
    assert "at most 62.5 %" in PAGE


@pytest.mark.parametrize(
    ("name", "figures"), [("information", ["dial", "parity"]), ("neighborhoods", ["neighborhoods"])]
)
def test_tables_and_figures_are_drawn_from_the_results(name: str, figures: list[str], tmp_path: Path) -> None:
    shutil.copy(RESULTS / f"{name}.json", tmp_path)
    importlib.import_module(name).present(tmp_path, tmp_path)
    assert (tmp_path / f"{name}.md").read_text() == (RESULTS / f"{name}.md").read_text()
    assert f"{{include}} ../results/information/{name}.md" in PAGE
    digest = hashlib.sha256((RESULTS / f"{name}.json").read_bytes()).hexdigest()
    for figure in figures:
        for folder in (tmp_path, ROOT / "docs" / "images"):
            assert digest.encode() in (folder / f"information-{figure}.png").read_bytes()
        assert f"images/information-{figure}.png" in PAGE


def test_the_search_and_the_examples_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    points = len(MEASURED["search"]["layers"]) * len(MEASURED["search"]["learning_rates"])
    assert f"the same {points} points" in PAGE
    assert f"{MEASURED['budget']} parameters" in PAGE
    first, second = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(first, {})
    out = capsys.readouterr().out
    assert "synergy            1.000 bit" in out
    assert out.endswith("\n0.0\n")
    compile(second, "page", "exec")  # its dataset may not be downloaded
