"""The pages on results say nothing that the committed runs do not bear out."""

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import standing
from standing import RESULTS, recipe_of

from torch_goat.experiments.recipes import finals, plan, read_recipe, trials
from torch_goat.experiments.tables import Ledger, ResultTable

ROOT = Path(__file__).parents[1]


@cache
def read(table: str) -> ResultTable:
    return standing.read(table)


@cache
def lines(table: str) -> dict[str, Any]:
    """The results by their folders."""
    entries = map(json.loads, (RESULTS / f"{table}.jsonl").read_text(encoding="utf-8").splitlines())
    return {entry["folder"]: entry["result"] for entry in entries}


def text(page: str) -> str:
    """A page without its line breaks."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def values(
    table: str, row: str, column: str, split: str = "test", folder: str = "{column}/{row}/{number}"
) -> list[float]:
    """The metric of a cell's runs, or of others in folders of this form, accuracies in percent."""
    folders = [folder.format(row=row, column=column, number=number) for number in range(10)]
    metrics = [lines(table)[name]["metrics"][split] for name in folders if name in lines(table)]
    return [one["mse"] if "mse" in one else round(100 * one["accuracy"], 6) for one in metrics]


def average(table: str, row: str, column: str) -> float:
    return fmean(values(table, row, column))


def test_what_the_page_says_of_baselines() -> None:
    page = text("docs/results.md")
    assert f"PNA has {average('table1', 'pna', 'top2'):.2f} % on Top-2" in page
    assert f"GCN on Wisconsin is right on {average('heterophilous', 'gcn', 'wisconsin'):.2f} %" in page
    assert 8 < 0.0007 / average("table1", "gin", "effective-size-1000") < 13
    assert "GIN's error on effective size with 1000 nodes is a tenth of the paper's" in page


def test_what_the_page_says_of_top2() -> None:
    page, card = text("docs/results.md"), text("docs/model-card.md")
    ours, theirs = values("table1", "goat-lstm", "top2"), values("table1", "pna", "top2")
    said = f"GOAT has {min(ours):.1f} to {max(ours):.1f} % on the ten graphs"
    assert f"{said}, PNA {min(theirs):.1f} to {max(theirs):.1f} %" in page
    assert f"GOAT is right on {min(ours):.1f} to {max(ours):.1f} % of the nodes" in card
    assert max(average("table1", row, "top2") for row in ("gcn", "sage-mean", "gin")) < 70  # the model card's
    assert min(average("table1", row, "top2") for row in ("gat", "sage-max", "sage-lstm", "pna")) >= 95


def test_what_the_page_says_of_one_head() -> None:
    recipe = replace(read_recipe("table1"), search=recipe_of("table1").search)
    ledger, tried = Ledger(RESULTS / "table1"), trials(recipe, ["goat-lstm"], ["top2"])
    results = ledger.results(tried)
    last = finals(recipe, tried, results)
    results |= ledger.results(last)
    lowest: dict[tuple[int, int], float] = {}  # by heads and number
    for trial in [one for one in (*tried, *last) if one.number in {final.number for final in last}]:
        key = trial.experiment.model.heads, trial.number
        lowest[key] = min(lowest.get(key, 1.0), results[trial.folder].metrics["val"]["accuracy"])
    failed = {heads: [value < 0.8 for (number, _), value in lowest.items() if number == heads] for heads in (1, 4)}
    assert (len(failed[1]), sum(failed[1])) == (7, 6)
    assert (len(failed[4]), sum(failed[4])) == (3, 0)


def test_what_the_page_says_of_betweenness() -> None:
    page, table = text("docs/results.md"), read("table1")
    said = []
    for column in ("betweenness-100", "betweenness-1000"):
        mine = table.entries["goat-lstm", column]
        assert mine.mean == min(table.entries[row, column].mean for row in table.labels)
        assert mine.comparison is not None
        assert mine.comparison.other == "pna"
        said.append((f"{mine.mean:.4f}", f"p = {mine.comparison.p_value:.3f}"))
    (small, small_p), (large, large_p) = said
    assert f"{small} with 100 nodes ({small_p} against PNA) and {large} with 1000 ({large_p})" in page
    for row in ("pna", "sage-lstm"):  # the model card's "a third more"
        more = average("table1", row, "betweenness-1000") / average("table1", "goat-lstm", "betweenness-1000")
        assert 1.25 < more < 1.42


