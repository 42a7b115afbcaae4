import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import torch_goat
from tests.experiments.training.graphs import tiny
from torch_goat.data import datasets
from torch_goat.data.loader import write_graph
from torch_goat.data.loader.folder import digest
from torch_goat.experiments import Experiment, Run, RunError, TrainingOptions, train
from torch_goat.experiments.models import ModelOptions
from torch_goat.settings import SettingsError

SHORT = TrainingOptions(epochs=3, patience=0)


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
        ("model.safetensors", b"\x00" * 20, "damaged"),
        ("model.safetensors", pickle.dumps({"weight": 1}), "damaged"),
        ("config.toml", b'dataset = "top2"\n[model]\nname = "gin"', "damaged .*Missing key"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    run_folder: Path, tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    folder = shutil.copytree(run_folder, tmp_path / "run")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(RunError, match=message) as caught:
        Run(folder).result if file == "result.json" else torch_goat.load(folder)
    assert "\n" not in str(caught.value)
