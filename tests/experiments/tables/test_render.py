import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import write
from tests.experiments.tables.test_table import SCORES, table_of
from torch_goat.experiments.recipes import RandomSearch, read_recipe
from torch_goat.experiments.tables import ResultTable, tabulate, to_csv, to_latex, to_markdown
from torch_goat.experiments.tables.render import notes, signed

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


@pytest.fixture
def table(tmp_path: Path) -> ResultTable:
    recipe = read_recipe(write(tmp_path))
    scores = {cell: values for cell, values in SCORES.items() if cell != ("gat-relu", "pooling")}
    return table_of(recipe, scores, ["size", "pooling"])


def test_markdown_by_hand(table: ResultTable) -> None:
    assert to_markdown(table) == MARKDOWN


def test_latex_by_hand(table: ResultTable) -> None:
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
    searched = replace(searched, headings={"size": replace(size, finals=5, finalists=3), "pooling": pooling})
    more = "the best of them were repeated on more before one was chosen (Effective size: 3 on 5)"
    assert f"{said}; {more}." in notes(searched)
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


def test_every_special_character_is_escaped(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, f"title = 'T'\n{_BODY}"))
    table = table_of(recipe, {})
    assert r"50\% \& \$x\_1\$ \#\{a\} \textasciitilde{} \textasciicircum{} \textbackslash{} $<$b$>$ |" in to_latex(
        table
    )
    assert r"50% & \$x\_1\$ \#{a} \~ ^ \\ \<b\> \|" in to_markdown(table)


def test_no_label_is_read_as_an_option_of_latex(tmp_path: Path) -> None:
    """A row may begin with [ or *, which the end of the row before would take; two hyphens are no dash, a dash is."""
    recipe = read_recipe(write(tmp_path, f"title = 'T'\n{_BODY}"))
    rows = {name: replace(recipe.rows["a"], label=label) for name, label in (("a", "[1]"), ("b", "*--a---b-c –"))}
    lines = to_latex(tabulate(replace(recipe, rows=rows), [], [])).splitlines()
    assert "{[}1] & -- \\\\" in lines
    assert "{*}-{}-a-{}-{}-b-c -- & -- \\\\" in lines


_BODY = r"""
[columns.a]
label = "A"
dataset = "top2"
[rows.a]
label = '50% & $x_1$ #{a} ~ ^ \ <b> |'
model = { name = "gcn" }
"""
