import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.app.conftest import Goat
from tests.small_runs import small
from torch_goat import settings
from torch_goat.app.cli.progress import RunProgress
from torch_goat.app.explain import explain
from torch_goat.data.loader import write_graph
from torch_goat.experiments import Epoch, Experiment, Run, train
from torch_goat.experiments.search import starting_point
from torch_goat.experiments.training.metrics import show
from torch_goat.files import locked

SMALL = ["betweenness-100", "--model", "gcn", "--set", "epochs=5", "--set", "hidden_channels=4", "--device", "cpu"]


def the_run() -> Path:
    (found,) = Path("runs").iterdir()
    return found


def test_a_run_is_a_folder_with_the_settings_that_were_asked_for(goat: Goat) -> None:
    options = ["--seed", "3", "--index", "2", "--precision", "64-true", "--set", "training.weight_decay=0.1"]
    goat("train", *SMALL, *options, "--tensorboard")
    assert list((the_run() / "tensorboard").glob("events.*"))
    found = settings.read(Experiment, the_run() / "config.toml")
    assert (found.dataset, found.split, found.index, found.seed) == ("betweenness-100", "paper", 2, 3)
    assert (found.model.name, found.model.hidden_channels) == ("gcn", 4)
    assert (found.training.epochs, found.training.weight_decay) == (5, 0.1)
    assert found.training.precision == "64-true"
    assert found.model.input_channels == starting_point("betweenness-100", "gcn").model.input_channels


def test_curves_are_not_written_through_a_link(goat: Goat) -> None:
    for name in ("run", "outside"):
        Path(name).mkdir()
    Path("run/tensorboard").symlink_to(Path("outside").resolve())
    said = goat("train", *SMALL, "--tensorboard", "--out", "run", code=1).err
    assert said == "goat: run/tensorboard: tensorboard is a symbolic link, which is not followed here.\n"
    assert list(Path("outside").iterdir()) == []


def test_the_same_command_returns_what_is_there_and_another_never_collides(goat: Goat) -> None:
    first = goat("train", *SMALL)
    result = json.loads((the_run() / "result.json").read_text())
    for split, metrics in result["metrics"].items():
        (line,) = [line for line in first.out.splitlines() if line.split()[:1] == [split]]
        assert line.split()[1:] == [show(name, metrics[name]) for name in ("mse", "rmse", "mae", "r2")]
    assert f"The run is in {the_run()}" in first.out
    assert first.err.startswith("betweenness-100 gcn: epoch 5 of 5, loss ")
    assert "\x1b" not in first.out + first.err
    written = (the_run() / "result.json").stat().st_mtime_ns
    again = goat("train", *SMALL)
    assert (the_run() / "result.json").stat().st_mtime_ns == written
    assert "Already finished" in again.out
    assert again.err == ""
    assert again.out.splitlines()[:-1] == first.out.splitlines()[:-1]
    for number, change in enumerate((["--seed", "1"], ["--set", "dropout=0.1"], ["--index", "1"]), start=2):
        goat("train", *SMALL, *change)
        assert len(list(Path("runs").iterdir())) == number


def test_a_config_brings_everything_and_may_be_changed(goat: Goat, tmp_path: Path) -> None:
    goat("train", *SMALL, "--seed", "5")
    config = the_run() / "config.toml"
    goat("train", "--recipe", str(config), "--out", "again", "--device", "cpu")
    assert settings.read(Experiment, Path("again/config.toml")) == settings.read(Experiment, config)
    changed = ["--config", str(config), "--seed", "6", "--set", "epochs=2", "--out", "changed", "--device", "cpu"]
    goat("train", "effective-size-100", *changed)
    found = settings.read(Experiment, Path("changed/config.toml"))
    assert (found.dataset, found.seed, found.training.epochs, found.model.hidden_channels) == (
        "effective-size-100", 6, 2, 4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset = ", "config.toml: not a TOML file"),
        ('dataset = "cora"\n[model]\nhads = 2\n', "config.toml: unknown key 'model.hads'; did you mean 'heads'?"),
        ('dataset = "cora"\n[model]\nheads = "2"\n', "config.toml: model.heads must be a whole number, got '2'."),
        ('dataset = "cora"\n[training]\nepochs = 0\n', "config.toml: [training] epochs must be at least 1, got 0"),
        ('dataset = "corra"\n', "there is no dataset 'corra'; did you mean 'cora'?"),
        ("seed = 1\n", "config.toml: the key 'dataset' is missing."),
        (
            'dataset = "mine"\n[model]\ngiven_order = true\n[tables]\nnodes = "n.csv"\ntarget = "y"\n',
            "config.toml: given_order = True needs tables.order_by (--order-by), the edge column",
        ),
    ],
)
def test_a_bad_config_is_refused_by_file_and_key(goat: Goat, text: str, message: str) -> None:
    Path("config.toml").write_text(text)
    ended = goat("train", "--config", "config.toml", "--device", "cpu", code=2)
    assert ended.err.startswith(f"goat: {message}")
    assert len(ended.err.splitlines()) == 1


