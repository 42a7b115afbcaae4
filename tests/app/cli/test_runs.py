import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.app.conftest import Ended, Goat
from tests.processes import stop_after
from torch_goat.app.cli import runs
from torch_goat.experiments import Experiment, Interrupted, Result, TrainingOptions, train
from torch_goat.experiments.models import ModelOptions
from torch_goat.files import is_locked, locked

BASE = Experiment("betweenness-100", "paper", model=ModelOptions("gcn"), training=TrainingOptions(epochs=4))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Result]]:
    """Six runs in every state, and something that is no run."""
    runs = tmp_path_factory.mktemp("trained") / "runs"
    mlp = replace(BASE, model=ModelOptions("mlp"))
    results = {
        "a": train(BASE, runs / "a", device="cpu"),
        "deep/er/b": train(replace(mlp, seed=7, index=3), runs / "deep/er/b", device="cpu"),
    }
    for name in ("stopped", "failed"):
        with pytest.raises(Interrupted):
            train(mlp, runs / name, device="cpu", observer=stop_after(2))
    (runs / "failed/error.txt").write_text("out of memory\n\nTraceback ...\n")
    for name in ("damaged", "cut"):
        shutil.copytree(runs / "a", runs / name)
    (runs / "damaged/config.toml").write_text("dataset = [")
    (runs / "cut/result.json").write_text('{"metrics": {"val"')
    (runs / "other").mkdir()
    (runs / "other/notes.txt").touch()
    return runs, results


@pytest.fixture
def done(goat: Goat, trained: tuple[Path, dict[str, Result]]) -> dict[str, Result]:
    shutil.copytree(trained[0], "runs")
    return trained[1]


def listed(ended: Ended) -> dict[str, list[str]]:
    """The rows of the table by their first cell."""
    lines = [line.split() for line in ended.out.splitlines() if line.strip(" ─")]
    return {cells[0]: cells[1:] for cells in lines[1:]}


def test_every_state_is_shown(goat: Goat, done: dict[str, Result]) -> None:
    rows = listed(goat("runs"))
    assert list(rows) == ["a", "cut", "damaged", "deep/er/b", "failed", "stopped"]
    for name, result in done.items():
        values = [f"{result.metrics[split]['mse']:.4g}" for split in ("val", "test")]
        settled = ["gcn", "0", "0"] if name == "a" else ["mlp", "7", "3"]
        assert rows[name] == ["betweenness-100", *settled, "4", "mse", *values, f"{result.seconds:.1f}", "done"]
    assert rows["stopped"][-4:] == ["stopped", "at", "epoch", "2"]
    assert rows["failed"][-4:] == ["failed:", "out", "of", "memory"]
    assert rows["damaged"][0] == "damaged:"
    assert rows["cut"][:2] == ["damaged:", "result.json:"]
    assert list(listed(goat("runs", "runs/deep"))) == ["er/b"]
    with locked(Path("runs/stopped"), wait=False):
        assert is_locked(Path("runs/stopped"))
        assert listed(goat("runs"))["stopped"][-4:] == ["running", "at", "epoch", "2"]
    assert not is_locked(Path("runs/stopped"))
    for content in ("", "epoch,seconds\n"):  # cut off before its first epoch
        Path("runs/stopped/metrics.csv").write_text(content)
        assert listed(goat("runs"))["stopped"][-4:] == ["stopped", "at", "epoch", "0"]


