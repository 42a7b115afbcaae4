import csv
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.app.conftest import Goat
from tests.data.tables.files import NODES, write
from tests.small_runs import small
from torch_goat import settings
from torch_goat.data.loader import write_graph
from torch_goat.experiments import Experiment, Result, RunError, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.own_graph import MODELS
from torch_goat.experiments.search import Search, own_starting_point, paper_grid

SMALL = ["betweenness-100", "--model", "gcn", "--set", "epochs=2", "--set", "hidden_channels=4", "--device", "cpu"]


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What a command calls to search, which only notes the search."""
    noted = Mock(side_effect=RunError("begun"))
    monkeypatch.setattr("torch_goat.experiments.search.tune.tune", noted)
    return noted


@pytest.mark.usefixtures("quick_processes")
def test_a_search_ends_in_a_recipe_that_trains(goat: Goat) -> None:
    options = ["--trials", "3", "--jobs", "2", "--space", "dropout=0,0.5", "--indices", "1,2", "--seed", "4"]
    ended = goat("tune", *SMALL, *options)
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("tune-betweenness-100-gcn-")
    best = settings.read(Experiment, folder / "best.toml")
    assert (best.index, best.seed, best.training.epochs, best.model.hidden_channels) == (1, 4, 2, 4)
    assert best.model.dropout in (0.0, 0.5)
    shown = ["learning_rate", "0.005", str(best.training.learning_rate)]
    assert shown in [line.split() for line in ended.out.splitlines()]
    assert "3 of 3 trials are finished" in ended.out
    assert [line.split()[0] for line in ended.err.splitlines()] == ["1/3", "2/3", "3/3"]
    assert "hidden_channels" not in (folder / "trials.csv").read_text()  # it was set
    again = goat("tune", *SMALL, *options)
    assert again.out == ended.out
    assert again.err == ""
    goat("train", "--config", str(folder / "best.toml"), "--device", "cpu", "--out", "best")
    assert len([line for line in goat("runs").out.splitlines() if "betweenness-100" in line]) == 6


@pytest.mark.usefixtures("quick_processes")
def test_a_graph_of_ones_own_is_searched(goat: Goat, tmp_path: Path) -> None:
    tables = write(tmp_path)
    own = ["nodes.csv", "edges.csv", "--target", "label", "--id", "id", "--fractions", "0.5,0.3,0.2"]
    search = ["--model", "gcn", "--set", "epochs=2", "--space", "dropout=0,0.5", "--device", "cpu", "--out", "search"]
    ended = goat("tune", *own, *search, "--trials", "2", "--indices", "1,0")
    assert "10 nodes, 10 undirected edges" in ended.out
    best = settings.read(Experiment, Path("search/best.toml"))
    assert best.tables is not None
    assert (best.tables.nodes, best.tables.id, best.tables.train, best.index) == (tables.nodes, "id", 0.5, 1)
    runs = [Result.from_json(path.read_text()) for path in sorted(Path("search/trials").glob("*/*/result.json"))]
    accuracies = [run.metrics["val"]["accuracy"] for run in runs]
    means = [sum(accuracies[:2]) / 2, sum(accuracies[2:]) / 2]
    lines = [line.split(",") for line in Path("search/trials.csv").read_text().splitlines()]
    assert lines[0][:3] == ["trial", "state", "val_accuracy"]
    assert [float(line[2]) for line in lines[1:]] == pytest.approx(means)
    goat("train", "--config", "search/best.toml", "--out", "run", "--device", "cpu")
    goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv")
    Path("nodes.csv").write_text(NODES.replace("30", "31"))
    changed = goat("tune", *own, *search, "--trials", "3", "--indices", "1,0", code=1)
    assert "search holds another search" in changed.err


def test_own_graphs_are_judged_by_what_suits_them(goat: Goat, tmp_path: Path, tune: Mock) -> None:
    """Of a search that would begin: its metric, and how its classes weigh."""
    few = NODES.replace("no\n", "yes\n", 4).replace("yes\n", "no\n", 1)  # two of ten say no
    write(tmp_path, few.replace("c,,", "c,33,"))
    write_graph(small("top2"), Path("arrays"))
    own = ["nodes.csv", "edges.csv", "--target"]
    weighted = [*own, "label", "--metric", "macro_f1"]
    for arguments in (
        [*own, "label"],
        [*weighted, "--grid"],
        weighted,
        [*own, "age", "--task", "regression"],
        ["arrays"],
        [*own, "label", "--metric", "roc_auc", "--prune"],
    ):
        assert goat("tune", *arguments, code=1).err == "goat: begun\n"
    begun: list[Search] = [call.args[0] for call in tune.call_args_list]
    found = [(one.metric, one.experiment.training.class_weights) for one in begun]
    assert found[:5] == [("accuracy", False), *[("macro_f1", True)] * 2, ("rmse", False), ("accuracy", False)]
    assert found[5:] == [("roc_auc", False)]
    assert begun[5].experiment.metric == "roc_auc"  # which pruning watches
    assert begun[1].space == paper_grid("goat", "classification")
    assert begun[4].experiment.graph == str(Path("arrays").resolve())


def test_every_trial_is_judged_on_all_folds(goat: Goat, tmp_path: Path, tune: Mock) -> None:
    write(tmp_path, NODES)
    for more, indices in (([], (0, 1, 2)), (["--indices", "1"], (1,))):
        goat("tune", "nodes.csv", "edges.csv", "--target", "label", "--folds", "3", *more, code=1)
        search = tune.call_args.args[0]
        assert (search.indices, search.experiment.split, search.experiment.tables.folds) == (indices, "folds", 3)


def test_a_model_whose_settings_are_given_is_not_searched(goat: Goat, tmp_path: Path, tune: Mock) -> None:
    write(tmp_path, NODES)
    own = ["nodes.csv", "edges.csv", "--target", "label", "--model", "all", "--set", "penalties=[1.0]"]
    said = goat("tune", *own, code=1)
    assert "logistic regression: all its settings are given, so there is nothing to search." in said.out
    assert tune.call_args.args[0].experiment.model.name == "goat"


@pytest.mark.usefixtures("quick_processes")
def test_the_grid_is_the_papers_from_the_papers_settings(goat: Goat) -> None:
    options = ["--model", "gcn", "--grid", "--trials", "2", "--set", "epochs=2", "--device", "cpu", "--out", "grid"]
    goat("tune", "betweenness-100", *options)
    grid = paper_grid("gcn", "regression")
    keys = list(grid)
    lines = Path("grid/trials.csv").read_text().splitlines()
    assert lines[0] == f"trial,state,val_mse,{','.join(keys)}"
    first = [str(values[0]) for values in grid.values()]
    assert lines[1].split(",")[3:] == first
    assert lines[2].split(",")[3:] == [*first[:-1], str(grid[keys[-1]][1])]
    found = settings.read(Experiment, Path("grid/best.toml"))
    assert found.model.dropout == ModelOptions().dropout
    assert found.training == TrainingOptions(epochs=2)


@pytest.mark.usefixtures("quick_processes")
def test_the_defaults_are_the_first_trial_and_all_models_have_the_same_budget(goat: Goat, tmp_path: Path) -> None:
    write(tmp_path)
    own = ["nodes.csv", "edges.csv", "--target", "label", "--set", "epochs=2", "--device", "cpu"]
    ended = goat("tune", *own, "--model", "all", "--trials", "2", "--space", "rounds=20,300", "--out", "search")
    searched = set(MODELS) - {"constant"}
    assert {path.name for path in Path("search").iterdir()} == searched
    best = {}
    for name in searched:
        lines = list(csv.DictReader(Path(f"search/{name}/trials.csv").read_text().splitlines()))
        assert [line["trial"] for line in lines] == ["0", "1"]
        first = settings.read(Experiment, Path(f"search/{name}/trials/0/0/config.toml"))
        start = own_starting_point("classification", name)
        assert (first.model.kinds, replace(first.model, last="")) == (start.model.kinds, start.model)
        assert replace(first.training, epochs=500) == start.training
        assert ("rounds" in lines[0], "learning_rate" in lines[0]) == (name == "trees", not KINDS[name].fitted)
        best[name] = max(float(line["val_accuracy"]) for line in lines)
        share = f"{100 * float(lines[0]['val_accuracy']):.2f} %"
        assert f"The defaults are trial 0 with validation accuracy {share}" in ended.out
    winner = ended.out.split("To train with them: goat train --config search/")[1].split("/")[0]
    assert best[winner] == max(best.values())
    assert "default" in ended.out
    outside = goat("tune", *own, "--model", "gcn", "--trials", "1", "--space", "dropout=0.1,0.9", "--out", "other").out
    assert "The defaults are not a trial" in outside


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize("model", ["linear", "trees"])
def test_a_fitted_model_is_searched_and_its_recipe_trains(goat: Goat, tmp_path: Path, model: str) -> None:
    write(tmp_path)
    own = ["nodes.csv", "edges.csv", "--target", "age", "--task", "regression", "--device", "cpu"]
    ended = goat("tune", *own, "--model", model, "--trials", "20", "--indices", "0,1", "--out", "search")
    best = settings.read(Experiment, Path("search/best.toml"))
    assert best.model.name == model
    lines = list(csv.DictReader(Path("search/trials.csv").read_text().splitlines()))
    assert len(lines) == (15 if model == "linear" else 20)
    assert ("These are all settings of its space." in ended.out) == (model == "linear")
    assert {line["state"] for line in lines} == {"complete"}

    def rmse(folder: str) -> float:
        return Result.from_json(Path(folder, "result.json").read_text()).metrics["val"]["rmse"]

    both = [[rmse(f"search/trials/{number}/{index}") for index in (0, 1)] for number in range(len(lines))]
    assert [float(line["val_rmse"]) for line in lines] == pytest.approx([sum(pair) / 2 for pair in both])
    goat("train", "--config", "search/best.toml", "--out", "run", "--device", "cpu")
    assert rmse("run") == min(both, key=sum)[0]
    goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv")