def test_what_the_page_says_of_effective_size() -> None:
    table = read("table1")
    shown = {row: f"{average('table1', row, 'effective-size-100'):.4f}" for row in table.labels}
    assert min(shown.values()) == "0.0013"
    assert {row for row in shown if shown[row] == "0.0013"} == {"sage-lstm", "gin", "goat-paper", "goat-lstm"}
    shown = {row: f"{average('table1', row, 'effective-size-1000'):.5f}" for row in table.labels}
    best = {row: value for row, value in shown.items() if value in ("0.00006", "0.00007")}
    assert set(best) == {"gin", "pna", "goat-paper", "goat-lstm"}
    assert min(shown.values()) == "0.00006"


def test_what_the_page_says_of_degrees() -> None:
    page = text("docs/results.md")
    rows = json.loads((RESULTS / "structure/degrees.json").read_text())
    error = {(row["task"], row["known"]): fmean(row["values"]) for row in rows}
    degree = [error[task, "its degree"] for task in ("effective-size-100", "effective-size-1000")]
    assert f"has {degree[0]:.4f} and {degree[1]:.5f}, and no model is below that" in page
    for told, column in zip(degree, ("effective-size-100", "effective-size-1000"), strict=True):
        assert told < min(average("table1", row, column) for row in read("table1").labels)
    targets = [goal.target for goal in standing.GOALS if goal.column in ("effective-size-100", "effective-size-1000")]
    assert all(target < told for target, told in zip(targets, degree, strict=True))
    ties = [
        error[task, "its degree and the ties among its neighbours"]
        for task in ("effective-size-100", "effective-size-1000")
    ]
    assert max(ties) < 1e-12  # they determine the target
    for column in ("betweenness-100", "betweenness-1000"):
        around, own = error[column, "its degree and those of its neighbours"], error[column, "its degree"]
        assert around < average("table1", "goat-lstm", column) < own


def test_what_the_pages_say_of_constants_and_counts() -> None:
    rows = json.loads((RESULTS / "structure/degrees.json").read_text())
    constant = {row["task"]: fmean(row["values"]) for row in rows if row["known"] == "nothing"}
    for column in ("betweenness-1000", "effective-size-1000"):
        for row in ("gat", "sage-mean"):
            assert average("table1", row, column) == pytest.approx(constant[column], rel=0.05)
        ours = max(average("table1", row, column) for row in ("goat-lstm", "goat-paper"))
        assert 30 * ours < min(average("table1", row, column) for row in ("gat", "sage-max"))  # the model card's


def test_which_lead_is_more_than_chance() -> None:
    p_values, leads = {}, set()
    for goal in standing.GOALS:
        table = read(goal.table)
        comparison, sign = table.entries[goal.row, goal.column].comparison, table.headings[goal.column].sign
        if comparison and comparison.p_value is not None:
            p_values[goal] = comparison.p_value
            leads |= {goal} if sign * comparison.difference > 0 else set()
    sure = [goal for goal in standing.GOALS if p_values.get(goal, 1) < 0.05]
    ahead = [(goal.table, goal.column) for goal in sure if goal in leads]
    assert ahead == [("table1", "betweenness-1000"), ("tuned", "physics")]
    behind = [("table2", "citeseer"), ("table2", "physics"), *(("tuned", name) for name in ("cora", "computers", "cs"))]
    assert [(goal.table, goal.column) for goal in sure if goal not in leads] == behind
    said = "two leads of GOAT's are below p = 0.05 (betweenness with 1000 nodes; Physics, tuned) and five of the best"
    assert f"Of {len(p_values)} comparisons, {said}" in text("README.md")


