import csv
import json
import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.app.conftest import Goat
from tests.experiments.recipes.recipes import TINY, write
from torch_goat import settings
from torch_goat.app.cli import reproduce
from torch_goat.experiments import Event, Experiment, train
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.plan import main as worker
from torch_goat.experiments.recipes import RECIPES, plan, read_recipe
from torch_goat.experiments.recipes.cell_runs import CellRun
from torch_goat.experiments.tables.ledger import read_lines

Metrics = dict[tuple[str, str], list[float]]


def metrics_in(folder: Path, runs: Sequence[CellRun]) -> Metrics:
    """The test metrics by cell, as the files of the runs have them; accuracies in percent."""
    metrics: Metrics = {}
    for one in runs:
        test = json.loads((folder / one.folder / "result.json").read_text())["metrics"]["test"]
        metrics.setdefault((one.row, one.column), []).append(test["mse"] if "mse" in test else 100 * test["accuracy"])
    return metrics


def check_csv(path: Path, metrics: Metrics) -> None:
    with open(path, newline="") as file:
        records = {(one["row"], one["column"]): one for one in csv.DictReader(file) if one["runs"] != "0"}
    assert records.keys() == metrics.keys()
    for cell, record in records.items():
        assert float(record["mean"]) == pytest.approx(np.mean(metrics[cell]), rel=1e-12)
        assert float(record["std"]) == pytest.approx(np.std(metrics[cell], ddof=1), rel=1e-9)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Metrics]:
    """The tiny recipe and its runs in ``results/tiny``; their test metrics as their files have them."""
    root = tmp_path_factory.mktemp("trained")
    runs = plan(read_recipe(write(root)))
    for one in runs:
        train(one.experiment, root / "results/tiny" / one.folder, device="cpu")
    return root, metrics_in(root / "results/tiny", runs)


@pytest.fixture
def done(goat: Goat, trained: tuple[Path, Metrics]) -> Metrics:
    shutil.copytree(trained[0], ".", dirs_exist_ok=True)
    return trained[1]


no_training = Mock(side_effect=AssertionError("nothing was to be run"))


def test_tables_are_listed(goat: Goat) -> None:
    ended = goat("reproduce")
    for name in (*RECIPES, "goat-fixed-100", "lastfm-asia", "Heterophilous graphs"):
        assert name in ended.out


def test_what_is_done_is_shown_beside_the_paper_and_not_run_again(
    goat: Goat, done: Metrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "run_plan", no_training)
    ended = goat("reproduce", "tiny.toml")
    assert ended.err == ""
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    size, pooling = (np.array(done["gcn", column]) for column in ("size", "pooling"))
    ours = f"GCN {size.mean():.4f} ± {size.std(ddof=1):.4f} {pooling.mean():.2f} ± {pooling.std(ddof=1):.2f}"
    paper = f"paper 0.0135 ± 0.0067 ({size.mean() - 0.0135:+.4f}) paper 57.35 ± 4.13 ({pooling.mean() - 57.35:+.2f})"
    assert ours in lines
    assert paper.replace("-", "−") in lines
    assert "The whole table is in results/tiny.md, .tex and .csv." in lines

    check_csv(tmp_path / "results/tiny.csv", done)
    # The files hold the whole table, and the output what was asked for.
    for name, ending in (("markdown", "md"), ("latex", "tex"), ("csv", "csv")):
        written = Path(f"results/tiny.{ending}").read_text(encoding="utf-8")
        assert goat("reproduce", "tiny.toml", "--collect", "--format", name).out == written
    part = goat("reproduce", "tiny.toml", "--collect", "--only", "gat", "--datasets", "pooling", "--format", "csv").out
    (record,) = csv.DictReader(part.splitlines())
    assert (record["row"], record["column"], record["baseline"]) == ("gat", "pooling", "gcn")
    assert "gat-relu" in Path("results/tiny.csv").read_text()

    for out, message in (
        ("results", "results/tiny has runs whose settings were not searched; choose another --out."),
        (".", "the search would overwrite the recipe tiny.toml with its settings; choose another --out."),
    ):
        refused = goat("reproduce", "tiny.toml", "--search", "2", "--out", out, code=2)
        assert message in refused.err
        assert Path("tiny.toml").read_text() == TINY
    Path("file").touch()
    refused = goat("reproduce", "tiny.toml", "--out", "file", code=1)
    assert refused.err.count("\n") == 1
    assert "file exists" in refused.err


