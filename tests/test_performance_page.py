"""The README and the pages that mention performance show the committed measurements."""

import functools
import json
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import agreement
import batches
import layer
import learned_order
import measure
import numpy as np
import power_law
import products
import pytest
import standing
import torch

from tests.pages import ROOT, check_numbers
from torch_goat.data.tables import leaks
from torch_goat.data.tables.columns import MOSTLY
from torch_goat.experiments import verdict
from torch_goat.experiments.search import own_starting_point
from torch_goat.experiments.training.threads import SMALL
from torch_goat.ops.ragged_rnn.triton import portions

RESULTS = ROOT / "benchmarks/results"
LAYERS = ["2026-11-19-cpu", "2026-11-19-h200", "2026-11-18-h200"]  # of layer.py, on the page on performance


def read(file: str) -> dict[str, Any]:
    return json.loads((RESULTS / file).read_text())


def row_of(file: str, **values: Any) -> dict[str, Any]:
    """The only row with these values."""
    (found,) = (row for row in read(file)["rows"] if values.items() <= row.items())
    return found


@pytest.mark.parametrize("folder", LAYERS)
def test_the_tables_of_the_layer(folder: str) -> None:
    result = read(f"{folder}/layer.json")
    assert (RESULTS / folder / "layer.md").read_text() == layer.markdown(result)
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert f"{{include}} ../benchmarks/results/{folder}/layer.md\n:start-line: 4" in page
    base = [row for row in result["rows"] if row["layer"] == layer.BASE]
    assert {row["ms_ratio"] for row in base if row["ms"] is not None} == {1.0}


def test_the_table_of_matrix_products() -> None:
    result, file = read("2026-11-19-cpu-1-thread/products.json"), "2026-11-19-cpu-1-thread/products.md"
    assert (RESULTS / file).read_text() == products.markdown(result["rows"], result["environment"])
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert f"{{include}} ../benchmarks/results/{file}\n:start-line: 4" in page


def test_a_table_has_the_base_in_its_unit_and_ratios_of_all_others() -> None:
    rows = [
        {"layer": name, "configuration": configuration, "ms": ms, "ms_ratio": ratio}
        for name, configuration, ms, ratio in [
            ("GATConv", "8x8", 2.0, 1.0),
            ("GATConv", "1x512", 123.456, 1.0),
            ("GOATConv", "8x8", 3.0, 1.5),
            ("GOATConv", "1x512", None, None),
        ]
    ]
    *_, base, ours = layer.table(rows, "ms")
    assert base == "| GATConv | 2.0 | 123.5 |"
    assert ours == "| GOATConv | 1.50 | - |"


def test_calls_that_are_compared_take_turns() -> None:
    order = []
    calls = {name: functools.partial(order.append, name) for name in "ab"}
    times = measure.interleaved(calls, torch.device("cpu"), budget=0.0)
    assert order == ["a", "b"] * 11  # one to warm up, ten rounds
    assert [len(own) for own in times.values()] == [10, 10]


def test_the_table_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(text) if line.startswith("| time on an H200"))
    _, *configurations = text[start].strip("| ").split(" | ")
    lines = [line.strip("| ").split(" | ") for line in text[start + 2 : start + 6]]
    assert tuple(configurations) == layer.CONFIGURATIONS
    measured = [row for folder in LAYERS if "h200" in folder for row in read(f"{folder}/layer.json")["rows"]]
    rows = {(row["graph"], row["configuration"], row["layer"]): row for row in measured if row["ms"] is not None}
    for name, *cells in lines:
        graph, cell = name.replace("`", "").split(", ")
        own = "GOATConv" if cell == "lstm" else f"GOATConv, {cell}"
        wanted = [rows.get((graph, configuration, own)) for configuration in configurations]
        assert cells == ["not run" if row is None else f"{row['ms_ratio']:.2f}" for row in wanted]


