import csv
import logging
import os
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import torch_goat
from tests.data.tables.files import write
from tests.experiments.search.cases import small_search
from tests.experiments.training.graphs import tiny
from torch_goat.data import datasets
from torch_goat.data.loader import write_graph
from torch_goat.data.loader.folder import digest
from torch_goat.data.tables import TableError, load_tables
from torch_goat.experiments import (
    Experiment,
    Result,
    Run,
    RunError,
    TrainingOptions,
    compare_models,
    find_runs,
    predict,
    train,
)
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.run import _note_unverified
from torch_goat.experiments.search.study import Study
from torch_goat.settings import SettingsError

SHORT = TrainingOptions(epochs=3, patience=0)
RESULT = Result(
    {split: {"accuracy": 0.5} for split in ("train", "val", "test")}, 1, 3, "epochs", 1.0, 0.1, 1000, "CPU", {}, ""
).to_json().encode()  # fmt: skip
READ: dict[str, Callable[[Run], object]] = {
    "config.toml": lambda run: run.experiment,
    "schema.json": lambda run: run.schema,
    "model.safetensors": lambda run: run.network,
    "metrics.csv": lambda run: run.curves,
    "result.json": lambda run: run.result,
    "orderings/epoch-0-layer-1.safetensors": lambda run: list(run.orderings),
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("load") / "run"
    train(Experiment("top2", index=1, model=ModelOptions(name="gcn"), training=SHORT), folder, device="cpu")
    return folder


def test_arrays_that_changed_are_noticed(tmp_path: Path) -> None:
    arrays, data = tmp_path / "arrays", tiny()
    write_graph(data, arrays)
    one = Experiment("mine", model=ModelOptions(name="gcn"), training=SHORT, graph=str(arrays))
    one = replace(one, graph_digest=digest(arrays))
    train(one, tmp_path / "run", device="cpu")
    assert torch.equal(Run(tmp_path / "run").graph().data.y, data.y)
    data.y[7] = (data.y[7] + 1) % 3
    write_graph(data, arrays, force=True)
    changed = f"the arrays in {arrays} changed since the run was started"
    with pytest.raises(SettingsError, match=changed):
        Run(tmp_path / "run").graph()
    with pytest.raises(SettingsError, match=changed):
        train(one, tmp_path / "other", device="cpu")
    assert not (tmp_path / "other").exists()
    data.x = data.x[:, :4]
    write_graph(data, arrays, force=True)
    with pytest.raises(SettingsError, match=changed):
        torch_goat.load(tmp_path / "run")


def test_the_graph_is_the_one_of_the_run(run_folder: Path) -> None:
    data, ids, classes, *_ = graph = Run(run_folder).graph()
    expected = datasets.load("top2", index=1)
    assert not torch_goat.load(run_folder).training
    assert torch.equal(data.x, expected.x)
    assert torch.equal(data.test_mask, expected.test_mask)
    assert (len(ids), ids[7], classes) == (1000, "7", ("0", "1"))
    assert graph.node("7") == 7
    with pytest.raises(SettingsError, match="no node '7x' in the graph; did you mean '7"):
        graph.node("7x")
    with pytest.raises(SettingsError, match=r"no node 'Oz' in the graph, whose nodes are 0, 1, 2, \.\.\.; name one"):
        graph.node("Oz")


@pytest.mark.parametrize(("dataset", "name"), [("betweenness-100", "mlp"), ("top2", "pna")])
def test_regression_and_stored_degrees_come_back(tmp_path: Path, dataset: str, name: str) -> None:
    model = ModelOptions(name=name, hidden_channels=4)
    result = train(Experiment(dataset, model=model, training=SHORT), tmp_path / "run", device="cpu")
    run = Run(tmp_path / "run")
    data = run.graph().data
    out = run.network(data.x, data.edge_index).detach()[data.test_mask]
    y = data.y[data.test_mask]
    value = (out.argmax(-1) == y).double().mean() if name == "pna" else (out.view(-1) - y).square().mean()
    assert float(value) == pytest.approx(next(iter(result.metrics["test"].values())), rel=1e-5)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.toml", None, "not a run folder: it has no config.toml"),
        ("result.json", None, "not done: it has no result.json"),
        ("model.safetensors", None, "damaged"),
        ("config.toml", b"dataset = [", "damaged .*not a TOML file"),
        ("config.toml", b"\xff\xfe", "damaged .*not a TOML file"),
        ("config.toml", b'dataset = "nothing"', "damaged .*no dataset 'nothing'"),
        ("result.json", b"{}", "damaged"),
        ("result.json", b"[1]", "damaged"),
        ("result.json", b"[" * 10_000, "damaged"),
        ("result.json", RESULT.replace(b'"epochs": 3', b'"epochs": "x3"'), "damaged .*epochs must be a whole number"),
        ("result.json", RESULT.replace(b'"val": {', b'"wal": {'), "damaged .*no metrics of the validation nodes"),
        ("config.toml", b"x = " + b"[" * 10_000, "damaged .*not a TOML file"),
        ("config.toml", b".".join([b"a"] * 100_000) + b" = 1", "damaged .*not a TOML file"),
        ("model.safetensors", b"\x00" * 20, "damaged"),
        ("model.safetensors", pickle.dumps({"weight": 1}), "damaged"),
        ("config.toml", b'dataset = "top2"\n[model]\nname = "gin"', "damaged .*Missing key"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    run_folder: Path, tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    folder = shutil.copytree(run_folder, tmp_path / "run")
    (folder / "digests.json").unlink()  # as in a folder of an earlier version
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(RunError, match=message) as caught:
        Run(folder).result if file == "result.json" else torch_goat.load(folder)
    assert "\n" not in str(caught.value)


def run(folder: Path, model: str = "gcn", record: tuple[int, ...] = (), **more) -> Path:
    """A short run on the tables that it writes."""
    tables = write(folder, **more)
    tables = replace(tables, digest=load_tables(tables).digest)
    training = replace(SHORT, learning_rate=0.05, record_orderings=record)
    options = ModelOptions(name=model, dropout=0.0, backend="torch" if model == "goat" else "auto")
    wanted = Experiment("own", "random", model=options, training=training, tables=tables)
    train(wanted, folder / "run", device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("trained"))


def test_predictions_are_what_the_trained_network_says(trained: Path) -> None:
    done = Run(trained)
    graph = done.graph()
    assert (graph.ids, graph.classes, graph.target) == (tuple("abcdefghij"), ("no", "yes"), "label")
    found = predict(done, trained.parent / "nodes.csv", trained.parent / "edges.csv")
    out = torch_goat.load(trained)(graph.data.x, graph.data.edge_index)
    torch.testing.assert_close(found.probabilities.float(), (out / done.result.temperature).softmax(-1))
    assert list(found.values) == [graph.classes[number] for number in out.argmax(-1).tolist()]
    accuracy = (out.argmax(-1) == graph.data.y)[graph.data.test_mask].double().mean()
    assert float(accuracy) == done.result.metrics["test"]["accuracy"]

    header, *rows = csv.reader(found.to_csv().splitlines())
    assert header == ["id", "prediction", "probability of no", "probability of yes"]
    assert [row[0] for row in rows] == list(graph.ids)
    for name, value, *shares in rows:
        assert sum(map(float, shares)) == pytest.approx(1, abs=1e-5)
        assert value == ("no", "yes")[float(shares[1]) > float(shares[0])], name


def test_numbers_are_predicted_in_their_own_unit(tmp_path: Path) -> None:
    done = Run(run(tmp_path, target="age", drop=("label",)))
    graph = done.graph()
    found = predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")
    out = done.network(graph.data.x, graph.data.edge_index).detach().view(-1)
    values = torch.tensor(found.values)
    torch.testing.assert_close(values, (out * graph.target_scale + graph.target_mean).to(values.dtype))
    truth = torch.tensor([30, 40, 0, 20, 50, 60, 35, 45, 25, 55.0])
    error = (values - truth).square()[graph.data.test_mask].mean()
    assert done.result.metrics["test"]["mse"] == pytest.approx(float(error), rel=1e-4)
    assert found.to_csv().splitlines()[0] == "id,prediction"
    far = found._replace(values=tuple(1e8 + value for value in found.values))
    written = [float(line.partition(",")[2]) for line in far.to_csv().splitlines()[1:]]
    assert written == pytest.approx(list(far.values), rel=0, abs=0.01)


def test_edge_features_are_read_again(tmp_path: Path) -> None:
    edges = "source,target,weight\na,b,1\nb,c,5\nc,d,2\nd,e,9\ne,f,1\nf,a,4\ng,h,3\nh,i,1\ni,j,7\n"
    done = Run(run(tmp_path, "gat", edges=edges, edge_features=True))
    first = predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")
    (tmp_path / "edges.csv").write_text(edges.replace("b,c,5", "b,c,-5"))
    other = predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")
    assert not torch.equal(first.probabilities, other.probabilities)
    with pytest.raises(TableError, match="changed since the run was started"):
        done.graph()
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    with pytest.raises(TableError, match=r"edges\.csv, line 1: there is no column 'weight' for a feature"):
        predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")


def test_a_model_that_reads_no_edge_features_refuses_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no layer of this network \(gcn -> gcn\) reads edge features"):
        run(tmp_path, edges="source,target,weight\na,b,1\nb,c,5\n", edge_features=True)


def test_named_datasets_have_no_tables_to_predict_on(run_folder: Path) -> None:
    with pytest.raises(SettingsError, match="was trained on the dataset 'top2'"):
        predict(Run(run_folder), "nodes.csv", "edges.csv")


@pytest.mark.parametrize("content", [None, "{", '{"format": 99}', "[]", '{"target": "label"}', "[" * 10_000])
def test_a_schema_that_is_damaged_is_refused(tmp_path: Path, trained: Path, content: str | None) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    (copy / "digests.json").unlink()  # as in a folder of an earlier version
    (copy / "schema.json").unlink()
    if content is not None:
        (copy / "schema.json").write_text(content)
    with pytest.raises(RunError, match="damaged"):
        torch_goat.load(copy)


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("ordered"), "goat", record=(0,))


@pytest.mark.parametrize("name", READ)
def test_a_flipped_bit_is_noticed_where_the_file_is_read(ordered: Path, tmp_path: Path, name: str) -> None:
    draw, folder = random.Random(name), Path(shutil.copytree(ordered, tmp_path / "run"))
    whole = (folder / name).read_bytes()
    for _ in range(20):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        (folder / name).write_bytes(damaged)
        with pytest.raises(RunError, match=rf"damaged \({name}: it differs from digests.json; goat runs --accept"):
            READ[name](Run(folder))
    (folder / name).write_bytes(whole)
    for read in READ.values():
        assert read(Run(folder)) is not None


@pytest.mark.parametrize("content", ["{", "[1]", "{}", "[" * 10_000])
def test_damaged_digests_are_noticed(ordered: Path, tmp_path: Path, content: str) -> None:
    folder = Path(shutil.copytree(ordered, tmp_path / "run"))
    (folder / "digests.json").write_text(content)
    for read in READ.values():
        with pytest.raises(RunError, match=r"is damaged \(.*digests\.json"):
            read(Run(folder))


def test_an_edit_is_accepted_on_request(ordered: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ordered, tmp_path / "run"))
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("weight_decay = 0.0005", "weight_decay = 0.1"))
    with pytest.raises(RunError, match=r"config\.toml"):
        torch_goat.load(folder)
    files, changed = Run(folder).accept()
    assert (sorted(files), changed) == (sorted(READ), ["config.toml"])
    assert Run(folder).experiment.training.weight_decay == 0.1
    assert not torch_goat.load(folder).training
    assert Run(folder).accept() == (files, [])
    config.write_text("dataset = [")  # never what nobody can read
    with pytest.raises(RunError, match=r"config\.toml: not a TOML file"):
        Run(folder).accept()


