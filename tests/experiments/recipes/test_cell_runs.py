"""The runs of a table; and the search of its settings: what is tried, what is chosen, what becomes of the recipe."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import TINY, write
from torch_goat.experiments import Experiment, ModelOptions, Result, TrainingOptions
from torch_goat.experiments.recipes import RECIPES, Recipe, finals, plan, read_recipe, settle, trials, with_found
from torch_goat.settings import SettingsError

SPACE = """
[search]
repetitions = 2
[search.space]
learning_rate = [0.001, 0.002, 0.004]
dropout = [0.0, 0.2, 0.4, 0.6]
heads = [1, 2]
"""
MORE = '[columns.more]\nlabel = "more"\ndataset = "top2"\n'


def test_repetitions_go_through_graphs_and_seeds(tmp_path: Path) -> None:
    runs = plan(read_recipe(write(tmp_path)), rows=["gcn"], columns=["size"])
    model, training = ModelOptions(name="gcn", hidden_channels=6), TrainingOptions(epochs=3)
    assert [run.experiment for run in runs] == [
        Experiment("effective-size-100", "", 0, 0, model, training),
        Experiment("effective-size-100", "", 1, 1, model, training),
    ]
    assert [str(run.folder) for run in runs] == ["size/gcn/0", "size/gcn/1"]
    cora = plan(read_recipe("table2"), rows=["gat"], columns=["cora"])  # which has one split
    assert [(run.experiment.index, run.experiment.seed) for run in cora] == [(0, number) for number in range(10)]


def test_rows_of_a_graph_follow_each_other_in_the_order_of_the_recipe(tmp_path: Path) -> None:
    runs = plan(read_recipe(write(tmp_path)), rows=["gat", "gcn"], columns=["pooling"])
    assert [str(run.folder) for run in runs] == ["pooling/gcn/0", "pooling/gat/0", "pooling/gcn/1", "pooling/gat/1"]


def test_columns_may_have_repetitions_of_their_own(tmp_path: Path) -> None:
    text = TINY.replace('dataset = "top2"', 'dataset = "top2", repetitions = 12')
    runs = plan(read_recipe(write(tmp_path, text)), rows=["gcn"])
    pooling = [(run.experiment.index, run.experiment.seed) for run in runs if run.column == "pooling"]
    assert pooling == [(number % 10, number) for number in range(12)]
    assert len(runs) == 12 + 2


def test_quick_runs_are_few_and_short_and_all_have_the_precision() -> None:
    runs = plan(read_recipe("fixed-orderings"), columns=["cora"], quick=True, precision="64-true")
    assert len(runs) == 5 * 2
    assert {(run.experiment.training.epochs, run.experiment.training.precision) for run in runs} == {(5, "64-true")}
    assert [run.experiment.training.fixed_ordering for run in runs[:5]] == [-1, 0, 5, 5, 5]


@pytest.mark.parametrize(
    ("training", "chosen", "text"),
    [
        ("", {"rows": ["gaat"]}, "no row 'gaat'; did"),
        ("", {"columns": ["sise"]}, "no column 'sise'; did"),
        ("batch_size = 10\nfanout = [1]", {}, r"has an invalid run of .* on .*: fanout = \[1\] has 1 numbers"),
    ],
)
def test_impossible_plans_are_refused(training: str, chosen: dict[str, list[str]], text: str, tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, TINY.replace("[training]", f"[training]\n{training}")))
    with pytest.raises(SettingsError, match=text):
        plan(recipe, **chosen)


def searched(tmp_path: Path, count: int = 6, text: str = SPACE) -> Recipe:
    recipe = read_recipe(write(tmp_path, f"{TINY}\n{text}"))
    return replace(recipe, search=replace(recipe.search, trials=count))


def result(accuracy: float | None = None, mse: float | None = None, test: float = 0.0) -> Result:
    metrics = {"accuracy": accuracy, "roc_auc": accuracy, "mse": 1 - accuracy} if mse is None else {"mse": mse}
    return Result({"val": metrics, "test": dict.fromkeys(metrics, test)}, 1, 1, "epochs", 1.0, 1.0, 0, "cpu", {}, "")


def test_every_cell_has_as_many_trials_no_two_alike_and_within_the_space(tmp_path: Path) -> None:
    recipe = searched(tmp_path)
    tried = trials(recipe)
    for row in recipe.rows:
        for column in recipe.columns:
            mine = [trial for trial in tried if (trial.row, trial.column) == (row, column)]
            assert len(mine) == 6 * 2
            settings = {(trial.experiment.model, trial.experiment.training) for trial in mine}
            assert len(settings) == 6
            first = mine[0].experiment
            assert (first.model, first.training) == recipe.options(row, column)
            for drawn in (trial.experiment for trial in mine if trial.number > 0):
                assert drawn.training.learning_rate in (0.001, 0.002, 0.004)
                assert drawn.model.dropout in (0.0, 0.2, 0.4, 0.6)
                assert drawn.model.heads == 1 or row != "gcn"  # whose layers do not read it


def test_a_trial_depends_on_its_cell_and_number_alone(tmp_path: Path) -> None:
    few, many = trials(searched(tmp_path, 3)), trials(searched(tmp_path, 6))
    by_folder = {trial.folder: trial.experiment for trial in many}
    few += trials(searched(tmp_path, 6), rows=["gat"], columns=["size"])
    assert all(by_folder[trial.folder] == trial.experiment for trial in few)


def test_a_column_and_those_like_it_have_a_space_of_their_own(tmp_path: Path) -> None:
    more = """
