from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import TINY, write
from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.recipes import plan, read_recipe
from torch_goat.settings import SettingsError


def test_repetitions_go_through_graphs_and_seeds(tmp_path: Path) -> None:
    runs = plan(read_recipe(write(tmp_path)), rows=["gcn"], columns=["size"])
    model, training = ModelOptions(name="gcn", hidden_channels=6), TrainingOptions(epochs=3)
    assert [run.experiment for run in runs] == [
        Experiment("effective-size-100", "", 0, 0, model, training),
        Experiment("effective-size-100", "", 1, 1, model, training),
    ]
    assert [str(run.folder) for run in runs] == ["size/gcn/0", "size/gcn/1"]


def test_one_split_has_repetitions_of_other_seeds() -> None:
    runs = plan(read_recipe("table2"), rows=["gat"], columns=["cora", "photo"])
    cora, photo = ([run.experiment for run in runs if run.column == column] for column in ("cora", "photo"))
    assert [(run.index, run.seed) for run in cora] == [(0, number) for number in range(10)]
    assert [(run.index, run.seed) for run in photo] == [(number, number) for number in range(10)]


def test_rows_of_a_graph_follow_each_other_in_the_order_of_the_recipe(tmp_path: Path) -> None:
    runs = plan(read_recipe(write(tmp_path)), rows=["gat", "gcn"], columns=["pooling"])
    assert [str(run.folder) for run in runs] == ["pooling/gcn/0", "pooling/gat/0", "pooling/gcn/1", "pooling/gat/1"]


def test_columns_may_have_repetitions_of_their_own(tmp_path: Path) -> None:
    text = TINY.replace('dataset = "top2"', 'dataset = "top2", repetitions = 12')
    runs = plan(read_recipe(write(tmp_path, text)), rows=["gcn"])
    assert [run.experiment.index for run in runs if run.column == "pooling"] == [*range(10), 0, 1]
    assert [run.experiment.seed for run in runs if run.column == "pooling"] == [*range(12)]
    assert sum(run.column == "size" for run in runs) == 2


def test_quick_runs_are_few_and_short() -> None:
    recipe = read_recipe("fixed-orderings")
    runs = plan(recipe, columns=["cora"], quick=True)
    assert len(runs) == 5 * 2
    assert {run.experiment.training.epochs for run in runs} == {5}
    assert [run.experiment.training.fixed_ordering for run in runs[:5]] == [-1, 0, 5, 5, 5]


def test_precision_is_set_for_all() -> None:
    assert {run.experiment.training.precision for run in plan(read_recipe("heads"), precision="64-true")} == {"64-true"}


@pytest.mark.parametrize(
    ("chosen", "text"), [({"rows": ["gaat"]}, "no row 'gaat'; did"), ({"columns": ["sise"]}, "no column 'sise'; did")]
)
def test_unknown_names_are_refused(chosen: dict[str, list[str]], text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=text):
        plan(read_recipe(write(tmp_path)), **chosen)


def test_settings_that_fit_no_run_are_named(tmp_path: Path) -> None:
    text = TINY.replace("[training]", "[training]\nbatch_size = 10\nfanout = [1]")
    assert text != TINY
    recipe = read_recipe(write(tmp_path, text))
    with pytest.raises(SettingsError, match=r"has an invalid run of .* on .*: fanout = \[1\] has 1 numbers"):
        plan(recipe)