def test_a_run_of_an_earlier_version_is_read_with_one_note(
    ordered: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _note_unverified.cache_clear()
    for name in ("first", "second"):
        folder = Path(shutil.copytree(ordered, tmp_path / name))
        (folder / "digests.json").unlink()
        for read in READ.values():
            assert read(Run(folder)) is not None
    [(_, level, note)] = caplog.record_tuples
    assert level == logging.WARNING
    assert "no digests.json" in note
    _, changed = Run(folder).accept()
    assert sorted(changed) == sorted(READ)


@pytest.mark.parametrize("name", [*READ, "digests.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "huge", "loop"])
def test_only_regular_files_of_a_reasonable_size_are_read(ordered: Path, tmp_path: Path, name: str, kind: str) -> None:
    folder = Path(shutil.copytree(ordered, tmp_path / "run"))
    path = folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    with pytest.raises(RunError, match=rf"damaged \({name}: (not a regular file|Is a directory|too large|Too many)"):
        READ.get(name, READ["config.toml"])(Run(folder))


def test_no_run_hides_another(tmp_path: Path) -> None:
    run(tmp_path)
    alone = Run(tmp_path / "run").experiment
    with pytest.raises(RunError, match=f"^{tmp_path} holds the run {tmp_path}/run, which a run in it would hide"):
        train(alone, tmp_path, device="cpu")
    assert alone.tables is not None
    assert not (tmp_path / "config.toml").exists()
    with pytest.raises(RunError, match=f"^{tmp_path}/run is a run, which hides runs in folders below; choose another"):
        compare_models(alone.tables, tmp_path / "run", models=("constant",), device="cpu")
    with pytest.raises(RunError, match=f"^{tmp_path}/run is a run, which hides runs"):
        Study(small_search(), tmp_path / "run", "", 1)
    assert [found.folder for found in find_runs(tmp_path)] == [tmp_path / "run"]