[columns.own]
label = "own"
dataset = "effective-size-100"
space = { learning_rate = [0.5], heads = [4] }
[columns.kin]
label = "kin"
dataset = "betweenness-100"
like = "own"
space = { dropout = [0.1] }
"""
    recipe = searched(tmp_path, text=SPACE + more)
    drawn = {column: [trial.experiment for trial in trials(recipe, ["gat"], [column])[2:]] for column in ("own", "kin")}
    for found in drawn.values():
        assert {(one.training.learning_rate, one.model.heads) for one in found} == {(0.5, 4)}
    assert {one.model.dropout for one in drawn["own"]} <= {0.0, 0.2, 0.4, 0.6}
    assert {one.model.dropout for one in drawn["kin"]} == {0.1}
    # A settled recipe has no column that is like another, and searches the same.
    settled = settle(recipe, trials(recipe, ["gcn"]), {})
    for column in recipe.columns:
        assert settled.space("gat", column) == recipe.space("gat", column)


def test_one_column_may_be_searched_for_all(tmp_path: Path) -> None:
    text = SPACE.replace("[search]", '[search]\ncolumn = "pooling"\nfirst = 5')
    recipe = searched(tmp_path, 3, f"{text}\n{MORE}".replace('dataset = "top2"', 'dataset = "top2"\nfinals = 3'))
    tried = trials(recipe, ["gcn"], ["size"])
    assert [(trial.column, trial.number, trial.repetition) for trial in tried] == [
        ("pooling", number, repetition) for number in range(3) for repetition in (5, 6)
    ]
    assert {(trial.experiment.dataset, trial.experiment.index, trial.experiment.seed) for trial in tried} == {
        ("top2", 5, 5), ("top2", 6, 6)
    }  # fmt: skip
    assert not plan(settle(recipe, tried, {}))
    results = {trial.folder: result(accuracy=0.9 if trial.number == 2 else 0.5) for trial in tried}
    found = settle(recipe, tried, results)
    best = tried[-1].experiment
    assert [run.column for run in plan(found)] == ["size", "size", "pooling", "pooling", "more", "more"]
    assert {(run.experiment.model, run.experiment.training) for run in plan(found)} == {(best.model, best.training)}
    assert {run.experiment.seed for run in plan(found)} == {0, 1}


def test_the_finals_of_one_column_go_on_from_its_first_repetition(tmp_path: Path) -> None:
    text = SPACE.replace("[search]", '[search]\ncolumn = "more"\nfirst = 4')
    recipe = searched(tmp_path, 2, text + MORE + "finals = 4\n")
    tried = trials(recipe, ["gcn"])
    results = {trial.folder: result(accuracy=0.5) for trial in tried}
    assert [(final.number, final.repetition) for final in finals(recipe, tried, results)] == [
        (0, 6), (1, 6), (0, 7), (1, 7)
    ]  # fmt: skip


def test_a_small_space_is_tried_whole(tmp_path: Path) -> None:
    recipe = searched(tmp_path, 6, "[search.space]\nlearning_rate = [0.001, 0.002]\n")
    assert {trial.number for trial in trials(recipe, ["gcn"], ["size"])} == {0, 1, 2}


def test_validation_alone_decides(tmp_path: Path) -> None:
    recipe = searched(tmp_path)
    tried = trials(recipe)
    results = {}
    for trial in tried:
        # Trial 4 is the best of the mean over both repetitions, 2 on the first of them and 5 on the test nodes.
        value = {4: 0.8, 2: (0.9, 0.1)[trial.repetition]}.get(trial.number, 0.5)
        test = 1.0 if trial.number == 5 else 0.0
        known = recipe.columns[trial.column].dataset == "top2"
        results[trial.folder] = result(value, test=test) if known else result(mse=1 - value, test=1 - test)
    settled = settle(recipe, tried, results)
    by_cell = {(trial.row, trial.column): trial.experiment for trial in tried if trial.number == 4}
    for (row, column), experiment in by_cell.items():
        assert settled.options(row, column) == (experiment.model, experiment.training)
        assert settled.rows[row].cells[column].trials == 6


def test_a_cell_whose_search_is_not_over_has_no_runs(tmp_path: Path) -> None:
    recipe = searched(tmp_path)
    tried = trials(recipe)
    done = [trial for trial in tried if trial.row == "gcn"]
    settled = settle(recipe, tried, {trial.folder: result(0.5, None) for trial in done[:-1]})
    assert not settled.settled("gat", "size")
    assert settled.settled("gcn", done[0].column)
    assert not settled.settled("gcn", done[-1].column)
    assert {(run.row, run.column) for run in plan(settled)} == {("gcn", done[0].column)}
    assert not [trial for trial in trials(settled) if (trial.row, trial.column) == ("gcn", done[0].column)]


def with_finals(recipe: Recipe, number: int, finalists: int) -> Recipe:
    columns = {name: replace(column, finals=number) for name, column in recipe.columns.items()}
    return replace(recipe, columns=columns, search=replace(recipe.search, finalists=finalists))


def test_the_best_trials_are_repeated_and_the_mean_over_all_decides(tmp_path: Path) -> None:
    recipe = with_finals(searched(tmp_path), 4, finalists=2)
    tried = trials(recipe, ["gcn"], ["size"])
    # By two repetitions 1 is before 3 and 0, by four of them 3 is before 1; 0 would be the best of the last two.
    first = {1: (0.9, 0.9), 3: (0.8, 0.9), 0: (0.8, 0.8)}
    last = {1: (0.5, 0.5), 3: (0.8, 0.7), 0: (1.0, 1.0)}

    def error(trial) -> Result:
        values = (*first.get(trial.number, (0.1, 0.1)), *last.get(trial.number, (0.1, 0.1)))
        return result(mse=1 - values[trial.repetition])

    results = {trial.folder: error(trial) for trial in tried}
    repeated = finals(recipe, tried, results)
    assert [(trial.number, trial.repetition) for trial in repeated] == [(1, 2), (3, 2), (1, 3), (3, 3)]
    by_number = {trial.number: trial.experiment for trial in tried if trial.repetition == 0}
    for trial in repeated:
        assert (trial.experiment.index, trial.experiment.seed) == (trial.repetition, trial.repetition)
        assert replace(trial.experiment, index=0, seed=0) == by_number[trial.number]
        assert trial.folder.parts == ("search", "size", "gcn", str(trial.number), str(trial.repetition))

    assert not settle(recipe, tried, results).settled("gcn", "size")
    some = results | {trial.folder: error(trial) for trial in repeated[:-1]}
    assert not settle(recipe, tried, some).settled("gcn", "size")
    settled = settle(recipe, tried, some | {repeated[-1].folder: error(repeated[-1])})
    assert settled.options("gcn", "size") == (by_number[3].model, by_number[3].training)


def test_a_column_may_have_more_finalists(tmp_path: Path) -> None:
    recipe = with_finals(searched(tmp_path), 3, finalists=2)
    recipe = replace(recipe, columns=recipe.columns | {"size": replace(recipe.columns["size"], finalists=4)})
    tried = trials(recipe, ["gcn"])
    repeated = finals(recipe, tried, {trial.folder: result(0.5) for trial in tried})
    counts = {column: len({one.number for one in repeated if one.column == column}) for column in recipe.columns}
    assert counts == {"size": 4, "pooling": 2}


def test_no_finals_before_all_trials_are_done_or_where_no_column_has_them(tmp_path: Path) -> None:
    recipe = searched(tmp_path)
    tried = trials(recipe)
    results = {trial.folder: result(0.5) for trial in tried}
    assert finals(recipe, tried, results) == []
    recipe = with_finals(recipe, 3, finalists=5)
    (last,) = [trial for trial in tried if (trial.row, trial.column, trial.number) == ("gcn", "size", 5)][1:]
    cells = {(trial.row, trial.column) for trial in finals(recipe, tried, results)}
    del results[last.folder]
    assert cells - {(trial.row, trial.column) for trial in finals(recipe, tried, results)} == {("gcn", "size")}


def test_a_settled_recipe_survives_its_file(tmp_path: Path) -> None:
    recipe = searched(tmp_path)
    tried = trials(recipe)
    settled = settle(recipe, tried, {trial.folder: result(trial.number / 10) for trial in tried})
    path = tmp_path / "found.toml"
    path.write_text(settled.to_toml())
    again = read_recipe(path)
    assert plan(again) == plan(settled)
    assert all(again.published(row, "size") == recipe.published(row, "size") for row in recipe.rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[search.space]\nwidth = [1]", "unknown key 'width'"),
        ("[search.space]\ndropout = 0.5", "search.space.dropout must be a list of values, got 0.5"),
        ("[search.space]\ndropout = []", r"search.space.dropout must be a list of values, got \[\]"),
        ('[search.space]\ndropout = ["much"]', "dropout must be a number"),
        ("[search]\ntrials = -1", "search.trials must be at least 0, got -1"),
        ("[search]\nrepetitions = 0", "search.repetitions must be at least 1, got 0"),
        ("[search]\nfinalists = 0", "search.finalists must be at least 1, got 0"),
        (f"{MORE}finals = -1", "finals must be at least 0"),
        (f"{MORE}finalists = -1", "finalists must be at least 0"),
        ('[rows.gin]\nlabel = "more"\nspace = { dropout = 0.5 }', "rows.gin.space.dropout must be a list"),
        (f"{MORE}space = {{ dropout = 0.5 }}", "columns.more.space.dropout must be a list"),
        ('[on_demand]\nrows = ["gatt"]', "on_demand.rows has 'gatt', which is unknown; did you mean 'gat'"),
        ('[on_demand]\ncolumns = ["sise"]', "on_demand.columns has 'sise', which is unknown; did you mean 'size'"),
        ("", r"no \[search.space\] to draw from"),
        # Whether a value is possible depends on the others.
        (
            "[search.space]\nlearning_rate = [0.1, -1.0]\n",
            "draws invalid settings: .*learning_rate .* got -1.0.* Change its space",
        ),
    ],
)
def test_a_search_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        trials(searched(tmp_path, 8, text))


FOUND = Experiment(
    "effective-size-100",
    index=3,
    seed=7,
    model=ModelOptions(name="gat", hidden_channels=32, heads=1, norm="layer"),
    training=TrainingOptions(epochs=50, weight_decay=0.0, precision="64-true"),
)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return read_recipe(write(tmp_path))


def test_found_settings_replace_those_of_the_cell_and_of_columns_and_rows_like_it(recipe: Recipe) -> None:
    changed = with_found(recipe, "gat", FOUND, "best.toml")
    training = replace(FOUND.training, precision="32-true")
    for column in recipe.columns:
        assert changed.options("gat", column) == (FOUND.model, training)
        assert changed.options("gat-relu", column)[0] == replace(FOUND.model, activation="relu")
        assert changed.options("gcn", column) == recipe.options("gcn", column)
    assert changed.published("gat", "size") == recipe.published("gat", "size")


def test_columns_that_share_settings_give_up_their_own() -> None:
    found = Experiment("cora-content", model=ModelOptions(heads=2))
    changed = with_found(read_recipe("table2"), "goat-lstm", found, "best.toml")
    assert changed.options("goat-lstm", "citeseer")[0] == found.model
    assert changed.published("goat-lstm", "citeseer").text == "69.5"


@pytest.mark.parametrize("name", [name for name in RECIPES if "goat-lstm" in read_recipe(name).rows])
def test_a_row_that_names_its_rnn_keeps_it(name: str) -> None:
    recipe = read_recipe(name)
    column = next(iter(recipe.columns.values()))
    found = Experiment(column.dataset, column.split, model=ModelOptions("goat", heads=2, rnn="gru"))
    changed = with_found(recipe, "goat-lstm", found, "best.toml")
    for row in (row for row in ("goat-lstm", "goat-gru", "goat-rnn") if row in recipe.rows):
        assert changed.rows[row].label == f"GOAT({row.removeprefix('goat-')})"
        for name in recipe.columns:
            assert changed.options(row, name)[0].rnn == row.removeprefix("goat-")


def test_settings_of_another_row_or_column_leave_the_first_alone(recipe: Recipe) -> None:
    changed = with_found(recipe, "gat", replace(FOUND, dataset="top2", split="paper"), "best.toml")
    assert changed.options("gat", "pooling")[0] == FOUND.model
    assert changed.options("gat", "size") == recipe.options("gat", "size")
    changed = with_found(recipe, "gat-relu", FOUND, "best.toml")
    assert changed.options("gat-relu", "size")[0] == replace(FOUND.model, activation="relu")  # which makes the row
    assert changed.options("gat", "size") == recipe.options("gat", "size")


@pytest.mark.parametrize(
    ("row", "found", "text"),
    [
        ("gatt", FOUND, "there is no row 'gatt'; did you mean 'gat'"),
        ("gcn", FOUND, "best.toml: the settings are of 'gat', but the row 'gcn' is of 'gcn'."),
        ("gat", replace(FOUND, dataset="cora"), "best.toml: the table has no column of 'cora'; it has effective-size"),
        ("gat", replace(FOUND, split="tuned"), "no column of 'effective-size-100' under the split 'tuned'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(row: str, found: Experiment, text: str, recipe: Recipe) -> None:
    with pytest.raises(SettingsError, match=text):
        with_found(recipe, row, found, "best.toml")
