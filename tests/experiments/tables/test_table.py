import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import TINY, write
from tests.small_runs import result
from torch_goat.experiments import Result
from torch_goat.experiments.comparison import Comparison
from torch_goat.experiments.recipes import CellRun, RandomSearch, Recipe, Rung, plan, read_recipe
from torch_goat.experiments.tables import RecordedRun, ResultTable, tabulate, to_csv, to_latex, to_markdown
from torch_goat.experiments.tables.render import comparison_grid, notes, signed

MARKDOWN = """\
**A tiny table**

| Method | Effective size<br><sub>MSE</sub> | Top-2<br><sub>accuracy (%)</sub> |
|---|---:|---:|
| GCN | <ins>0.0200</ins> ± 0.0141<br><sub>paper 0.0135 ± 0.0067 (+0.0065)</sub> | \
**60.00** ± 7.07<br><sub>paper 57.35 ± 4.13 (+2.65)</sub> |
| GAT & Co\\_1 | **0.0100** ± 0.0071<br><sub>paper 0.0382 (−0.0282)</sub> | **60.00** ± 14.14 |
| GAT, ReLU | 0.5000 (1 of 2 runs) | – |

Mean ± sample standard deviation over the runs of a cell; below it the paper's number and our difference from it. \
Best bold and second best underlined, among the complete cells of a column; –: not run.

Runs: 9 on a CPU.

Not run for want of data: Effective size (effective-size-100), Top-2 (top2).

Difference from the best baseline of the column, and p-value of the two-sided Wilcoxon signed-rank test on the same \
graphs or splits:

| Method | Effective size<br><sub>MSE</sub> | Top-2<br><sub>accuracy (%)</sub> |
|---|---:|---:|
| GAT & Co\\_1 | −0.0100 from GCN<br><sub>p = 0.500</sub> | 0.00 from GCN<br><sub>p = 1.000</sub> |
"""

LATEX = r"""\begin{tabular}{lrr}
\toprule
Method & Effective size & Top-2 \\
 & {\footnotesize MSE} & {\footnotesize accuracy (\%)} \\
\midrule
GCN & \underline{0.0200} $\pm$ 0.0141 & \textbf{60.00} $\pm$ 7.07 \\
 & {\footnotesize paper 0.0135 $\pm$ 0.0067 (+0.0065)} & {\footnotesize paper 57.35 $\pm$ 4.13 (+2.65)} \\
\midrule
GAT \& Co\_1 & \textbf{0.0100} $\pm$ 0.0071 & \textbf{60.00} $\pm$ 14.14 \\
 & {\footnotesize paper 0.0382 ($-$0.0282)} &  \\
GAT, ReLU & 0.5000 (1 of 2 runs) & -- \\
\bottomrule
\end{tabular}
"""


SCORES = {
    ("gcn", "size"): {0: 0.01, 1: 0.03},
    ("gat", "size"): {0: 0.005, 1: 0.015},
    ("gat-relu", "size"): {0: 0.5},
    ("gcn", "pooling"): {0: 0.55, 1: 0.65},
    ("gat", "pooling"): {1: 0.70, 0: 0.50},
    ("gat-relu", "pooling"): {0: 0.4, 1: 0.5},
}


def table_of(
    recipe: Recipe, scores: Mapping[tuple[str, str], Mapping[int, float]], lacking: Iterable[str] = ()
) -> ResultTable:
    """The table of some test scores, by row and column and repetition."""
    runs = plan(recipe)
    done = []
    for run in runs:
        if run.repetition in (values := scores.get((run.row, run.column), {})):
            metric = "accuracy" if run.experiment.dataset in ("top2", "cora") else "mse"
            metrics = {"val": {metric: 0.5}, "test": {metric: values[run.repetition]}}
            done.append(RecordedRun(run, result(metrics)))
    return tabulate(recipe, runs, done, lacking)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return read_recipe(write(tmp_path))


def test_best_and_second_best_are_placed_and_equal_ones_share_a_place(recipe: Recipe) -> None:
    table = table_of(recipe, SCORES)
    places = {cell: entry.place for cell, entry in table.entries.items()}
    assert places == {
        ("gcn", "size"): 2, ("gat", "size"): 1, ("gat-relu", "size"): 0,  # one run is not complete
        ("gcn", "pooling"): 1, ("gat", "pooling"): 1, ("gat-relu", "pooling"): 2,
    }  # fmt: skip


def test_a_lone_cell_is_not_the_best(recipe: Recipe) -> None:
    scores = {("gcn", "size"): {0: 0.01, 1: 0.03}, ("gat", "size"): {0: float("nan"), 1: 0.1}}
    table = table_of(recipe, scores)
    assert {entry.place for entry in table.entries.values()} == {0}
    assert table.entries["gat", "size"].difference is None
    assert table.entries["gat", "size"].comparison is None