def test_what_the_page_says_of_large_graphs() -> None:
    table = read("table2")
    for column in ("computers", "photo", "cs", "cora"):
        comparison = table.entries["goat-lstm", column].comparison
        assert comparison is not None
        assert comparison.difference > 0
        assert comparison.p_value is not None
        assert comparison.p_value > 0.28
    behind = table.entries["goat-lstm", "physics"].comparison
    assert behind is not None
    said = f"GCN is ahead by {-behind.difference:.2f} points (p = {behind.p_value:.3f}); GOAT is next."
    assert said in text("docs/results.md")
    assert behind.other == "gcn"
    means = {row: table.entries[row, "physics"].mean for row in ("mlp", "sage-mean", "gat", "goat-lstm")}
    assert max(means, key=lambda row: means[row]) == "goat-lstm"
    exact, default = (table.entries[row, "photo"] for row in ("goat-paper", "goat-lstm"))
    assert default.published is not None
    assert f"{exact.mean:.2f} % where the paper has {default.published.text.split(' ')[0]} %" in text("docs/results.md")
    assert f"GOAT has {default.mean - exact.mean:.1f} points more" in text("docs/results.md")
    (exact_model, _), (model, _) = (recipe_of("table2").options(row, "photo") for row in ("goat-paper", "goat-lstm"))
    assert (exact_model.last, exact_model.norm, exact_model.residual) == ("goat", "none", False)
    assert (model.norm, model.residual) == ("batch", True)
    chosen = {column: recipe_of("table2").options("goat-lstm", column)[0].last for column in table.headings}
    assert {column for column, last in chosen.items() if last == "goat"} == {"computers", "photo", "cs"}  # the card's
    for column in ("computers", "photo", "cs", "physics"):  # what the pages say is not run
        done = {row for row in table.baselines if table.entries[row, column].complete}
        assert table.baselines.keys() - done == {"sage-lstm", "gin", "pna"}


def test_what_the_page_says_of_the_graph_of_arxiv() -> None:
    table = read("arxiv-structure")
    means = {row: f"{table.entries[row, 'arxiv-structure'].mean:.2f}" for row in table.labels}
    lead = table.entries["goat-lstm", "arxiv-structure"].comparison
    assert lead is not None
    assert lead.other == "gat"
    assert lead.difference > 0
    said = f"is right on {means['goat-lstm']} % of the test nodes, GAT on {means['gat']} % (p = {lead.p_value:.3f})"
    others = f"GraphSAGE and GCN on {means['sage-mean']} and {means['gcn']} %"
    assert f"{said}, {others}, a network without edges on {means['mlp']} %" in text("docs/results.md")
    recipe = recipe_of("arxiv-structure")
    runs = plan(recipe)
    results = Ledger(RESULTS / "arxiv-structure").results(runs)
    assert max(result.epochs for result in results.values()) == 300
    late = Counter(run.row for run in runs if results[run.folder].stopped == "epochs")
    assert late.keys() == table.labels.keys() - {"mlp"}
    assert min(late.values()) >= 3  # of five runs
    assert recipe.options("goat-lstm", "arxiv-structure")[0].max_neighbors == 100


def test_what_the_page_says_of_cora_and_citeseer() -> None:
    page = text("docs/results.md")
    for row, settings, form in (
        ("gcn", (13, 9), "{} % of the 300 validation nodes and {} % of the test nodes; the next best on {} % and {} %"),
        ("gat", (2, 3), "({} % and {} %, against {} % and {} %)"),
    ):
        means = [
            fmean(values("table2", row, "cora", split, f"search/{{column}}/{{row}}/{number}/{{number}}"))
            for number in settings
            for split in ("val", "test")
        ]
        assert form.format(*(f"{mean:.1f}" for mean in means)) in page
        assert 0 < means[0] - means[2] < 100 / 300  # less than one node
    heads = [average("heads", row, "cora") for row in read("heads").labels]
    assert f"has {min(heads):.1f} to {max(heads):.1f} % with one to eight heads (the table on heads)" in page
    assert f"and {average('table2', 'goat-lstm', 'cora'):.1f} % after its search" in page
    means = {row: average("table2", row, "citeseer") for row in read("table2").labels}
    assert sorted(means, key=lambda row: -means[row])[:3] == ["gcn", "gat", "sage-mean"]
    best = max(value for row, value in means.items() if row.startswith("goat"))
    assert f"the best GOAT is {means['gcn'] - best:.1f} points behind" in page


