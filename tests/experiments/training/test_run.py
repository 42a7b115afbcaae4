import csv
import json
import math
import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.experiments.training.graphs import tiny
from tests.experiments.training.test_resume import outcome
from tests.processes import largest_file, stop_after
from torch_goat import settings
from torch_goat.data.loader import write_graph
from torch_goat.experiments import (
    Epoch,
    Experiment,
    Interrupted,
    Result,
    Run,
    RunError,
    TrainingOptions,
    finished,
    train,
)
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.training import train as run_module
from torch_goat.files import Busy, locked
from torch_goat.nn import Ordering

GOAT = ModelOptions(name="goat", hidden_channels=4, backend="torch")
BATCHES = {"batch_size": 7, "fanout": (3, 2)}
CHECKPOINT = "checkpoint.safetensors"


@pytest.fixture(autouse=True)
def _tiny_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, split: str, index: int, data_dir: Path | None) -> object:
        return tiny(index, regression=name == "regression")

    monkeypatch.setattr(run_module, "_load", load)


def experiment(model: ModelOptions | None = None, dataset: str = "classes", seed: int = 0, **training) -> Experiment:
    options = TrainingOptions(**{"epochs": 12, "patience": 0, **training})
    return Experiment(dataset, seed=seed, model=model or ModelOptions(name="gcn"), training=options)


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))


def test_a_folder_of_arrays_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    write_graph(tiny(), tmp_path / "graph")
    y = tiny().y.numpy()
    y[4] = 10**9
    np.save(tmp_path / "graph" / "y.npy", y)
    with pytest.raises(ValueError, match="y has class 1000000000 at a node of a split"):
        train(replace(experiment(), graph=str(tmp_path / "graph")), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("dataset", "metric"), [("classes", "accuracy"), ("regression", "mse")])
def test_a_run_is_a_folder(tmp_path: Path, dataset: str, metric: str) -> None:
    folder, seen = tmp_path / "runs" / "one", []
    wanted = experiment(dataset=dataset)
    result = train(wanted, folder, device="cpu", observer=seen.append)
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.toml", "digests.json", "metrics.csv", "model.safetensors", "result.json",
    }  # fmt: skip
    assert settings.read(Experiment, folder / "config.toml") == wanted
    assert Result.from_json((folder / "result.json").read_text()) == result

    table = rows(folder)
    assert [int(row["epoch"]) for row in table] == list(range(1, 13))
    best = min(table, key=lambda row: float(row["val_loss"]))
    assert int(best["epoch"]) == result.best_epoch
    for split in ("train", "val", "test"):
        assert result.metrics[split][metric] == pytest.approx(float(best[f"{split}_{metric}"]), rel=1e-5)
    assert [float(row["train_loss"]) for row in table] == [epoch.train_loss for epoch in seen]

    # The weights are those whose metrics are in the result.
    data = tiny(regression=dataset == "regression")
    network = Network(wanted.model, 5, 1 if dataset == "regression" else 3)
    network.load_state_dict(load_file(folder / "model.safetensors"))
    out = network.eval()(data.x, data.edge_index).detach()[data.test_mask]
    y = data.y[data.test_mask]
    expected = (out.argmax(-1) == y).float().mean() if metric == "accuracy" else (out.view(-1) - y).square().mean()
    assert result.metrics["test"][metric] == pytest.approx(float(expected), rel=1e-5)


def test_the_same_experiment_gives_the_same_result_and_another_seed_another(tmp_path: Path) -> None:
    first, again, other = (
        train(experiment(seed=seed), tmp_path / name, device="cpu") for name, seed in [("a", 3), ("b", 3), ("c", 4)]
    )
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    assert first.metrics == again.metrics
    assert (tmp_path / "a/model.safetensors").read_bytes() != (tmp_path / "c/model.safetensors").read_bytes()
    assert other.best_epoch > 0


def test_a_run_that_is_done_is_neither_done_again_nor_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finished(experiment(), tmp_path) is None
    result = train(experiment(), tmp_path, device="cpu")
    monkeypatch.setattr(run_module, "Loop", None)
    assert train(experiment(), tmp_path, device="cpu") == finished(experiment(), tmp_path) == result
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunError, match=r"another experiment \(training.learning_rate = 0.005 there, 0.1 here\)"):
        train(experiment(learning_rate=0.1), tmp_path, device="cpu")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