def test_only_what_is_missing_is_run(
    goat: Goat, done: Metrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("size/gat/1", "pooling/gcn/0", "pooling/gcn/1"):
        (tmp_path / "results/tiny" / folder / "result.json").unlink()
    asked = []

    def fails(runs, **options: object) -> list[Event]:
        asked.extend(one.folder.relative_to("results/tiny").as_posix() for one in runs)
        return [Event("failed", index, message="the disk is on fire.") for index, _ in enumerate(runs)]

    monkeypatch.setattr(reproduce, "run_plan", fails)
    ended = goat("reproduce", "tiny.toml", "--only", "gat,gcn", code=1)
    assert asked == ["size/gat/1", "pooling/gcn/0", "pooling/gcn/1"]
    assert "results/tiny/pooling/gcn/1: the disk is on fire." in ended.err
    assert "(1 of 2 runs)" in ended.out


def test_a_folder_of_another_experiment_is_told_and_left_alone(
    goat: Goat, done: Metrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "run_plan", no_training)
    before = (tmp_path / "results/tiny/size/gat/0/result.json").read_bytes()
    write(tmp_path, TINY.replace("heads = 2", "heads = 1"))
    ended = goat("reproduce", "tiny.toml", "--only", "gat,gcn", code=1)
    assert "results/tiny/size/gat/0 holds another experiment (model.heads = 2 there, 1 here)" in ended.err
    assert ended.err.count("another experiment") == 2  # once for each cell
    assert (tmp_path / "results/tiny/size/gat/0/result.json").read_bytes() == before


@pytest.mark.usefixtures("quick_processes")
def test_data_that_cannot_be_had_leave_their_column_empty(
    goat: Goat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", Mock(side_effect=OSError("no network")))
    write(tmp_path, TINY.replace('"top2"', '"disease-nc"').replace("epochs = 3", "epochs = 1"))
    ended = goat("reproduce", "tiny.toml", "--jobs", "1", "--device", "cpu")
    assert ended.err.count("Top-2 is left empty: disease-nc needs Disease/disease_nc/disease_nc.feats.npz") == 1
    assert "Not run for want of data: Top-2 (disease-nc)." in ended.out
    with open(tmp_path / "results/tiny.csv", newline="") as file:
        runs = {(one["row"], one["column"]): one["runs"] for one in csv.DictReader(file)}
    counts = {"size": "2", "pooling": "0"}
    assert runs == {(row, column): count for row in ("gcn", "gat", "gat-relu") for column, count in counts.items()}


@pytest.mark.usefixtures("quick_processes")
def test_a_plan_that_another_machine_runs_is_collected(
    goat: Goat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    asked = ["reproduce", "tiny.toml", "--datasets", "size", "--out", "there/results"]
    ended = goat(*asked, "--plan-only", "there/PLAN.json")
    assert ended.out == "Wrote 6 runs to there/PLAN.json.\n"
    (tmp_path / "there").rename(tmp_path / "elsewhere")
    assert worker(["elsewhere/PLAN.json", "--jobs", "1", "--device", "cpu"]) == 0
    capsys.readouterr()
    (tmp_path / "elsewhere").rename(tmp_path / "there")
    monkeypatch.setattr(reproduce, "run_plan", no_training)
    ended = goat(*asked, "--format", "csv")
    assert [record["runs"] for record in csv.DictReader(ended.out.splitlines())] == ["2", "2", "2"]


def test_cells_on_demand_are_run_when_their_row_is_named(goat: Goat, tmp_path: Path) -> None:
    write(tmp_path, TINY + '\n[on_demand]\nrows = ["gat", "gat-relu"]\ncolumns = ["size"]\n')

    def planned(*arguments: str) -> set[tuple[str, str]]:
        (tmp_path / "PLAN.json").unlink(missing_ok=True)
        goat("reproduce", "tiny.toml", *arguments, "--plan-only", "PLAN.json")
        return {tuple(Path(run["folder"]).parts[-3:-1]) for run in json.loads(Path("PLAN.json").read_text())["runs"]}

    pooling = {("pooling", row) for row in ("gcn", "gat", "gat-relu")}
    assert planned() == {("size", "gcn"), *pooling}
    assert planned("--datasets", "size") == {("size", "gcn")}
    assert planned("--only", "gat", "--datasets", "size") == {("size", "gat")}
    shown = " ".join(goat("reproduce", "tiny.toml", "--collect").out.split())
    assert "Run when --only names their rows: Effective size: gat, gat-relu." in shown


def test_recipes_can_be_printed_copied_and_given_found_settings(goat: Goat, tmp_path: Path) -> None:
    assert goat("reproduce", "table1", "--show").out == RECIPES["table1"].read_text(encoding="utf-8")
    found = Experiment("top2", model=ModelOptions(name="gat", hidden_channels=12))
    (tmp_path / "best.toml").write_text(settings.dumps(found))
    shown = goat("reproduce", "table1", "--settings", "gat=best.toml", "--show").out
    mine = read_recipe(write(tmp_path, shown, "mine.toml"))
    assert mine.options("gat", "top2") == (found.model, found.training)
    assert mine.options("gcn", "top2") == read_recipe("table1").options("gcn", "top2")
    shown = goat("reproduce", "table1", "--search", "5", "--show", "--out", "searched").out
    assert read_recipe(write(tmp_path, shown, "mine.toml")).search.trials == 5


def test_searched_settings_are_found_run_and_kept(goat: Goat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_this_process(runs, *, on_event, **_: object) -> list[Event]:
        ends = []
        for index, (folder, experiment) in enumerate(runs):
            ends.append(Event("finished", index, result=train(experiment, folder, device="cpu")))
            on_event(ends[-1])
        return ends

    column = 'dataset = "effective-size-100"'
    recipe = TINY.replace(column, f"{column}, repetitions = 3, finals = 2")
    write(tmp_path, f"{recipe}\n[search]\nfinalists = 2\n[search.space]\nlearning_rate = [0.001, 0.1]\n")
    asked = ("reproduce", "tiny.toml", "--only", "gcn,gat", "--datasets", "size")
    monkeypatch.setattr(reproduce, "run_plan", in_this_process)
    ended = goat(*asked, "--search", "3")
    assert "the best of 3 trials" in " ".join(ended.out.split())
    found = read_recipe("results/tiny.toml")
    for row in ("gcn", "gat"):
        values: dict[int, list[float]] = {}
        for path in sorted(Path("results/tiny/search/size", row).glob("*/*/result.json")):
            number = int(path.parts[-3])
            values.setdefault(number, []).append(json.loads(path.read_text())["metrics"]["val"]["mse"])
        assert [len(values[number]) for number in sorted(values, key=lambda one: values[one][0])] == [2, 2, 1]
        best = min((number for number in values if len(values[number]) == 2), key=lambda one: sum(values[one]))
        trial = settings.read(Experiment, f"results/tiny/search/size/{row}/{best}/0/config.toml")
        assert found.options(row, "size") == (trial.model, trial.training)
        # The search has had the first two runs of what it found; the third is trained.
        assert [path.parent.name for path in Path("results/tiny/size", row).glob("*/config.toml")] == ["2"]
        assert settings.read(Experiment, f"results/tiny/size/{row}/2/config.toml").training == trial.training
        results = {name: line["result"] for name, line in read_lines(Path("results/tiny.jsonl")).items()}
        assert results[f"size/{row}/1"] == results[f"search/size/{row}/{best}/1"]
    # From the lines alone the same table comes out, and nothing is run.
    Path("results/tiny").rename("elsewhere")
    monkeypatch.setattr(reproduce, "run_plan", no_training)
    assert goat(*asked).out == ended.out
    refused = goat(*asked, "--search", "4", code=2)
    assert "results/tiny has a search with 3 trials for each cell; choose another --out." in refused.err


@pytest.mark.usefixtures("quick_processes")
def test_table_1_runs_from_the_command_to_the_table(goat: Goat, tmp_path: Path) -> None:
    decimals = {"betweenness-100": 4, "effective-size-1000": 5, "top2": 2}
    options = ["--datasets", ",".join(decimals), "--jobs", "2", "--device", "cpu", "--out", str(tmp_path)]
    ended = goat("reproduce", "table1", "--quick", *options)
    recipe = read_recipe("table1")
    runs = [
        run
        for run in plan(recipe, quick=True)
        if run.column in decimals and not recipe.is_on_demand(run.row, run.column)
    ]
    assert len(runs) == (len(recipe.rows) * len(decimals) - 2) * 2  # two cells are run on demand
    metrics = metrics_in(tmp_path / "table1-quick", runs)
    check_csv(tmp_path / "table1-quick.csv", metrics)
    markdown = (tmp_path / "table1-quick.md").read_text(encoding="utf-8")
    for (row, column), values in metrics.items():
        mean, std, digits = np.mean(values), np.std(values, ddof=1), decimals[column]
        published = recipe.published(row, column)
        for text in (ended.out, markdown):
            assert f"{mean:.{digits}f}" in text
            assert f" ± {std:.{digits}f}" in text
            if published is not None:
                assert f"paper {published.text} ({mean - published.mean:+.{digits}f})".replace("-", "−") in text