def test_a_cell_on_demand_waits_to_be_asked_for_and_not_for_data(tmp_path: Path) -> None:
    text = TINY + '\n[on_demand]\nrows = ["gat", "gat-relu"]\ncolumns = ["size"]\n'
    recipe = read_recipe(write(tmp_path, text))
    table = table_of(recipe, SCORES, lacking=["size", "pooling"])
    assert table.waiting == {("gat-relu", "size")}  # begun, and not complete
    assert not table.lacking
    table = table_of(recipe, {}, lacking=["size", "pooling"])
    assert table.waiting == {("gat", "size"), ("gat-relu", "size")}
    assert table.lacking == {"size", "pooling"}  # gcn is not on demand


def test_our_rows_are_compared_with_the_best_baseline(tmp_path: Path) -> None:
    text = TINY + '\n[rows.gin]\nlabel = "GIN"\nmodel = { name = "gin" }\n'
    recipe = read_recipe(write(tmp_path, text.replace("repetitions = 2", "repetitions = 6")))
    six = range(6)
    scores = {
        ("gcn", "size"): dict.fromkeys(six, 0.5),
        ("gin", "size"): {number: 0.1 + 0.01 * number for number in six},  # the smaller error
        ("gat", "size"): {number: 0.05 + 0.02 * number for number in six},
        ("gcn", "pooling"): dict.fromkeys(six, 0.7),  # the larger accuracy
        ("gin", "pooling"): dict.fromkeys(six, 0.6),
        ("gat", "pooling"): {number: 0.8 + 0.01 * number for number in six},
    }
    table = table_of(recipe, scores)

    def of(one: Comparison | None) -> tuple[str, float, float | None]:
        return one.other, one.difference, one.p_value

    # The differences are -0.05, -0.04, ..., 0: the last is left out, five of five are below. 2 of 2^5 are as extreme.
    assert of(table.entries["gat", "size"].comparison) == ("gin", pytest.approx(-0.025), pytest.approx(2 / 32))
    # 10, 11, ..., 15 percent more: six of six. 2 of 2^6.
    assert of(table.entries["gat", "pooling"].comparison) == ("gcn", pytest.approx(12.5), pytest.approx(2 / 64))
    assert table.entries["gcn", "pooling"].comparison is None
    assert table.entries["gat-relu", "pooling"].comparison is None  # it was not run


def test_a_part_keeps_places_and_tests_of_the_whole(recipe: Recipe) -> None:
    table = table_of(recipe, SCORES)
    part = table.part(["gat"], ["pooling"])
    assert list(part.labels) == ["gat"]
    assert list(part.headings) == ["pooling"]
    assert part.entries["gat", "pooling"] == table.entries["gat", "pooling"]
    assert part.entries["gat", "pooling"].comparison.other == "gcn"


def test_runs_of_one_split_are_tested_without_pairs(tmp_path: Path) -> None:
    text = TINY.replace('label = "Top-2", dataset = "top2"', 'label = "Cora", dataset = "cora"')
    recipe = read_recipe(write(tmp_path, text.replace("repetitions = 2", 'repetitions = 3\nreference = "study"')))
    column = {0: 0.5, 1: 0.6, 2: 0.7}
    scores = {("gcn", name): column for name in ("size", "pooling")}
    scores |= {("gat", name): {run: value + 0.05 for run, value in column.items()} for name in ("size", "pooling")}
    table = table_of(recipe, scores)
    assert [heading.paired for heading in table.headings.values()] == [True, False]
    p_values = [entry.comparison and entry.comparison.p_value for entry in table.entries.values()]
    # Three differences of one sign: 2 of 8. Ranks 2, 4 and 6: of 20 sums of three, those at least 1.5 from 10.5.
    assert sorted(filter(None, p_values)) == [pytest.approx(0.25), pytest.approx(0.7)]
    grid = comparison_grid(table)
    assert grid.title.endswith("same graphs or splits; of Cora, of the rank-sum test on runs that differ by their seed")
    assert "below it the study's number" in notes(table)[0]
    assert "study 57.35 ± 4.13" in to_markdown(table)


@pytest.fixture
def table(recipe: Recipe) -> ResultTable:
    scores = {cell: values for cell, values in SCORES.items() if cell != ("gat-relu", "pooling")}
    return table_of(recipe, scores, ["size", "pooling"])


def test_markdown_and_latex_by_hand(table: ResultTable) -> None:
    assert to_markdown(table) == MARKDOWN
    text = to_latex(table)
    assert LATEX in text
    assert text.startswith("% needs \\usepackage{booktabs}\n\\begin{table}\n")
    assert text.count(r"\begin{tabular}") == 2
    assert r"GAT \& Co\_1 & $-$0.0100 from GCN & 0.00 from GCN \\" in text