CONFIG = settings.dumps(experiment()).encode()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.safetensors": b"precious"}, "has a model.safetensors but no config.toml"),
        ({"metrics.csv": b"precious"}, "has a metrics.csv but no config.toml"),
        ({"result.json": b"precious"}, "has a result.json but no config.toml"),
        ({"config.toml": b"flavour = 'vanilla'"}, "another version.*'flavour'"),
        *(
            ({"config.toml": CONFIG, CHECKPOINT: content}, f"/{CHECKPOINT} is not a .*delete it to start again")
            for content in (b"", b"nonsense", b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
        ),
    ],
)
def test_a_folder_that_cannot_be_continued_is_left_alone(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises((RunError, ValueError), match=f"{tmp_path}.*{message}"):
        train(experiment(), tmp_path, device="cpu")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"} == files


def test_a_second_process_on_a_run_folder_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path, wait=False), pytest.raises(Busy, match=f"another process is using the run folder {tmp_path}"):
        train(experiment(), tmp_path, device="cpu")
    assert train(experiment(), tmp_path, device="cpu").epochs == 12


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "file" / "run"
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=f"the run folder {folder} cannot be used: not a directory; "):
        train(experiment(), folder, device="cpu")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    if os.geteuid() == 0:
        closed = Path("/sys")  # where not even root may make a folder
    with pytest.raises(RunError, match=f"the run folder {closed}/run cannot be used: (permission|operation|read-only)"):
        train(experiment(), closed / "run", device="cpu")


def test_files_that_do_not_fit_leave_nothing_half_written(tmp_path: Path) -> None:
    wide = experiment(ModelOptions(name="gcn", hidden_channels=512))
    with largest_file(4096), pytest.raises(RunError, match=f"{tmp_path} cannot be used: file too large"):
        train(wide, tmp_path, device="cpu")
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "config.toml"}
    assert train(wide, tmp_path, device="cpu").epochs == 12


@pytest.mark.parametrize("at", [(1,), (5,), (2, 12)])
@pytest.mark.parametrize(
    ("model", "training"),
    [
        (ModelOptions(name="gat", norm="batch"), {}),
        (ModelOptions(name="sage-lstm", hidden_channels=4, norm="batch", backend="torch"), BATCHES),
        (replace(GOAT, heads=2), BATCHES | {"averaging": 0.5}),
    ],
)
def test_a_stopped_run_is_continued_to_the_same_bits(
    tmp_path: Path, model: ModelOptions, training: dict, at: tuple[int, ...]
) -> None:
    wanted, folder = experiment(model, **training), tmp_path / "cut"

    def press(epoch: Epoch) -> None:
        if epoch.number in at:
            os.kill(os.getpid(), signal.SIGINT)

    for last in at:
        with pytest.raises(Interrupted, match=rf"stopped after epoch {last} of 12; run it again .*\({folder}\)"):
            train(wanted, folder, device="cpu", observer=press)
        assert not (folder / "result.json").exists()
        assert len(rows(folder)) == last
    torch.rand(7)  # nothing depends on earlier draws
    seen: list[int] = []
    train(wanted, folder, device="cpu", observer=lambda epoch: seen.append(epoch.number))
    assert seen == list(range(at[-1] + 1, 13))
    train(wanted, tmp_path / "whole", device="cpu")
    assert outcome(folder) == outcome(tmp_path / "whole")


def stopped(wanted: Experiment, folder: Path) -> Path:
    """The checkpoint of a run that was stopped after five epochs."""
    with pytest.raises(Interrupted):
        train(wanted, folder, device="cpu", observer=stop_after(5))
    return folder / CHECKPOINT


