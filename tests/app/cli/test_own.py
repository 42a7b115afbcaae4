import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.conftest import Goat
from tests.data.tables.files import EDGES, NODES, write
from torch_goat import settings
from torch_goat.experiments import Experiment, Result, Run, TrainingOptions, verdict
from torch_goat.experiments.comparison import RunGroup
from torch_goat.experiments.own_graph import MODELS
from torch_goat.experiments.verdict import shown as model_name

FAST = ["--set", "epochs=3", "--set", "hidden_channels=4", "--device", "cpu"]
TABLES = ["nodes.csv", "edges.csv", "--target", "label"]
VILLAGE = Path(__file__).parents[3] / "examples" / "village"


@pytest.fixture
def tables(goat: Goat, tmp_path: Path) -> list[str]:
    write(tmp_path)
    return TABLES


def test_what_was_read_is_shown_and_one_model_is_trained(goat: Goat, tables: list[str]) -> None:
    ended = goat("train", *tables, "--model", "gcn", *FAST, "--out", "run")
    assert ", ..." not in ended.out
    rows = {line.split()[0]: line.split()[1:] for line in ended.out.splitlines() if " nodes " in f"{line} "}
    assert rows["age"][:3] == ["nodes", "number", "standardised"]
    for column in json.loads(Path("run/schema.json").read_text())["nodes"]:
        assert ("indicator" in rows[column["name"]]) is column["missing"]
    assert rows["town"][:2] == ["nodes", "category"]
    assert rows["member"][:2] == ["nodes", "flag"]
    assert "10 nodes, 10 undirected edges" in ended.out
    assert "2 classes (training nodes: no: 3, yes: 3)" in ended.out
    assert "Split: random, 6 training, 2 validation and 2 test nodes" in ended.out
    assert "goat predict run nodes.csv edges.csv -o predictions.csv" in ended.out
    found = settings.read(Experiment, Path("run/config.toml"))
    assert found.tables is not None
    assert (found.tables.target, found.split, found.model.name) == ("label", "random", "gcn")
    assert "Already finished" in goat("train", *tables, "--model", "gcn", *FAST, "--out", "run").out
    assert "own" not in goat("runs", ".").err
    # Its settings train the same model, also with a change.
    goat("train", "--config", "run/config.toml", "--out", "copy", "--device", "cpu")
    assert Path("run/model.safetensors").read_bytes() == Path("copy/model.safetensors").read_bytes()
    goat("train", *tables, "--config", "run/config.toml", "--out", "other", "--device", "cpu", "--seed", "4")
    assert settings.read(Experiment, Path("other/config.toml")).seed == 4
    # Other data are named instead of what follows from them, such as class weights and digests.
    other = goat("train", *tables[:2], "--target", "town", "--model", "gcn", *FAST, "--out", "run", code=1).err
    assert "run holds another experiment (tables.target = 'label' there, 'town' here); choose another" in other
    Path("nodes.csv").write_text(NODES.replace("30", "31"))
    changed = goat("train", *tables, "--model", "gcn", *FAST, "--out", "run", code=1).err
    assert "run holds another experiment (the tables have changed since); choose another folder." in changed


def test_it_is_said_whether_probabilities_are_rescaled(goat: Goat, tables: list[str]) -> None:
    command = ["train", *tables, "--model", "gcn", *FAST, "--out", "run"]
    out = goat(*command).out
    error = Run("run").result.calibration["test"]["error_before"]  # type: ignore[index]
    assert (
        "The probabilities of the run are not rescaled: with 2 validation nodes, there is no clear sign that they are "
        f"wrong. Expected calibration error on the test nodes: {100 * error:.1f} %.\n"
    ) in out
    written = json.loads(Path("run/result.json").read_text())
    written["calibration"]["test"] |= {"error_before": 0.079, "error_after": 0.089}
    for temperature, wrong in ((1.4, "certain"), (0.7, "cautious")):
        Path("run/result.json").write_text(json.dumps({**written, "temperature": temperature}))
        Path("run/digests.json").unlink(missing_ok=True)
        assert (
            f"The probabilities of the run are rescaled (temperature {temperature}), since they are too {wrong} on 2 "
            "validation nodes. Expected calibration error on the test nodes: 7.9 % before and 8.9 % after.\n"
        ) in goat(*command).out