def test_what_the_page_says_of_trees() -> None:
    table = read("disease")
    exact, default = (table.entries[row, "disease-sim"].comparison for row in ("goat-paper", "goat-lstm"))
    assert exact is not None
    assert default is not None
    assert {exact.other, default.other} == {"gat"}
    said = f"the exact one {exact.difference:.1f} and the default one {default.difference:.1f} points above GAT"
    page = text("docs/results.md")
    assert f"{said} (p = {exact.p_value:.3f} and {default.p_value:.3f})" in page
    larger = table.entries["goat-lstm", "disease-lp"].comparison
    assert larger is not None
    assert larger.other == "sage-lstm"
    others = [average("disease", row, "disease-lp") for row in table.labels if row not in ("sage-lstm", "goat-lstm")]
    lead = average("disease", "goat-lstm", "disease-lp") - max(others)
    said = f"GraphSAGE-LSTM is {-larger.difference:.1f} points ahead of GOAT (p = {larger.p_value:.3f})"
    assert f"{said}, which is {lead:.1f} points ahead of the next" in page


def test_what_the_page_says_of_the_tuned_protocol() -> None:
    page, table = text("docs/results.md"), read("tuned")
    gaps = {cell: entry.difference for cell, entry in table.entries.items() if entry.difference is not None}
    assert gaps.keys() == {(row, column) for row in table.baselines for column in table.headings}
    large = min(gap for (_, column), gap in gaps.items() if column not in ("cora", "citeseer"))
    assert f"within {-large:.1f} points of what its authors publish or above it" in page
    small = {cell: -gap for cell, gap in gaps.items() if cell[1] in ("cora", "citeseer")}
    least, most = min(small, key=lambda cell: small[cell]), max(small, key=lambda cell: small[cell])
    assert (least, most) == (("gcn", "cora"), ("gat", "citeseer"))
    assert f"by {small[least]:.1f} points (GCN on Cora) to {small[most]:.1f} (GAT on CiteSeer)" in page
    best = [
        max(found.mean for row in table.baselines if (found := table.entries[row, column].published))
        for column in ("photo", "physics")
    ]
    assert f"below the best that is published there, {best[0]:.2f} and {best[1]:.2f} %" in page
    assert all(table.entries["goat", name].mean < known for name, known in zip(("photo", "physics"), best, strict=True))
    found = {column: table.entries["goat", column].comparison for column in table.headings}
    compared = {column: comparison for column, comparison in found.items() if comparison is not None}
    assert compared.keys() == found.keys()
    ranks = {
        column: sorted(table.labels, key=lambda row: -table.entries[row, column].mean).index("goat")
        for column in compared
    }
    assert (ranks["computers"], ranks["cs"]) == (1, 3)
    assert [column for column, rank in ranks.items() if rank == 0] == ["photo", "physics"]
    assert "highest mean on Photo and Physics, and not on the other four" in text("docs/model-card.md")
    leads = [f"on {name} (p = {compared[name.lower()].p_value:.3f})" for name in ("Photo", "Physics")]
    assert f"the highest mean {' and '.join(leads)}" in page
    computers, cs = compared["computers"], compared["cs"]
    assert computers.other == "gat"
    said = f"It comes after GAT on Computers (p = {computers.p_value:.3f}) and last on CS, {-cs.difference:.1f} points"
    assert f"{said} behind the first (p = {cs.p_value:.3f})" in page
    cora, citeseer = compared["cora"], compared["citeseer"]
    assert cora.other == citeseer.other == "gcn"
    said = f"On CiteSeer it is {-citeseer.difference:.1f} points behind GCN (p = {citeseer.p_value:.3f})"
    assert cora.p_value is not None
    assert cora.p_value < 0.001
    assert f"{said}, on Cora {-cora.difference:.1f} (p < 0.001)" in page
    runs = [run for run in plan(recipe_of("tuned")) if (run.row, run.column) == ("goat", "computers")]
    results = Ledger(RESULTS / "tuned").results(runs).values()
    assert (len(runs), sum(result.stopped == "epochs" for result in results)) == (5, 4)
    for column in ("computers", "photo"):  # the model card's
        assert recipe_of("tuned").options("goat", column)[0].heads == 1


