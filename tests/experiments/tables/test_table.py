from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import TINY, write
from torch_goat.experiments import Result
from torch_goat.experiments.comparison import Comparison
from torch_goat.experiments.recipes import Recipe, plan, read_recipe
from torch_goat.experiments.tables import RecordedRun, ResultTable, tabulate, to_markdown
from torch_goat.experiments.tables.render import comparison_grid, notes

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
            done.append(RecordedRun(run, Result(metrics, 1, 1, "epochs", 1.0, 1.0, 1, "a CPU", {}, "")))
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