def test_tables_take_the_place_of_the_arrays_in_a_config(goat: Goat, tables: list[str]) -> None:
    config = Experiment("arrays", graph="nowhere", graph_digest="0", training=TrainingOptions(epochs=2))
    Path("config.toml").write_text(settings.dumps(config))
    goat("train", *tables, "--config", "config.toml", "--out", "run", "--device", "cpu")
    found = settings.read(Experiment, Path("run/config.toml"))
    assert (found.graph, found.graph_digest) == ("", None)
    assert Path("run/schema.json").exists()
    with pytest.raises(ValueError, match="tables and graph = 'nowhere' cannot be combined"):
        replace(found, graph="nowhere")


def test_predict_writes_a_file_and_replaces_none_unasked(goat: Goat, tables: list[str]) -> None:
    goat("train", *tables, "--model", "gcn", *FAST, "--out", "run")
    ended = goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv")
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    truth = [line.rpartition(",")[2] for line in NODES.splitlines()[1:]]
    right = [row["prediction"] == true for row, true in zip(rows, truth, strict=True)]
    test = Run("run").graph().data.test_mask.tolist()
    good = sum(one for one, tested in zip(right, test, strict=True) if tested)
    assert (
        f"{good} of the 2 test nodes are predicted correctly; 6 other nodes were used for training and 2 for "
        "validation.\n"
    ) in ended.err
    Path("other").mkdir()
    write(Path("other"), NODES.replace("\nj,55", "\nj,56"))
    other = ["predict", "run", "other/nodes.csv", "other/edges.csv", "-o", "other.csv", "--force"]
    assert "of the 2 test nodes are predicted correctly; 6 other nodes were used for training" in goat(*other).err
    write(Path("other"), NODES + "k,1,Ulm,1,yes\n")
    assert re.search(r"\d of the 3 nodes with a known class are predicted correctly; 6 other nodes", goat(*other).err)
    write(Path("other"), re.sub("(?m)^.,", "new \\g<0>", NODES), "source,target\n")
    assert re.search(r"\d+ of the 10 nodes with a known class are predicted correctly\.\n", goat(*other).err)
    only = [line for line, tested in zip(NODES.splitlines()[1:], test, strict=True) if not tested]
    write(Path("other"), "\n".join([NODES.splitlines()[0], *only]), "source,target\n")
    assert "known class" not in goat(*other).err
    write(Path("other"))
    Path("nodes.csv").rename("moved.csv")
    assert "of the 2 test nodes" in goat(*other).err  # with the contents of the run's tables
    write(Path("other"), NODES.replace("\nj,55", "\nj,56"))
    gone = "10 nodes with a known class are predicted correctly; training nodes may be among them, since the tables of "
    assert f"{gone}the run are gone or have changed.\n" in goat(*other).err
    Path("moved.csv").rename("nodes.csv")
    refused = goat("predict", "nowhere", "nodes.csv", "edges.csv", "-o", "out.xlsx", code=2).err
    assert "predictions are written as CSV, got --out out.xlsx; name a file that ends in .csv." in refused
    Path("out.csv").write_text("mine")
    refused = goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv", code=2)
    assert "out.csv already exists" in refused.err
    assert Path("out.csv").read_text() == "mine"
    goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv", "--force")
    assert Path("out.csv").read_text() == goat("predict", "run", "nodes.csv", "edges.csv").out