def test_the_page_on_performance() -> None:
    growth = {device: read(f"2026-11-15-{device}/growth.json")["edges"] for device in ("h200", "cpu")}
    times = {device: edges[-1]["ns_per_edge"] / edges[0]["ns_per_edge"] for device, edges in growth.items()}
    assert times["h200"] == pytest.approx(1, abs=0.02)  # "the same as at one million"
    arxiv, wide = "2026-11-15-h200-scale/scale-arxiv.json", "hidden 64 (8 heads of 8)"
    default, paper = (
        row_of(arxiv, network=f"{name}, GATConv", width=wide)["ms"] for name in ("GOATConv", "GOATConv.paper")
    )
    rows = read("2026-11-15-h200-scale/scale-growth.json")["rows"]
    per_edge = {row["heads"]: row["gigabytes"] * 1e9 / row["edges"] for row in rows}  # of the largest graph
    loading = read("2026-11-15-h200-scale/scale-minibatch.json")["rows"]
    waited = max(row["waited_for_loader"] for row in loading)
    narrow, wide = (
        [row["busy_by_profiler"] for row in loading if ("hidden 64" in row["network"]) is it] for it in (True, False)
    )
    assert all(0.4 < share < 0.6 for share in narrow)
    assert min(wide) > 0.8
    check_numbers(
        "docs/performance.md",
        [
            f"rises by a factor of {times['cpu']:.2f}",
            f"costs {default - paper:.1f} ms of {default:.1f} ms",
            f"takes {per_edge[8] / 1e3:.1f} kB with eight heads of width 16 and {per_edge[1]:.0f} bytes with one",
            f"about {141e3 / per_edge[8]:.0f} million edges (one head: {141e3 / per_edge[1]:.0f} million)",
            f"for at most {100 * waited:.1f} % of the time",
            f"computed in {['two', 'three'][portions.PORTIONS - 2]} parts",
            f"if they take {portions.LARGE >> 20} MB or more,",
            f"wider layers from {portions.LARGE_IF_WIDE >> 30} GB.",
        ],
    )


def test_what_the_page_says_of_epochs() -> None:
    assert all(row["times_step_and_evaluation"] <= 1.02 for row in read("2026-11-16-cpu-1-thread/epoch.json")["rows"])
    assert all(row["times_step_and_evaluation"] < 1 for row in read("2026-11-15-h200/epoch.json")["rows"])


@pytest.mark.parametrize(
    "file", ["2026-11-15-h200/epoch", "2026-11-16-cpu-1-thread/epoch", "2026-11-15-h200-scale/scale-arxiv"]
)
def test_included_tables_show_the_values(file: str) -> None:
    table = (RESULTS / f"{file}.md").read_text()
    for row in read(f"{file}.json")["rows"]:
        times = [f"{row['step_ms']:.2f}", f"{row['epoch_ms']:.2f}"] if "step_ms" in row else [f"{row['ms']:.4g}"]
        assert any(all(f"| {cell} |" in line for cell in times) for line in table.splitlines())


def test_the_page_on_mini_batches() -> None:
    seeds = [row for row in read("2026-11-15-cpu-1-thread/sampling.json")["seeds"] if row["way"] == "compiled"]
    arxiv, computers = (
        next(row for row in seeds if row["graph"] == graph and row["fanout"] == [100, 15])
        for graph in ("ogbn-arxiv", "Computers")
    )
    two = read("2026-11-15-cpu/sampling.json")
    gain = {row["graph"]: row["times"] for row in two["processes"] if row["processes"] == 2}
    assert all(row["waiting_percent"] < 1 for row in two["steps"])
    check_numbers(
        "docs/minibatches.md",
        [
            f"processes {round(arxiv['seeds_per_second'], -4):,.0f} input nodes per second",
            f"{arxiv['times']:.0f} times as many as a NumPy loop, and {computers['times']:.0f} times as many on",
            f"on {gain['ogbn-arxiv']:.2f} times as many nodes per second as one process on ogbn-arxiv",
            f"and on {gain['Computers']:.2f} times as many on Computers",
            "for less than 1 % of the time",
        ],
    )
    page = (ROOT / "docs/minibatches.md").read_text(encoding="utf-8")
    rows = read("2026-11-15-h200-scale/minibatch.json")["rows"]
    for full, mini in zip(rows[::2], rows[1::2], strict=True):
        cells = [f"{100 * mean(row['accuracy']):.2f} ± {100 * stdev(row['accuracy']):.2f}" for row in (full, mini)]
        points = [
            100 * (accuracy - full["accuracy"][full["splits"].index(split)])
            for split, accuracy in zip(mini["splits"], mini["accuracy"], strict=True)
        ]
        assert f"| {full['dataset']} | {' | '.join(cells)} | {mean(points):.2f} | {len(points)} |" in page