def without_digest(content: bytes, old: str = "", new: str = "") -> bytes:
    """A checkpoint as an earlier version wrote it, with a change in its header."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = {"state": header["__metadata__"]["state"].replace("checkpoint.2", "checkpoint.1")}
    text = json.dumps(header)
    assert old in text
    text = text.replace(old, new, 1)
    return len(text.encode()).to_bytes(8, "little") + text.encode() + content[8 + size :]


def test_a_flipped_bit_in_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    wanted, draw = experiment(), random.Random(0)
    path = stopped(wanted, tmp_path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in [*range(8), *draw.sample(range(8, header), 20), *draw.sample(range(header, len(whole)), 12)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=f"^{path} is not a checkpoint that can be resumed .*; delete it to start"):
            train(wanted, tmp_path, device="cpu")
    path.write_bytes(whole)
    assert train(wanted, tmp_path, device="cpu").epochs == 12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("exp_avg_sq", "exp_avg_sr"),
        ('"optimizer.0.', '"optimizer.x.'),
        ('"epochs"', '"epocks"'),
        ('"best.', '"rest.'),
        ('best_epoch\\": ', 'best_epoch\\": 9'),
        ("checkpoint.1", "checkpoint.7"),
    ],
)
def test_a_checkpoint_without_a_digest_is_resumed_or_refused_in_a_sentence(tmp_path: Path, old: str, new: str) -> None:
    wanted = experiment(GOAT, record_orderings=(0, 12))
    path = stopped(wanted, tmp_path / "run")
    whole = path.read_bytes()
    path.write_bytes(without_digest(whole, old, new))
    with pytest.raises(RunError, match=f"^{path} is not a checkpoint that can be resumed .*; delete it") as caught:
        train(wanted, tmp_path / "run", device="cpu")
    assert "\n" not in str(caught.value)
    path.write_bytes(without_digest(whole))
    train(wanted, tmp_path / "run", device="cpu")
    train(wanted, tmp_path / "whole", device="cpu")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert len(list(Run(tmp_path / "run").orderings)) == 2


def test_damage_between_two_attempts_does_not_become_part_of_the_result(tmp_path: Path) -> None:
    wanted = experiment(GOAT, record_orderings=(0, 12))
    stopped(wanted, tmp_path)
    path = tmp_path / "orderings/epoch-0-layer-1.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    (tmp_path / "metrics.csv").write_text("rubbish")  # written again
    train(wanted, tmp_path, device="cpu")
    assert len(Run(tmp_path).curves["epoch"]) == 12
    with pytest.raises(RunError, match=r"orderings/epoch-0-layer-1\.safetensors: it differs from digests\.json"):
        list(Run(tmp_path).orderings)


FILES = ("metrics.csv", "model.safetensors", "result.json", "digests.json", "error.txt", "config.toml", CHECKPOINT)


def test_links_in_a_run_folder_are_never_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    folder.mkdir()
    part = ".epoch-0-layer-1.safetensors.abcdefgh.part"
    for name in (*FILES, part, ".config.toml.abcdefgh.part"):
        (outside / name).write_text("precious")
    (outside / "config.toml").write_bytes(CONFIG)
    kept = {path.name: path.read_bytes() for path in outside.iterdir()}
    for name in {*FILES} - {"result.json", CHECKPOINT}:  # which would end the run
        (folder / name).symlink_to(outside / name)
    (folder / ".config.toml.linked00.part").symlink_to(outside / "config.toml")
    for name in (".download.part", ".config.toml.part", ".notes.abcdefgh.part", ".config.toml.abcdefgh.part"):
        (folder / name).write_text("mine")

    train(experiment(), folder, device="cpu")
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == kept
    assert not any((folder / name).is_symlink() for name in FILES)
    left = {path.name for path in folder.glob(".*.part")}  # only what the run itself could have left is removed
    assert left == {".download.part", ".config.toml.part", ".notes.abcdefgh.part", ".config.toml.linked00.part"}

    (folder / "result.json").unlink()
    for name, model in ((".lock", None), ("orderings", GOAT), ("ordering-run", GOAT)):
        there = tmp_path / f"run with {name}"
        there.mkdir()
        (there / name).symlink_to(outside / "new" if name == ".lock" else outside)
        wanted = experiment(model, **{"record_orderings": (0,)} if model else {})
        if name == "ordering-run":
            wanted = experiment(model, fixed_ordering=0)
        with pytest.raises(RunError, match=f"the run folder {there} cannot be used: {name} is a symbolic link"):
            train(wanted, there, device="cpu")
        assert {path.name: path.read_bytes() for path in outside.iterdir()} == kept


@pytest.mark.parametrize("how", ["removed", "replaced", "emptied"])
@pytest.mark.parametrize("at", [3, 12])
def test_a_run_folder_that_vanishes_during_training_is_an_error(tmp_path: Path, how: str, at: int) -> None:
    folder = tmp_path / "run"

    def remove(epoch: Epoch) -> None:
        if epoch.number == at:
            shutil.rmtree(folder)
            if how != "removed":
                folder.mkdir()
            if how == "emptied":
                (folder / ".lock").touch()

    with pytest.raises(RunError, match=f"the run folder {folder} cannot be used: no such file"):
        train(experiment(), folder, device="cpu", observer=remove)
    assert not (folder / "result.json").exists()
    assert folder.exists() == (how != "removed")


def ordering(folder: Path, epoch: int, layer: int = 1) -> Ordering:
    return Ordering.load(folder / f"orderings/epoch-{epoch}-layer-{layer}.safetensors")


@pytest.mark.parametrize("batches", [{}, BATCHES])
def test_orderings_are_recorded_as_the_layers_give_them(tmp_path: Path, batches: dict) -> None:
    model = replace(GOAT, last="goat")
    wanted = experiment(model, record_orderings=tuple(range(13)), learning_rate=0.05, stop_on="metric", **batches)
    result = train(wanted, tmp_path, device="cpu")
    assert len(list((tmp_path / "orderings").iterdir())) == 26  # two layers, before training and after each epoch
    torch.manual_seed(wanted.seed)
    network, data = Network(wanted.model, 5, 3).eval(), tiny()
    for epoch in (0, result.best_epoch):
        _, orderings = network(data.x, data.edge_index, return_orderings=True)
        for layer, expected in enumerate(orderings, start=1):
            assert ordering(tmp_path, epoch, layer) == expected
            assert ordering(tmp_path, 0, layer) != ordering(tmp_path, 12, layer)
        network.load_state_dict(load_file(tmp_path / "model.safetensors"))


def test_a_fixed_ordering_is_that_of_a_first_training_with_the_same_seed(tmp_path: Path) -> None:
    free = experiment(GOAT, record_orderings=(0, 3, 12), learning_rate=0.05)
    train(free, tmp_path / "free", device="cpu")
    for epoch in (0, 3):
        folder = tmp_path / f"fixed-{epoch}"
        fixed = experiment(GOAT, fixed_ordering=epoch, record_orderings=(12,), learning_rate=0.05)
        train(fixed, folder, device="cpu")
        # What it trained with, and still reads by at its end, is what the free network read by after that epoch.
        assert ordering(folder, 12) == ordering(tmp_path / "free", epoch)
        assert ordering(folder, 12) != ordering(tmp_path / "free", 12)
        # The same from the recorded file.
        file = tmp_path / f"free/orderings/epoch-{epoch}-layer-1.safetensors"
        from_file = experiment(GOAT, orderings_files=(str(file),), record_orderings=(12,), learning_rate=0.05)
        train(from_file, tmp_path / f"file-{epoch}", device="cpu")
        weights = [(path / "model.safetensors").read_bytes() for path in (folder, tmp_path / f"file-{epoch}")]
        assert weights[0] == weights[1]
        (folder / "result.json").unlink()
        shutil.rmtree(folder / "ordering-run/orderings")
        with pytest.raises(RunError, match="ordering-run is done, but its orderings are gone; remove it to train it"):
            train(fixed, folder, device="cpu")


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        (ModelOptions(name="gcn"), {"record_orderings": (1,)}, "record_orderings = .* the model 'gcn' has none"),
        (ModelOptions(name="gcn"), {"fixed_ordering": 0}, "fixed_ordering = 0 needs GOAT layers"),
        (GOAT, {"orderings_files": ("a", "b")}, "has 2 files, but the model has 1 GOAT layers"),
        (GOAT, {"orderings_files": ("nowhere",)}, "there is no file 'nowhere'"),
        (replace(GOAT, max_neighbors=2), {"fixed_ordering": 3}, "max_neighbors = 2 draws other neighbours"),
        (GOAT, {"batch_size": 21}, "batch_size = 21 is more than the 20 training nodes"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, model: ModelOptions, options: dict, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        train(experiment(model, **options), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_computed_is_null_in_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny()
    data.y[data.test_mask] = 1  # one class: no ranking
    monkeypatch.setattr(run_module, "_load", lambda *args: data)
    result = train(experiment(), tmp_path, device="cpu")
    assert json.loads((tmp_path / "result.json").read_text())["metrics"]["test"]["roc_auc"] is None
    infinite = replace(result, metrics={"test": {"mse": math.inf, "r2": -math.inf}})
    assert json.loads(infinite.to_json())["metrics"] == {"test": {"mse": None, "r2": None}}
    read = finished(experiment(), tmp_path)
    assert read is not None
    assert str(read) == str(result)
    assert str(read.metrics["test"]["roc_auc"]) == "nan"