def test_an_exported_dataset_trains_and_predicts(goat: Goat) -> None:
    ended = goat("datasets", "export", "betweenness-100", "graph")
    assert "goat train graph" in ended.out
    goat("datasets", "export", "betweenness-100", "graph", code=2)
    goat("datasets", "export", "betweenness-100", "graph", "--force")
    ended = goat("train", "graph", "--model", "gcn", *FAST, "--out", "run")
    assert "Split: column 'split', 60 training, 20 validation and 20 test nodes" in ended.out
    ended = goat("predict", "run", "graph", "-o", "out.csv")
    assert "mean absolute error on the 20 test nodes" in ended.err
    assert "60 other nodes were used for training and 20 for validation." in ended.err
    goat("train", "graph", "--fractions", "0.5,0.25,0.25", "--model", "mlp", *FAST, "--out", "b")
    found = settings.read(Experiment, Path("b/config.toml")).tables
    assert found is not None
    assert (found.split, found.train) == ("random", 0.5)


def test_without_a_model_all_are_compared_on_the_same_splits(goat: Goat, tables: list[str]) -> None:
    fast = ["--set", "epochs=2", "--device", "cpu", "--repeats", "2", "--minutes", "0"]
    ended = goat("train", *tables, *fast, "--out", "all")
    folders = [path for path in Path("all").iterdir() if path.is_dir()]
    assert {path.name for path in folders} == {f"{model}-{repeat}" for model in MODELS for repeat in range(2)}
    assert "Plan: 16 runs of 8 models, about " in ended.out
    assert ended.err.startswith(
        "Trying each model for a few epochs, the simplest first ...\ntrial 1 of 8: majority class\n"
    )
    assert "trial 8 of 8: GOAT\n" in ended.err
    assert "trial" not in goat("train", *tables, *fast, "--out", "all").err  # the plan is stored
    for number in range(1, 17):
        assert f"run {number} of 16: " in ended.err
    results = {path.name: Result.from_json((path / "result.json").read_text()) for path in folders}
    means = {
        model: sum(results[f"{model}-{repeat}"].metrics["val"]["accuracy"] for repeat in range(2)) / 2
        for model in MODELS
    }
    best = re.search(r"The best run of .+ is in (\S+)", ended.out)[1]
    winner = Path(best).name[:-2]  # which is recommended, because two runs do not show that a cheaper one is as good
    assert f"The best run of {model_name(winner)} is in {best}" in ended.out
    assert f"The probabilities of the best run of {model_name(winner)} are " in ended.out
    assert means[winner] == max(means.values())
    assert "Too few runs to tell whether" in ended.out  # two
    alone = list(means.values()).count(means[winner]) == 1
    assert not alone or f"{model_name(winner)} is best on the validation nodes" in ended.out
    assert "wins" not in ended.out
    value = results[Path(best).name].metrics["val"]["accuracy"]
    assert value == max(results[f"{winner}-{repeat}"].metrics["val"]["accuracy"] for repeat in range(2))
    configs = [settings.read(Experiment, path / "config.toml") for path in sorted(folders)]
    assert {(one.index, one.seed) for one in configs} == {(0, 0), (1, 1)}
    assert len({one.tables for one in configs}) == 1
    recorded = {one.model.name: one.training.record_orderings for one in configs}
    assert recorded == dict.fromkeys(MODELS, ()) | {"goat": (0,)}  # of those epochs that two leave
    assert (
        "Kendall's tau between this order and that of another epoch" in goat("explain", "all/goat-0", "--node", "a").out
    )
    for command in (f"predict {best}", "explain all/goat-", "report all "):
        assert f"  goat {command}" in ended.out