def test_the_page_on_tables() -> None:
    (tables,) = read("2026-11-18-cpu-1-thread/tables.json")["rows"]
    large, wide = read("2026-11-18-cpu/tables.json")["rows"]
    start, numbers = (own_starting_point(task, "goat") for task in ("classification", "regression"))
    gains: dict[str, dict[str, float]] = {}  # points by model and graph
    for row in read("2026-11-18-h200/defaults.json")["rows"]:
        old, new = (mean(run[f"test_{row['metric']}"] for run in row["settings"][name]) for name in ("old", "new"))
        gains.setdefault(row["model"], {})[row["graph"]] = 100 * (new - old)
    goat, gat, gcn = (mean(gains[model].values()) for model in ("goat", "gat", "gcn"))
    worse = [-gains["goat"][graph] for graph in ("cora", "disease-lp", "tolokers")]
    assert sorted(gains["goat"], key=gains["goat"].__getitem__)[:3] == ["tolokers", "disease-lp", "cora"]
    check_numbers(
        "docs/own-graph.md",
        [
            f"Graphs with at most {SMALL:,} edges",
            f"on {len(gains['goat'])} graphs of different kinds",
            f"rises by {goat:.1f} points for GOAT, {gat:.1f} for GAT and {gcn:.1f} for GCN",
            f"for GOAT by {worse[0]:.1f}, {worse[1]:.1f} and {worse[2]:.1f} points",
            "A million edges between 100,000 nodes with eleven columns",
            f"take {tables['seconds of a processor']:.1f} s of CPU time",
            "5 million edges between 500,000 nodes",
            f"take {large['seconds']:.0f} s and {large['peak GB of the process']:.1f} GB",
            f"or {wide['peak GB of the process']:.1f} GB with two edge features",
            f"at least {MOSTLY:.0%} of its cells are numbers".replace("%", " %"),
            f"the class of {1 - leaks.WRONG:.0%} of the nodes, and of {1 - leaks.BASELINE:.0%} of".replace("%", " %"),
            f"is at least {leaks.CORRELATION}",
            f"is at most about {2 * verdict.MARGIN} of R²",
            "with its 95 % interval",
            f"dropout {start.model.dropout}, a learning rate of {start.training.learning_rate} after",
            f"dropout is {numbers.model.dropout}, the learning rate {numbers.training.learning_rate}, and",
        ],
    )
    assert (wide["edges"], wide["nodes"], wide["edge columns"]) == (5_000_000, 500_000, 2)
    assert (tables["edges"], tables["nodes"]) == (1_000_000, 100_000)


def test_power_law_graphs_have_their_edges_and_hubs(tmp_path: Path) -> None:
    ptr, step = power_law.pointers(1000, 20_000)
    degree = np.diff(ptr)
    hubs = np.arange(250) * step % 1000  # the first quarter of the ranks
    assert len(set(hubs)) == 250
    assert degree[hubs].sum() == round(20_000 * 0.25**0.4)
    assert degree.max() == degree[0] == round(20_000 * 0.001**0.4)
    one, two = (power_law.generate(tmp_path / name, 1000, 20_000, 4) for name in ("one", "two"))
    assert np.array_equal(one.indices, two.indices)
    assert np.corrcoef(np.bincount(one.indices, minlength=1000), degree)[0, 1] > 0.98


def test_the_share_of_time_that_intervals_cover() -> None:
    assert batches.covered([(0, 1), (3, 4)]) == 0.5
    assert batches.covered([(2, 3), (0, 2), (1, 2)]) == 1.0