def test_runs_are_filtered_and_sorted(goat: Goat, done: dict[str, Result]) -> None:
    def found(*options: str) -> list[dict]:
        return json.loads(goat("runs", *options, "--format", "json").out)

    for options, names in (
        (["--model", "mlp"], ["deep/er/b", "failed", "stopped"]),
        (["--dataset", "cora"], []),
        (["--done"], ["a", "deep/er/b"]),
        (["--unfinished"], ["cut", "damaged", "failed", "stopped"]),
        (["--model", "mlp", "--done"], ["deep/er/b"]),
    ):
        assert [run["folder"] for run in found(*options)] == [f"runs/{name}" for name in names]
    for split in ("val", "test"):  # the best comes first
        best, second, *rest = found("--sort", split)
        expected = sorted(done, key=lambda name: done[name].metrics[split]["mse"])
        assert [best["folder"], second["folder"]] == [f"runs/{name}" for name in expected]
        assert all(run[split] is None for run in rest)
    rows = {row["folder"]: row for row in csv.DictReader(goat("runs", "--format", "csv").out.splitlines())}
    for name, result in done.items():  # in full precision
        assert float(rows[f"runs/{name}"]["val"]) == result.metrics["val"]["mse"]
    assert rows["runs/stopped"]["val"] == ""
    assert rows["runs/failed"]["note"] == "out of memory"


def test_numbered_folders_are_in_the_order_of_their_numbers(goat: Goat) -> None:
    assert goat("runs").out == "There are no such runs in runs.\n"
    for number in (10, 9, 2):
        Path(f"runs/{number}").mkdir(parents=True)
        Path(f"runs/{number}/config.toml").touch()
    assert list(listed(goat("runs"))) == ["2", "9", "10"]


NESTED = {"config.toml": "x = " + "[" * 10_000, "result.json": "[" * 10_000, "digests.json": '{"a":' * 10_000}


@pytest.mark.parametrize("name", [*NESTED, "metrics.csv", ".lock", "error.txt"])
def test_a_hostile_folder_is_one_line_and_the_others_are_listed(goat: Goat, done: dict[str, Result], name: str) -> None:
    unfinished = name in ("metrics.csv", ".lock", "error.txt")
    for kind in ("pipe", "huge", "endless", "nested"):
        folder = Path(shutil.copytree("runs/stopped" if unfinished else "runs/a", f"runs/{kind}"))
        path = folder / name
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "endless":
            path.symlink_to("/dev/zero")
        else:
            path.write_text(NESTED.get(name, "x" * 200_000) if kind == "nested" else "")
        if kind == "huge":
            os.truncate(path, 1 << 40)
    rows = listed(goat("runs"))
    assert rows["a"][-1] == rows["deep/er/b"][-1] == "done"
    for kind in ("pipe", "huge", "endless", "nested"):
        if name == ".lock":  # is not read
            assert rows[kind][-4:] == ["stopped", "at", "epoch", "2"]
        elif (name, kind) == ("error.txt", "nested"):
            assert rows[kind][-2] == "failed:"
        else:
            assert rows[kind][:2] == ["damaged:", f"{name}:"]


def test_an_edit_is_accepted(goat: Goat, done: dict[str, Result]) -> None:
    config = Path("runs/a/config.toml")
    config.write_text(config.read_text().replace("seed = 0", "seed = 9"))
    assert listed(goat("runs"))["a"][:2] == ["damaged:", "config.toml:"]
    said = goat("runs", "--accept", "runs/a").out
    assert said == "Recorded the digests of 4 files in runs/a (changed since the last record: config.toml).\n"
    assert listed(goat("runs"))["a"][2] == "9"
    assert "(none had changed)" in goat("runs", "--accept", "runs/a").out
    assert "is not done" in goat("runs", "--accept", "runs/stopped", code=1).err


def test_a_narrow_terminal_reads_once_what_all_have_in_common(
    goat: Goat, done: dict[str, Result], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = Console(width=76, force_terminal=True, color_system=None, highlight=False)
    monkeypatch.setattr(runs, "console", lambda: narrow)
    runs.runs(Path("runs"), done=True)
    said, _, names, *lines = capsys.readouterr().out.splitlines()
    assert said == "In common: dataset betweenness-100, metric mse, state done."
    assert names.split() == ["run", "model", "seed", "index", "epochs", "val", "test", "seconds"]
    found = {line.split()[0]: line.split()[6] for line in lines if len(line.split()) == 8}
    assert found == {name: f"{result.metrics['test']['mse']:.4g}" for name, result in done.items()}