def test_the_commands_use_the_run_of_the_recommended_model(
    goat: Goat, tables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not of the best one, if another is as good and cheaper."""

    def recommend(groups: Sequence[RunGroup[Run]], *more: object) -> tuple[RunGroup[Run], str]:
        return groups[-1], f"Recommended: {groups[-1].name}."

    monkeypatch.setattr(verdict, "_recommend", recommend)
    monkeypatch.setattr(verdict, "_useful", lambda groups, compare: (groups, ""))
    ended = goat("train", *tables, "--set", "epochs=1", "--device", "cpu", "--repeats", "2", "--out", "all")
    name, folder = re.search(r"The best run of (.+) is in all/(\S+)", ended.out).groups()
    assert f"Recommended: {name}." in ended.out
    assert f"{name} is best on the validation nodes" not in ended.out
    assert f"The probabilities of the best run of {name} are " in ended.out
    assert f"  goat predict all/{folder} nodes.csv" in ended.out
    number = int(folder[-1])
    both = [Run(f"all/{folder[:-1]}{seed}").result.metrics["val"]["accuracy"] for seed in range(2)]
    assert both[number] == max(both)
    assert model_name(folder[:-2]) == name


def test_numbers_are_compared_by_rmse_and_older_runs_without_it_by_mse(goat: Goat, tmp_path: Path) -> None:
    ages = [f"n{number},{number % 5},{20 + 7 * number % 31}.5" for number in range(30)]
    write(tmp_path, "\n".join(["id,x,label", *ages]), "source,target\nn0,n1\nn1,n2\n")
    few = "--set epochs=2 --device cpu --repeats 1 --minutes 0 --out all"
    command = ["train", *TABLES, *few.split()]
    ended = goat(*command)
    assert "validation root mean squared error" in ended.out
    assert ended.err.count(": validation rmse ") == len(MODELS)
    goat("report", "all", "-o", "report.html")
    assert "has a root mean squared error of" in Path("report.html").read_text(encoding="utf-8")
    rows = json.loads(goat("runs", "all", "--format", "json").out)
    assert {row["metric"] for row in rows} == {"rmse"}
    result = json.loads(Path("all/gcn-0/result.json").read_text())
    for values in result["metrics"].values():
        del values["rmse"], values["mae"]
    Path("all/gcn-0/result.json").write_text(json.dumps(result))
    Run(tmp_path / "all/gcn-0").accept()
    ended = goat(*command)
    assert "validation mean squared error" in ended.out
    assert (ended.err.count("validation mse "), ended.err.count("validation rmse ")) == (1, len(MODELS) - 1)
    message = "there is no metric 'mse'"
    assert message in goat("train", *TABLES, "--metric", "mse", "--out", "other", code=2).err


def test_orders_that_are_asked_for_are_those_of_goat(goat: Goat, tables: list[str]) -> None:
    goat("train", *tables, *FAST, "--set", "record_orderings=[1,3]", "--repeats", "1", "--out", "all")
    assert sorted(path.name for path in Path("all").glob("*/orderings/*")) == [
        "epoch-1-layer-1.safetensors",
        "epoch-3-layer-1.safetensors",
    ]


def test_a_graph_without_edges_is_explained_and_reported(goat: Goat, tmp_path: Path) -> None:
    write(tmp_path, edges="source,target\n")
    goat("train", *TABLES, "--model", "goat", *FAST, "--out", "run")
    assert "0 neighbours" in goat("explain", "run", "--node", "a").out
    goat("report", "run", "-o", "report.html")
    assert "there are no orders to compare" in Path("report.html").read_text()


def test_classes_weigh_the_same_on_request_and_edge_features_are_for_those_that_read_them(
    goat: Goat, tables: list[str], tmp_path: Path
) -> None:
    write(tmp_path, NODES.replace("b,40,Bonn,0,no", "b,40,Bonn,0,yes").replace("d,20,Bonn,0,no", "d,20,Bonn,0,yes"),
          EDGES.replace("\n", ",1.5\n").replace("target,1.5", "target,weight"))  # fmt: skip
    ended = goat("train", *tables, "--edge-features", "--repeats", "1", "--set", "epochs=2", "--out", "all")
    assert "the classes are unbalanced" not in ended.out  # 4 to 2
    assert "only GOAT and GAT use edge features" in ended.out
    reads = {name: settings.read(Experiment, Path(f"all/{name}-0/config.toml")).tables for name in ("gat", "sage-mean")}
    assert [one is not None and one.edge_features for one in reads.values()] == [True, False]
    lines = [f"n{number},{number},{'rare' if number % 5 == 0 else 'often'}" for number in range(40)]
    write(tmp_path, "\n".join(["id,x,label", *lines]), "source,target\nn0,n1\n")
    ended = goat("train", *tables, "--model", "gcn", *FAST, "--out", "plain")
    assert "the classes are unbalanced; with --metric macro_f1 all of them count equally" in ended.out
    assert not settings.read(Experiment, Path("plain/config.toml")).training.class_weights
    ended = goat("train", *tables, "--model", "gcn", "--metric", "macro_f1", *FAST, "--out", "weighted")
    assert "the classes are unbalanced" not in ended.out
    assert settings.read(Experiment, Path("weighted/config.toml")).training.class_weights
    goat("train", *tables, "--model", "gcn", "--metric", "roc_auc", *FAST, "--out", "ranked")
    ranked = settings.read(Experiment, Path("ranked/config.toml")).training
    assert (ranked.metric, ranked.class_weights) == ("roc_auc", False)
    result = json.loads(Path("weighted/result.json").read_text())["metrics"]["val"]
    assert f" macro_f1 {100 * result['macro_f1']:.2f} % " in " ".join(goat("runs", "weighted").out.split())


def test_the_command_line_takes_the_place_of_a_folders_split(goat: Goat, tmp_path: Path) -> None:
    write(tmp_path)
    parts = ["train"] * 4 + ["val"] * 3 + ["test"] * 3
    lines = NODES.splitlines()
    nodes = [f"{lines[0]},part,year", *(f"{line},{part},2001" for line, part in zip(lines[1:], parts, strict=True))]
    nodes = [line.replace("2001", str(2000 + number)) for number, line in enumerate(nodes)]
    Path("nodes.csv").write_text("\n".join(nodes))
    for said, given in (("time_column = 'year'", "part"), ("split_column = 'part'", "year")):
        Path("graph.toml").write_text(f"nodes = 'nodes.csv'\nedges = 'edges.csv'\ntarget = 'label'\n{said}\n")
        option, split = ("--split-column", "column") if given == "part" else ("--time-column", "time")
        ended = goat("train", ".", option, given, "--model", "gcn", *FAST, "--out", f"by-{given}")
        assert f"Split: {split} {given!r}" in ended.out


def test_each_fold_and_each_split_column_is_one_run_of_a_model(goat: Goat, tmp_path: Path) -> None:
    parts = ["train", "val", "test"]
    lines = [
        f"n{number},{number % 7},{parts[number % 3]},{parts[number // 3 % 3]},{'ab'[number % 2]}"
        for number in range(30)
    ]
    write(tmp_path, "\n".join(["id,x,part_1,part_2,label", *lines]), "source,target\nn0,n1\n")
    fast = ["--set", "epochs=1", "--device", "cpu"]
    by_folds = [*TABLES, "--folds", "2", "--drop", "part_1", "--drop", "part_2", *fast]
    ended = goat("train", *by_folds, "--repeats", "2", "--out", "folds")
    assert "Split: fold 1 of 2, " in ended.out
    configs = {path.parent.name: settings.read(Experiment, path) for path in Path("folds").glob("*/config.toml")}
    assert {(one.index, one.seed) for name, one in configs.items() if name.startswith("gat-")} == {
        (0, 0), (1, 0), (2, 1), (3, 1)
    }  # fmt: skip
    assert {one.split for one in configs.values()} == {"folds"}
    tested = [Run(f"folds/gat-{number}").graph().data.test_mask for number in range(4)]
    assert bool((tested[0] ^ tested[1]).all())
    assert not bool((tested[0] == tested[2]).all())
    goat("train", *TABLES, "--split-column", "part_*", *fast, "--out", "columns")
    assert sorted(path.name for path in Path("columns").glob("goat-*")) == ["goat-0", "goat-1"]
    masks = [Run(f"columns/goat-{number}").graph().data.test_mask.tolist() for number in range(2)]
    assert masks == [[number % 3 == 2 for number in range(30)], [number // 3 % 3 == 2 for number in range(30)]]
    goat("train", *TABLES, "--split-column", "part_*", "--index", "1", "--model", "gcn", *fast, "--out", "one")
    assert Run("one").graph().data.test_mask.tolist() == masks[1]
    goat("report", "columns", "-o", "report.html")
    goat("predict", "columns/goat-1", "nodes.csv", "edges.csv", "-o", "predictions.csv")


def test_the_example_is_what_its_script_draws(tmp_path: Path) -> None:
    names: dict = {"__name__": "make", "__file__": str(tmp_path / "make.py")}
    exec((VILLAGE / "make.py").read_text(), names)
    names["write"](tmp_path)
    for name in ("nodes.csv", "edges.csv"):
        assert (tmp_path / name).read_bytes() == (VILLAGE / name).read_bytes()


def test_a_damaged_run_is_one_sentence_that_names_the_file(goat: Goat, tables: list[str]) -> None:
    goat("train", *tables, "--model", "goat", *FAST, "--out", "run")
    files = ["config.toml", "result.json", "schema.json", "model.safetensors", "metrics.csv"]
    for name in [*files, "orderings/epoch-0-layer-1.safetensors"]:
        path = Path("run") / name
        whole = path.read_bytes()
        for content in (b"", b"\x80\x04rubbish", whole[: len(whole) // 2]):
            path.write_bytes(content)
            ended = goat("report", "run", "-o", "out.html", code=1)
            assert ended.err.count("\n") == 1
            assert f" is damaged ({name}: " in ended.err
            if name == "model.safetensors":
                ended = goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv", code=1)
                assert f"the run folder run is damaged ({name}: " in ended.err
        path.write_bytes(whole)
    assert not Path("out.html").exists()
    assert not Path("out.csv").exists()
    shutil.rmtree("run")
    assert "run is not a run folder" in goat("predict", "run", "nodes.csv", "edges.csv", code=1).err


def test_small_and_many_targets_are_shown(goat: Goat, tmp_path: Path) -> None:
    lines = [f"n{number},{number},{(number % 7) * 1e-7}" for number in range(30)]
    ring = "".join(f"n{number},n{(number + 1) % 30}\n" for number in range(30))
    write(tmp_path, "\n".join(["id,x,label", *lines]), f"source,target\n{ring}")
    ended = goat("train", *TABLES, "--model", "goat", *FAST, "--out", "run")
    for shown in (ended.out, goat("runs", ".").out, goat("explain", "run", "--node", "n3").out):
        assert "0.0000" not in shown
        assert "e-" in shown
    lines = [f"n{number},{number},c{number % 25}" for number in range(100)]
    write(tmp_path, "\n".join(["id,x,label", *lines]), f"source,target\n{ring}")
    assert ", ...)." in goat("train", *TABLES, "--model", "gcn", *FAST, "--out", "many").out


def test_letters_that_the_output_cannot_hold(
    goat: Goat, tables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, NODES.replace("a,30", "ж,30"), EDGES.replace("a,b", "ж,b").replace("j,a", "j,ж"))
    goat("train", *tables, "--model", "gcn", *FAST, "--out", "run")

    def ascii_only(*arguments: str, code: int = 0) -> tuple[bytes, str]:
        printed = io.BytesIO()
        stream = io.TextIOWrapper(printed, encoding="ascii", write_through=True)  # which closes what it wraps
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            ended = goat(*arguments, code=code)
        return printed.getvalue(), ended.err

    printed, error = ascii_only("predict", "run", "nodes.csv", "edges.csv", code=2)
    assert printed == b""
    assert "lacks 'ж'; write the predictions to a file with --out." in error
    printed, error = ascii_only("explain", "run", "--node", "b")
    assert error == ""
    assert b" ? " in printed