def test_csv_has_all_digits(table: ResultTable) -> None:
    records = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(records) == 3 * 2
    gat = next(one for one in records if one["row"] == "gat" and one["column"] == "size")
    assert gat["label"] == "GAT & Co_1"
    assert (gat["dataset"], gat["split"], gat["metric"]) == ("effective-size-100", "paper", "MSE")
    assert (gat["runs"], gat["planned"], gat["place"], gat["baseline"]) == ("2", "2", "1", "gcn")
    assert float(gat["mean"]) == pytest.approx(0.01, abs=1e-15)
    assert float(gat["std"]) == pytest.approx(0.00005**0.5, abs=1e-15)
    assert (float(gat["paper_mean"]), gat["paper_std"]) == (0.0382, "")
    assert float(gat["difference"]) == pytest.approx(-0.0282)
    assert float(gat["baseline_difference"]) == pytest.approx(-0.01)
    assert gat["values"] == "0:0.005 1:0.015"
    empty = records[-1]
    assert (empty["row"], empty["runs"], empty["mean"], empty["values"]) == ("gat-relu", "0", "", "")


def test_a_search_is_described(table: ResultTable) -> None:
    searched = replace(table, search=RandomSearch(trials=20))
    said = (
        "The settings of every cell are the best of 20 trials by the validation nodes of its first graph, split or seed"
    )
    assert f"{said}." in notes(searched)
    size, pooling = table.headings.values()
    searched = replace(searched, headings={"size": replace(size, rungs=(Rung(), Rung(3, 5))), "pooling": pooling})
    more = "the best of them were repeated on more before one was chosen (Effective size: 3 on 5)"
    assert f"{said}; {more}." in notes(searched)
    once = replace(table, search=RandomSearch(trials=20, column="pooling", first=10, repetitions=2))
    assert (
        "The settings of every row, the same in all columns, are the best of 20 trials by the validation nodes of "
        "pooling, graph, split and seed 10, 11."
    ) in notes(once)


def test_the_agreement_with_a_hidden_key_is_shown_where_all_runs_measured_it(recipe: Recipe) -> None:
    def measured(run: CellRun) -> Result:
        tau = {"tau": 0.5 + 0.25 * run.repetition} if run.row != "gcn" and run.column == "pooling" else {}
        metrics = {"accuracy": 0.75} if run.column == "pooling" else {"mse": 0.5}
        return result({"val": metrics, "test": metrics | tau})

    runs = plan(recipe)
    table = tabulate(recipe, runs, [RecordedRun(run, measured(run)) for run in runs])
    assert {cell for cell, entry in table.entries.items() if entry.tau is not None} == {
        ("gat", "pooling"), ("gat-relu", "pooling")
    }  # fmt: skip
    assert "<br><sub>tau 0.62</sub>" in to_markdown(table)  # the mean of 0.5 and 0.75, to even
    assert any(line.startswith("tau: ") for line in notes(table))
    records = {(one["row"], one["column"]): one["tau"] for one in csv.DictReader(io.StringIO(to_csv(table)))}
    assert records["gat", "pooling"] == "0.625"
    assert records["gcn", "pooling"] == ""
    assert not [note for note in notes(table) if "trials" in note]


def test_cells_that_nobody_has_asked_for_are_named(table: ResultTable) -> None:
    assert not [note for note in notes(table) if "--only" in note]
    waiting = replace(table, waiting={("gat", "size"), ("gat-relu", "size"), ("gat-relu", "pooling")})
    assert "Run when --only names their rows: Effective size: gat, gat-relu; Top-2: gat-relu." in notes(waiting)
    part = waiting.part(["gat-relu"], ["size", "pooling"])
    assert "Run when --only names their rows: Effective size, Top-2: gat-relu." in notes(part)


def test_signs() -> None:
    assert signed(1.26, 1) == "+1.3"
    assert signed(-1.26, 1) == "−1.3"
    assert signed(-0.04, 1) == "0.0"


def test_every_special_character_is_escaped(recipe: Recipe) -> None:
    """A row may begin with [ or *, which the end of the row before would take; two hyphens are no dash, a dash is."""
    labels = {"a": r"50% & $x_1$ #{a} ~ ^ \ <b> |", "b": "[1]", "c": "*--a---b-c –"}
    rows = {name: replace(recipe.rows["gcn"], label=label, cells={}) for name, label in labels.items()}
    table = tabulate(replace(recipe, rows=rows), [], [])
    lines = to_latex(table).splitlines()
    signs = r"50\% \& \$x\_1\$ \#\{a\} \textasciitilde{} \textasciicircum{} \textbackslash{} $<$b$>$ |"
    for label in (signs, "{[}1]", "{*}-{}-a-{}-{}-b-c --"):
        assert f"{label} & -- & -- \\\\" in lines
    assert r"50% & \$x\_1\$ \#{a} \~ ^ \\ \<b\> \|" in to_markdown(table)
