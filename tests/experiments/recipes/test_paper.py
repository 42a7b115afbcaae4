"""Numbers and settings of the recipes, typed a second time: those of the paper and those of the study "Classic GNNs
are strong baselines", from its authors' commands."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from tests.experiments.recipes.test_cell_runs import result
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes import RECIPES, Recipe, finals, plan, read_recipe, settle, trials

ROWS = {
    ("table1", "gcn"): "57.35 4.13, 0.0063 0.0036, 0.0020 0.0008, 0.0135 0.0067, 0.00380 0.00120",
    ("table1", "gat"): "53.34 2.43, 0.0409 0.0158, 0.0220 0.0068, 0.0382 0.0079, 0.02480 0.00560",
    ("table1", "pna"): "61.50 10.9, 0.0115 0.0089, 0.0020 0.0008, 0.0121 0.0119, 0.00137 0.00035",
    ("table1", "goat-lstm"): "69.21 5.10, 0.0038 0.0019, 0.0006 0.0002, 0.0016 0.0008, 0.00020 0.00008",
    ("table2", "mlp"): "43.8, 52.9, 79.10 0.97, 72.27 1.00, 79.53 0.66, 87.89 1.04, 93.76 0.26, 95.85 0.20",
    ("table2", "gat"): "83.0, 69.3, 89.13 2.22, 77.57 1.82, 85.41 2.95, 90.30 1.76, 92.78 0.27, 96.17 0.18",
    ("table2", "goat-lstm"): "84.9, 69.5, 92.11 1.88, 83.29 0.91, 91.34 0.50, 94.38 0.66, 94.21 0.42, 96.69 0.31",
    ("table2", "goat-gru"): "83.5, 70.0, 91.97 1.90, 83.35 0.91, 91.54 0.48, 94.22 0.58, 93.62 0.22, 96.32 0.24",
    ("table2", "goat-rnn"): "84.2, 67.9, 91.67 1.69, 83.21 0.98, 89.10 0.51, 92.45 0.60, 93.48 0.19, 96.44 0.20",
    ("arxiv", "gat"): "54.1 0.5",
    ("arxiv", "goat-lstm"): "55.1 0.4",
    ("fixed-orderings", "goat"): "83.36 0.42, 90.64 0.40",
    ("fixed-orderings", "goat-fixed-0"): "81.56 0.19, 90.48 0.29",
    ("fixed-orderings", "goat-fixed-500"): "82.27 0.34, 90.50 0.49",
    ("gatv2", "goat-gatv2"): "83.1, 69.3, 91.28 1.75, 67.34 5.24, 0.0038 0.0022, "
    "0.0006 0.0001, 0.0013 0.0008, 0.0001 0.000037",
    ("janossy", "janossy-15-5"): "80.8, 65.8, 87.15 1.86",
    ("heads", "goat-1-head"): "84.9, 67.9, 89.14 2.99",
    ("heads", "goat-8-heads"): "82.9, 68.8, 92.11 1.88",
    ("heterophilous", "mlp"): "76.22 5.51, 76.22 5.51, 75.29 5.63",
    ("heterophilous", "goat"): "71.35 7.56, 74.59 7.85, 76.08 6.31",
    # from the first version of the page beside the study's commands
    ("platonov", "gcn"): "97.86, 83.64, 45.01, 46.29",
    ("platonov", "sage-mean"): "97.77, 82.43, 40.78, 44.81",
    ("platonov", "gat"): "97.73, 83.70, 41.73, 44.13",
    ("tuned", "gcn"): "85.10 0.67, 73.14 0.67, 93.99 0.12, 96.10 0.46, 96.17 0.06, 97.46 0.10",
    ("tuned", "sage-mean"): "83.88 0.65, 72.26 0.55, 93.25 0.14, 96.78 0.23, 96.38 0.11, 97.19 0.18",
    ("tuned", "gat"): "84.46 0.55, 72.22 0.84, 94.09 0.37, 96.60 0.33, 96.21 0.14, 97.25 0.06",
}

SIZES = {
    "cora-content": (140, 300, 1000), "citeseer": (120, 500, 1000), "disease-nc": (312, 105, 627),
    "computers": (9625, 1376, 2751), "physics": (24144, 3450, 6899), "top2": (600, 200, 200),
}  # fmt: skip
STUDY = {  # width, layers, dropout, normalisation, residuals, weight decay; the learning rate is 0.001 everywhere
    ("gcn", "cora"): (512, 3, 0.7, "none", False, 5e-4),
    ("gcn", "citeseer"): (512, 2, 0.5, "none", False, 1e-2),
    ("gcn", "computers"): (512, 3, 0.5, "layer", False, 5e-5),
    ("gcn", "photo"): (256, 6, 0.5, "layer", True, 5e-5),
    ("gcn", "cs"): (512, 2, 0.3, "layer", True, 5e-4),
    ("gcn", "physics"): (64, 2, 0.3, "layer", True, 5e-4),
    ("sage-mean", "cora"): (256, 3, 0.7, "none", False, 5e-4),
    ("sage-mean", "citeseer"): (512, 3, 0.2, "none", False, 1e-2),
    ("sage-mean", "computers"): (64, 4, 0.3, "layer", False, 5e-5),
    ("sage-mean", "photo"): (64, 6, 0.2, "layer", True, 5e-5),
    ("sage-mean", "cs"): (512, 2, 0.5, "layer", True, 5e-4),
    ("sage-mean", "physics"): (64, 2, 0.7, "batch", True, 5e-4),
    ("gat", "cora"): (512, 3, 0.2, "none", True, 5e-4),
    ("gat", "citeseer"): (256, 3, 0.5, "none", True, 1e-2),
    ("gat", "computers"): (64, 2, 0.5, "layer", False, 5e-5),
    ("gat", "photo"): (64, 3, 0.5, "layer", True, 5e-5),
    ("gat", "cs"): (256, 1, 0.3, "layer", True, 5e-4),
    ("gat", "physics"): (256, 2, 0.7, "batch", True, 5e-4),
}


HETEROPHILOUS = {  # GCN, GraphSAGE and GAT: width, layers, dropout, normalisation, residuals, learning rate, decay
    "minesweeper": [(64, layers, 0.2, "batch", True, 0.01, 0.0) for layers in (12, 15)],  # the last two are equal
    "squirrel": [
        (256, 4, 0.7, "batch", True, 0.01, 5e-4),
        (256, 3, 0.7, "batch", True, 0.01, 5e-4),
        (512, 7, 0.5, "batch", True, 0.005, 5e-4),
    ],
    "chameleon": [
        (512, 5, 0.2, "none", False, 0.005, 1e-3),
        (256, 4, 0.7, "batch", True, 0.01, 1e-3),
        (256, 2, 0.7, "batch", True, 0.01, 1e-3),
    ],
}


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_rows_have_the_published_numbers(table: str, row: str) -> None:
    recipe = read_recipe(table)
    assert recipe.reference == {"tuned": "study", "platonov": "literature"}.get(table, "paper")
    published = [recipe.published(row, column) for column in recipe.columns]
    assert ", ".join(number.text.replace(" ±", "") for number in published) == ROWS[table, row]
    parts = [[float(part) for part in text.split()] for text in ROWS[table, row].split(", ")]
    assert [[number.mean, *([number.std] if number.std else [])] for number in published] == parts


@pytest.mark.parametrize(
    ("table", "rows", "columns", "runs"),
    [
        ("table1", 10, 5, 10), ("table2", 12, 8, 10), ("arxiv", 4, 1, 10), ("fixed-orderings", 5, 2, 3),
        ("gatv2", 2, 8, 10), ("janossy", 6, 3, 10), ("heads", 4, 3, 10), ("heterophilous", 9, 3, 10),
    ],
)  # fmt: skip
def test_every_cell_of_the_paper_is_there(table: str, rows: int, columns: int, runs: int) -> None:
    recipe = read_recipe(table)
    assert (len(recipe.rows), len(recipe.columns)) == (rows, columns)
    ours = {"goat-paper", "goat-noise"} | ({"sage-max"} if table == "table1" else set())
    rows_of_the_paper = recipe.rows.keys() - ours
    assert all(recipe.published(row, column) for row in rows_of_the_paper for column in recipe.columns)
    assert len(plan(recipe)) == rows * columns * runs


@pytest.mark.parametrize("table", sorted(RECIPES.keys() - {"tuned", "draws", "arxiv-structure", "order", "platonov"}))
def test_splits_and_training_are_the_papers(table: str) -> None:
    recipe = read_recipe(table)
    for column in recipe.columns.values():
        sizes = DATASETS[column.dataset].protocols[column.protocol].sizes
        assert sizes == SIZES.get(column.dataset, sizes)
    expected = TrainingOptions(epochs=1000, learning_rate=0.005, weight_decay=5e-4, patience=250)
    for row in recipe.rows:
        for column in recipe.columns:
            model, training = recipe.options(row, column)
            assert model.num_layers == 2
            assert model.dropout == 0.5
            if table != "fixed-orderings":
                assert replace(training, order_noise_end=None) == expected
                assert (training.order_noise_end == 0.1) == (model.order_noise > 0) == (row == "goat-noise")


def test_fixed_orderings_train_without_early_stopping_on_eight_heads() -> None:
    recipe = read_recipe("fixed-orderings")
    epochs = []
    for row in recipe.rows:
        model, training = recipe.options(row, "cora")
        assert (model.heads, model.rnn, training.patience) == (8, "lstm", 0)
        epochs.append(training.fixed_ordering)
    assert epochs == [-1, 0, 100, 200, 500]


@pytest.mark.parametrize(
    ("table", "pairs"),
    [
        ("table1", [("betweenness-1000", "betweenness-100"), ("effective-size-1000", "effective-size-100")]),
        ("table2", [("photo", "computers")]),
        ("heterophilous", [("texas", "cornell"), ("wisconsin", "cornell")]),
    ],
)
def test_settings_are_shared_as_the_paper_shares_them(table: str, pairs: list[tuple[str, str]]) -> None:
    recipe = read_recipe(table)
    for row in recipe.rows:
        for column, like in pairs:
            assert recipe.options(row, column) == recipe.options(row, like)


def test_cora_serves_citeseer_but_for_the_heads_of_the_table_on_heads() -> None:
    recipe = read_recipe("table2")
    for row in recipe.rows:
        (cora, _), (citeseer, _) = recipe.options(row, "cora"), recipe.options(row, "citeseer")
        if row.startswith("goat"):
            assert (cora.heads, citeseer.heads) == (1, 4)
        else:
            assert cora == citeseer
    heads = read_recipe("heads")
    assert heads.published("goat-1-head", "cora").text == recipe.published("goat-lstm", "cora").text
    assert heads.published("goat-4-heads", "citeseer").text == recipe.published("goat-lstm", "citeseer").text
    assert heads.published("goat-8-heads", "disease").text == recipe.published("goat-lstm", "disease").text


def test_second_layers_and_widths_are_those_of_the_papers_source() -> None:
    table1, table2 = read_recipe("table1"), read_recipe("table2")
    second = {column: table2.options("goat-gru", column)[0].kinds[1] for column in table2.columns}
    assert [name for name, kind in second.items() if kind == "gat"] == ["cora", "citeseer", "disease"]
    assert set(second.values()) == {"gat", "gcn"}
    assert {column: table1.options("goat-lstm", column)[0].kinds[1] for column in table1.columns} == {
        "top2": "gcn", "betweenness-100": "gat", "betweenness-1000": "gat",
        "effective-size-100": "gat", "effective-size-1000": "gat",
    }  # fmt: skip

    def widths(model: ModelOptions) -> tuple[int, int, int, int]:
        return model.heads, model.input_channels, model.hidden_channels, model.last_channels

    assert widths(table1.options("sage-lstm", "effective-size-1000")[0]) == (1, 4, 64, 16)
    assert widths(table1.options("gat", "effective-size-100")[0]) == (8, 64, 64, 4)
    assert widths(table1.options("goat-lstm", "betweenness-1000")[0]) == (1, 8, 8, 8)
    assert widths(table2.options("gat", "photo")[0]) == (12, 0, 64, 0)
    assert widths(table2.options("mlp", "computers")[0]) == (1, 64, 8, 0)
    assert table2.options("goat-rnn", "photo")[0].head_pooling == "sum"


@pytest.mark.parametrize(("row", "column"), STUDY)
def test_a_baselines_first_trial_has_the_studys_settings(row: str, column: str) -> None:
    recipe = read_recipe("tuned")
    recipe = replace(recipe, search=replace(recipe.search, trials=2))
    first, second = trials(recipe, [row], [column])
    model, training = first.experiment.model, first.experiment.training
    width, layers, dropout, norm, residual, decay = STUDY[row, column]
    assert (model.num_layers, model.dropout, model.norm, model.residual) == (layers, dropout, norm, residual)
    assert (training.learning_rate, training.weight_decay) == (0.001, decay)
    assert model.last_channels == width  # the linear output follows a layer as wide as the others
    assert layers == 1 or model.hidden_channels == width
    assert (model.activation, model.heads, model.attention_dropout, first.experiment.split) == ("relu", 1, 0.0, "tuned")
    assert second.experiment != first.experiment


@pytest.mark.parametrize("column", ["cora", "citeseer"])
def test_goats_first_trial_has_what_gcn_has_but_for_the_widths(column: str) -> None:
    recipe = read_recipe("tuned")
    (goat, training), (gcn, expected) = recipe.options("goat", column), recipe.options("gcn", column)
    assert training == expected
    assert goat.last == "gcn"
    for name in ("num_layers", "dropout", "norm", "residual", "activation"):
        assert getattr(goat, name) == getattr(gcn, name)


def test_the_order_tasks_are_searched_once_on_graphs_of_their_own() -> None:
    recipe = read_recipe("order")
    searched = trials(replace(recipe, search=replace(recipe.search, trials=20)))
    assert len(searched) == len(recipe.rows) * 20 * recipe.search.repetitions  # equal for all rows
    assert {trial.experiment.dataset for trial in searched} == {"order-alternations-8000"}
    runs = plan(recipe)
    assert len(runs) == 12 * 6 * 10
    assert {trial.experiment.index for trial in searched}.isdisjoint(run.experiment.index for run in runs)
    assert {trial.experiment.seed for trial in searched}.isdisjoint(run.experiment.seed for run in runs)
    learned = ("goat-noise", "goat-mingru", "goat-minlstm")
    for run in (*searched, *runs):
        model, training = run.experiment.model, run.experiment.training
        assert (model.num_layers, model.channels(0, 2) * model.last_heads, model.output_channels) == (1, 64, 64)
        assert (training.epochs, training.schedule, training.clip_norm) == (1000, "cosine", 1.0)
        assert (model.order_noise > 0) == (training.order_noise_end is not None) == (run.row in learned)
        assert (training.fixed_ordering == 0) == (run.row == "goat-frozen")
        assert model.given_order == (run.row == "goat-given")
        assert not (model.add_self_loops and model.num_orderings)


@pytest.fixture(scope="module")
def platonov() -> Recipe:
    recipe = read_recipe("platonov")
    return replace(recipe, search=replace(recipe.search, trials=40))


@pytest.mark.parametrize("column", HETEROPHILOUS)
def test_every_row_first_tries_the_studys_settings_of_a_heterophilous_graph(column: str, platonov: Recipe) -> None:
    for row in platonov.rows:
        tried = {trial.number: trial.experiment for trial in trials(platonov, [row], [column])}
        expected = HETEROPHILOUS[column]
        for number, (width, layers, dropout, norm, residual, rate, decay) in enumerate(expected, 1):
            model, training = tried[number].model, tried[number].training
            assert (model.hidden_channels, model.last_channels, model.heads, model.num_layers) == (
                width,
                width,
                1,
                layers,
            )
            assert (model.dropout, model.norm, model.residual, model.activation) == (dropout, norm, residual, "relu")
            assert (training.learning_rate, training.weight_decay, training.stop_on) == (rate, decay, "metric")


def test_every_row_of_a_heterophilous_graph_has_the_same_budget_and_the_recipe_states_it(platonov: Recipe) -> None:
    text, tried, total = RECIPES["platonov"].read_text(), trials(platonov), Counter()
    assert {trial.experiment.split or "platonov" for trial in tried} == {"platonov"}
    for column, options in platonov.columns.items():
        budgets = set()
        for row in platonov.rows:
            cell = [trial for trial in tried if (trial.row, trial.column) == (row, column)]
            runs, results = cell, {}
            for _ in range(3):
                results |= {run.folder: result(0.5) for run in runs}
                runs = cell + finals(platonov, cell, results)
            entered: dict[int, set[int]] = {}  # the trials of each rung, by its epochs
            for run in runs:
                entered.setdefault(run.experiment.training.epochs, set()).add(run.number)
            assert [len(entered[epochs]) for epochs in sorted(entered)] == [40, 10, 3]
            settled = settle(platonov, cell, results)
            done = {run.experiment for run in runs}
            last = [run for run in plan(settled, [row], [column]) if run.experiment not in done]
            budget = Counter(runs=len(runs) + len(last))
            budget["epochs"] = sum(run.experiment.training.epochs for run in (*runs, *last))
            budgets.add(tuple(budget.values()))
            total += budget
        (budget,) = budgets
        assert re.search(rf"# +{re.escape(options.label)} +{budget[0]} runs +{budget[1]} epochs\n", text)
    assert f"all {len(platonov.rows)} rows {total['runs']} runs and {total['epochs']} epochs" in text