def test_what_the_page_says_of_goats_first_trial() -> None:
    def of(number: int, split: str) -> list[float]:
        return values("tuned", "goat", "citeseer", split, f"search/{{column}}/{{row}}/{number}/{{number}}")

    repeated = {number: fmean(of(number, "val")) for number in range(20) if len(of(number, "val")) == 3}
    first, drawn, *_ = sorted(repeated, key=lambda number: -repeated[number])
    assert first == 0
    said = f"it has {fmean(of(first, 'test')):.1f} % with them; with the best of the 19 that were drawn, "
    assert f"{said}{fmean(of(drawn, 'test')):.1f} %" in text("docs/results.md")
    assert recipe_of("tuned").options("goat", "citeseer") == read_recipe("tuned").options("goat", "citeseer")


def test_what_the_page_says_of_ten_draws() -> None:
    page, table = text("docs/results.md"), read("draws")
    ours = " and ".join(f"{average('draws', 'gcn', column):.2f}" for column in table.headings)
    first = " and ".join(f"{values('draws', 'gcn', column)[0]:.1f}" for column in table.headings)
    assert f"our GCN has {ours} %, though {first} % on the first" in page
    found = [table.entries[row, column].summary for row in table.labels for column in table.headings]
    spreads = [summary.std for summary in found if summary and summary.std]
    assert f"standard deviation is {min(spreads):.1f} to {max(spreads):.1f} points" in page
    cora, citeseer = (table.entries["goat", column].comparison for column in table.headings)
    assert cora is not None
    assert citeseer is not None
    said = f"GOAT is {-cora.difference:.1f} and {-citeseer.difference:.1f} points behind the best"
    assert f"{said} (p = {cora.p_value:.3f} and {citeseer.p_value:.3f})" in page


def test_what_the_page_says_of_janossy_pooling() -> None:
    table = read("janossy")
    cora, citeseer = (table.entries["goat-lstm", column].comparison for column in ("cora", "citeseer"))
    assert cora is not None
    assert citeseer is not None
    said = f"is {cora.difference:.1f} points behind GOAT on Cora and {citeseer.difference:.1f} on CiteSeer"
    assert f"{said} (p < 0.001 on both)" in text("docs/results.md")
    assert all(found.p_value is not None and found.p_value < 0.001 for found in (cora, citeseer))


def test_what_the_page_says_of_heads_attention_and_fixed_orderings() -> None:
    page = text("docs/results.md")
    heads, attention = read("heads"), read("gatv2")
    cora, citeseer = (heads.entries["goat-4-heads", column].comparison for column in ("cora", "citeseer"))
    assert cora is not None
    assert citeseer is not None
    assert f"by {cora.difference:.1f} points on Cora and {citeseer.difference:.1f} on CiteSeer" in page
    assert f"(p < 0.001 and p = {citeseer.p_value:.3f})" in page
    assert cora.p_value is not None
    assert cora.p_value < 0.001
    for column in attention.headings:
        comparison = attention.entries["goat-gatv2", column].comparison
        assert comparison is None or comparison.p_value is None or (comparison.p_value < 0.05) == (column == "top2")
    for column in ("betweenness-1000", "effective-size-1000"):
        assert all(average("gatv2", row, column) > 0.97 * average("table1", "gat", column) for row in attention.labels)
    fixed, own = (average("fixed-orderings", row, "cora") for row in ("goat-fixed-0", "goat"))
    assert f"do as well as GOAT's own: {fixed:.2f} and {own:.2f} %, three runs each" in page


def test_what_the_page_says_of_heterophilous_graphs() -> None:
    page, columns = text("docs/results.md"), ("cornell", "texas", "wisconsin")
    exact = [average("heterophilous", "goat-paper", column) for column in columns]
    assert f"has {min(exact):.0f} to {max(exact):.0f} %" in page
    table, recipe = read("heterophilous"), recipe_of("heterophilous")
    p_values = []
    for column in columns:
        comparison = table.entries["goat", column].comparison
        assert comparison is not None
        assert comparison.other.startswith("sage")
        assert comparison.difference < 0
        p_values.append(comparison.p_value)
        model, _ = recipe.options("goat", column)
        assert (model.add_self_loops, model.residual) == (False, True)
        assert average("heterophilous", "mlp", column) > average("heterophilous", "goat-paper", column) + 15
    assert "(p = {:.3f}, {:.3f} and {:.3f})".format(*p_values) in page
