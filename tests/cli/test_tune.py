import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Goat
from torch_goat import settings
from torch_goat.cli.progress import board
from torch_goat.cli.tune import _Show
from torch_goat.files import is_locked
from torch_goat.models import ModelOptions
from torch_goat.recipes import paper_grid
from torch_goat.search.worker import TrialEvent
from torch_goat.training import Experiment, TrainingOptions

SMALL = ["betweenness-100", "--model", "gcn", "--set", "epochs=2", "--set", "hidden_channels=4", "--device", "cpu"]


@pytest.mark.usefixtures("quick_processes")
def test_a_search_ends_in_a_recipe_that_trains(goat: Goat) -> None:
    options = ["--trials", "3", "--jobs", "2", "--space", "dropout=0,0.5", "--indices", "1,2", "--seed", "4"]
    ended = goat("tune", *SMALL, *options)
    assert ended.code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("tune-betweenness-100-gcn-")
    best = settings.read(Experiment, folder / "best.toml")
    assert (best.index, best.seed, best.training.epochs, best.model.hidden_channels) == (1, 4, 2, 4)
    assert best.model.dropout in (0.0, 0.5)
    assert ["learning_rate", str(best.training.learning_rate)] in [line.split() for line in ended.out.splitlines()]
    assert "3 of 3 trials are done" in ended.out
    assert [line.split()[0] for line in ended.err.splitlines()] == ["1/3", "2/3", "3/3"]
    assert "hidden_channels" not in (folder / "trials.csv").read_text()  # it was set
    again = goat("tune", *SMALL, *options)
    assert again.code == 0
    assert again.out == ended.out
    assert again.err == ""
    assert goat("train", "--recipe", str(folder / "best.toml"), "--device", "cpu", "--out", "best").code == 0
    assert len([line for line in goat("runs").out.splitlines() if "betweenness-100" in line]) == 6


@pytest.mark.usefixtures("quick_processes")
def test_the_grid_is_the_papers_from_the_papers_settings(goat: Goat) -> None:
    options = ["--model", "gcn", "--grid", "--trials", "2", "--set", "epochs=2", "--device", "cpu", "--out", "grid"]
    assert goat("tune", "betweenness-100", *options).code == 0
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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["betweenes-100"], "did you mean 'betweenness-100'?"),
        (["nodes.csv"], "not on a graph of yours such as nodes.csv; compare settings there with goat train and --set"),
        ([*SMALL, "--set", "drpout=0"], "did you mean 'dropout'?"),
        ([*SMALL, "--space", "drpout=0,1"], "did you mean 'dropout'?"),
        ([*SMALL, "--space", "epochs=2,3"], "epochs is both set and searched"),
        ([*SMALL, "--space", "dropout=0,1"], "dropout must be at least 0 and below 1, got 1"),
        ([*SMALL, "--space", "dropout"], "'dropout' names no values"),
        ([*SMALL, "--metric", "acuracy"], "has no metric 'acuracy'"),
        ([*SMALL, "--metric", "r2", "--prune"], "pruning watches the mse"),
        ([*SMALL, "--indices", "0,x"], "the indices must be whole numbers"),
        ([*SMALL, "--indices", "0,10"], "indices 0 to 9"),
        ([*SMALL, "--storage", "nonsense://x"], "the storage nonsense://x cannot be opened"),
        ([*SMALL, "--trials", "0"], "--trials"),
        ([*SMALL, "--set", "seed=5"], "--set seed=5 is what --seed is for; name it once, with --seed."),
        ([*SMALL, "--set", "index=3"], "--set index=3 is what --indices is for"),
        ([*SMALL, "--precision", "64-true", "--set", "precision=32-true"], "is what --precision is for"),
    ],
)
def test_what_cannot_be_is_refused_with_exit_code_2(goat: Goat, arguments: list[str], text: str) -> None:
    ended = goat("tune", *arguments)
    assert ended.code == 2
    assert text in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.usefixtures("quick_processes")
def test_a_search_that_is_killed_goes_on_where_it_was(goat: Goat) -> None:
    """The command is killed; its process notices, keeps what it has and lets go, and the same command goes on."""
    arguments = ["tune", "betweenness-100", "--model", "mlp", "--trials", "2", "--set", "epochs=400"]
    code = "from torch_goat.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, *arguments, "--out", "cut"], stderr=subprocess.PIPE)
    while not Path("cut/trials/0/0/config.toml").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + 300
    while is_locked(Path("cut/trials/0")):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert Path("cut/trials/0/0/checkpoint.safetensors").exists()
    for folder in ("cut", "whole"):
        assert goat(*arguments, "--out", folder).code == 0
    assert Path("cut/trials.csv").read_text() == Path("whole/trials.csv").read_text()


def test_the_progress_of_a_search_counts_what_a_longer_one_had_done(capsys: pytest.CaptureFixture[str]) -> None:
    with board(2, "trials") as shown:
        show = _Show(shown, "mse")
        show(TrialEvent("opened", -1, done=3, best=0.5))
        show(TrialEvent("started", 1))
        show(TrialEvent("finished", 1, value=0.25, done=4, best=0.25))
    assert capsys.readouterr().err == "4/4 trial 1: mse 0.2500, best mse 0.2500\n"
