"""The page on training states what the committed results show."""

import json
from collections.abc import Iterator
from statistics import mean

from tests.pages import ROOT, check_numbers

RESULTS = ROOT / "results/training"
ROWS = json.loads((RESULTS / "remedies.json").read_text())
MEANS = {(row["task"], row["variant"]): mean(row["values"]) for row in ROWS if row["values"]}
CITATIONS = ("cora-content", "citeseer")
EXACT = "the paper's equations"


def gain(task: str, variant: str, over: str) -> float:
    """The difference of two variants in percentage points."""
    return 100 * (MEANS[task, variant] - MEANS[task, over])


def test_the_table_shows_the_values() -> None:
    table = (RESULTS / "remedies.md").read_text().splitlines()
    for (task, variant), value in MEANS.items():
        shown = f"{value:.4f}" if task.startswith("effective") else f"{100 * value:.1f}"
        assert any(line.startswith(f"| {variant} |") and f" {shown} " in line for line in table)
    assert {len(row["values"]) for row in ROWS} == {5}


def claims() -> Iterator[str]:
    more = ", scaled input, more decay"
    yield "a weight decay of 0.01"
    cora, citeseer = (gain(task, f"default{more}", "default") for task in CITATIONS)
    yield f"the default gains {cora:.1f} points on Cora and {citeseer:.1f} on CiteSeer"
    yield f"GCN loses {-gain('citeseer', f'gcn{more}', 'gcn'):.1f} on CiteSeer"
    alone = sorted(100 * MEANS["cora-content", f"{name}, more decay"] for name in ("default", "gcn", "gat"))
    yield f"on Cora all three models drop to {alone[0]:.0f} to {alone[-1]:.0f} %"
    yield "coefficient dropout of 0.6"
    goat, gat = (
        [100 * MEANS[task, f"{name}{more}"] for task in CITATIONS]
        for name in ("default, size, dropout 0.6", "gat, dropout 0.6")
    )
    yield "bring GOAT to {:.1f} % on Cora and {:.1f} % on CiteSeer".format(*goat)
    yield "GAT reaches {:.1f} % and {:.1f} % with the last three".format(*gat)


def test_what_the_page_says_of_accuracy() -> None:
    check_numbers("docs/training.md", claims())
    for task in (*CITATIONS, "computers", "cs"):
        assert gain(task, "default, two GOAT layers", "two GOAT layers") > 15
    for task in (*CITATIONS, "computers", "cs", "top2"):
        assert gain(task, "orthogonal weights", EXACT) > -1
        assert gain(task, "default", EXACT) > -0.1
    assert gain("cs", "default, residual", "default") > 1.5
    assert gain("computers", "default, residual", "default") > 0.5
    assert gain("cora-content", "scaled by size", EXACT) > 1
    assert gain("citeseer", "scaled by size", EXACT) < -1
    for task in CITATIONS:
        assert gain(task, "normalised states", EXACT) > 0
        assert gain(task, "together without state_norm", "together") > 1
        for name in ("gcn", "gat"):
            assert gain(task, f"{name}, scaled input, more decay", name) < 1
    assert gain("top2", "warm-up", EXACT) > 10
    ranked = {
        task: sorted((name for of, name in MEANS if of == task), key=lambda name: -MEANS[task, name])
        for task, _ in MEANS
    }
    assert ranked["citeseer"][0].startswith("gcn")
    assert ranked["top2"][:2] == ["sage-max", "gat"]


def test_what_the_page_says_of_effective_size() -> None:
    error = {variant: value for (task, variant), value in MEANS.items() if task == "effective-size-100"}
    assert error["default"] > 0.95 * error["gat"]
    assert error["default, two GOAT layers"] < error["default"] / 10
    assert error["default, two GOAT layers"] < error["default, residual, two GOAT layers"] / 5
    assert error["default, residual, two GOAT layers"] < error["together, two GOAT layers"] / 2