def order_table() -> list[str]:
    """What the page says about the recipe of the order tasks."""
    table = standing.read("order")

    def share(row: str, column: str, of: str = "accuracy") -> float:
        group = table.entries[row, column].group
        assert group is not None
        return group.summary("test", of).mean * (100 if of == "accuracy" else 1)

    def taus(column: str) -> list[float]:
        group = table.entries["goat-noise", column].group
        assert group is not None
        return [run.result.metrics["test"]["tau"] for run in group.runs]

    def p_value(column: str) -> str:
        best = table.entries["goat-noise", column].comparison
        assert best is not None
        assert best.other == "janossy"
        return f"(p = {best.p_value:.3f})"

    large, run, median, few = "alternations-20000", "run-20000", "median-20000", "alternations-8000"
    plain, learned, frozen = (share(row, large) for row in ("goat", "goat-noise", "goat-frozen"))
    found = [tau >= 0.9 for tau in taus(few)]
    scans = [share(row, large) for row in ("goat-mingru", "goat-minlstm")]
    assert min(share(row, large, "tau") for row in ("goat-mingru", "goat-minlstm")) >= 0.99
    rows = {row for row, column in table.entries if column == "median-8000"}
    assert max(rows, key=lambda row: share(row, "median-8000")) == "janossy"
    return [
        f"ten runs above has a tau of at least {math.floor(1000 * min(taus(large))) / 1000:.3f} with the key",
        f"reaches {learned:.1f} % with a learned order, {plain:.1f} % without",
        f"and {frozen:.1f} % with an order that is frozen",
        f"Janossy pooling, reaches {share('janossy', large):.1f} % {p_value(large)}",
        f"in {sum(found)} of {len(found)} runs (tau of at least 0.9), so the mean, {share('goat-noise', few):.1f} %",
        f"rises from {share('goat', run):.1f} % to {share('goat-noise', run):.1f} %; Janossy pooling reaches",
        f"{share('janossy', run):.1f} % {p_value(run)}. It stays",
        f"far below the given order ({share('goat-given', run):.1f} %), as in",
        f"rises from {share('goat', median):.1f} % to {share('goat-noise', median):.1f} %",
        f"the {share('janossy', median):.1f} % of Janossy pooling {p_value(median)}",
        f"even the given order reaches only {share('goat-given', 'median-8000'):.1f} %",
        "(tau of 0.99 or more)",
        f"stay at means of {scans[0]:.1f} and {scans[1]:.1f} %",
    ]


def test_the_figure_of_the_learned_order(tmp_path: Path) -> None:
    learned_order.figure(tmp_path / "figure.png", read("2026-11-18-h200/learned_order.json")["results"])
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_page_on_the_learned_order() -> None:
    page = (ROOT / "docs/learned-order.md").read_text(encoding="utf-8")
    measured = read("2026-11-18-h200/learned_order.json")
    table = [line for line in learned_order.markdown(measured["results"], {}).splitlines() if line.startswith("|")]
    assert "\n".join(table) in page
    by_row = {row: [one for one in measured["results"] if one["row"] == row] for row in learned_order.ROWS}
    found = [one for one in by_row["order_noise"] if one["tau"] >= 0.98]
    right = [one for one in by_row["two stages"] if one["tau"] >= 0.98]
    given = {one["task"]: [] for one in by_row["order given"]}
    for one in by_row["order given"]:
        given[one["task"]].append(one["accuracy"])
    shares = [one["accuracy"] / mean(given[one["task"]]) for one in right]
    runs = len(by_row["two stages"])

    for task, least in (
        ("alternations-20000", 0.97),
        ("median-20000", 0.97),
        ("run-20000", 0.95),
        ("alternations-8000", 0.85),
    ):
        reached = [share >= least for share in learned_order.shares(measured["results"], task, "two stages")]
        assert f"| {task} | at least {least} | {sum(reached)} of {len(reached)} |" in page

    check_numbers(
        "docs/learned-order.md",
        [
            f"Of {runs} runs, {len(found)} have a head that sorts by the key (tau of at least 0.98)",
            f"predicts the validation nodes best sorts by the key in {len(right)} of {runs} runs",
            f"({len(right)} of {runs} runs), a run reaches {min(shares):.2f} to {max(shares):.2f} of the given order's",
            "falling from 0.3 to 0.1 over 70 % of the epochs",
            *order_table(),
        ],
    )
    assert learned_order.NOISE == (0.3, 0.1)
    agreed = read("2026-11-18-cpu-1-thread/agreement.json")["rows"]
    assert "\n".join(agreement.markdown(agreed, {}).splitlines()[4:]) in page
    by_noise = {row["order_noise"]: row for row in agreed if row["dataset"] == "betweenness-100"}
    assert by_noise[True]["best"] < by_noise[False]["best"]
    assert by_noise[True]["mse"] < by_noise[False]["mse"]