def test_a_folder_that_cannot_be_used_is_refused(goat: Goat, tmp_path: Path) -> None:
    with locked(Path("mine"), wait=False):
        ended = goat("train", *SMALL, "--out", "mine", code=1)
    assert ended.err.splitlines()[-1].startswith("goat: another process is using the run folder mine; wait for it")
    goat("train", *SMALL, "--out", "mine")
    ended = goat("train", *SMALL, "--out", "mine", "--set", "dropout=0.3", code=1)
    assert "mine holds another experiment (model.dropout = 0.0 there, 0.3 here)" in ended.err
    (tmp_path / "locked").mkdir(mode=0o500)
    place = tmp_path / "locked" if os.geteuid() else Path("/sys")  # where not even root may make a folder
    ended = goat("train", *SMALL, "--out", str(place / "run"), code=1)
    assert f"goat: the run folder {place}/run cannot be used: " in ended.err
    assert "Traceback" not in ended.err


def test_ctrl_c_is_a_sentence_and_the_same_command_goes_on(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(self: RunProgress, epoch: Epoch) -> None:
        if epoch.number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "__call__", press)
        ended = goat("train", *SMALL, code=130)
    (line,) = ended.err.splitlines()
    assert line == f"goat: stopped after epoch 3 of 5; run it again to continue ({the_run()})."
    assert not (the_run() / "result.json").exists()
    goat("train", *SMALL)
    experiment = settings.read(Experiment, the_run() / "config.toml")
    whole = train(experiment, "whole", device="cpu")
    assert json.loads((the_run() / "result.json").read_text())["metrics"] == whole.metrics


def test_mini_batches(goat: Goat) -> None:
    goat("train", *SMALL, "--batch-size", "20", "--fanout", "5,-1", "--workers", "1")
    found = settings.read(Experiment, the_run() / "config.toml").training
    assert (found.batch_size, found.fanout) == (20, (5, -1))


@pytest.mark.usefixtures("torchrun")
def test_several_processes_share_mini_batches_alone(goat: Goat) -> None:
    ended = goat("tune", "top2", code=2)
    assert ended.err.startswith("goat (process 1): goat tune runs in one process, but torchrun started 2")
    assert ended.out == ""


def test_a_folder_of_arrays(goat: Goat) -> None:
    data = small("top2")
    write_graph(data, Path("arrays"))
    options = ["--set", "epochs=3", "--set", "patience=0", "--device", "cpu", "--batch-size", "10", "--fanout", "4,4"]
    ended = goat("train", "arrays", "--model", "gat", *options)
    assert "gat on arrays (masks 0)" in ended.out
    run = Run(the_run())
    assert Path(run.experiment.graph) == Path("arrays").resolve()
    assert run.graph().data.num_nodes == 60
    goat("train", "--config", str(the_run() / "config.toml"), "--out", "again")
    folder = the_run()
    goat("report", str(folder), "-o", "report.html")
    goat("explain", str(folder), "--node", "3")
    neighbors = data.edge_index[0, data.edge_index[1] == 3]
    assert {one.neighbor for one in explain(run, "3").effects} == {*neighbors.tolist()}
    np.save("arrays/y.npy", 1 - np.load("arrays/y.npy"))
    changed = goat("explain", str(folder), "--node", "3", code=2)
    assert changed.err.count("\n") == 1
    assert f"the arrays in {Path('arrays').resolve()} changed since the run was started" in changed.err
    goat("train", "arrays", "--model", "gat", *options)
    assert len(list(Path("runs").iterdir())) == 2  # a run of its own
