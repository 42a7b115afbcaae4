"""The example and the commands of the README, those of docs/own-graph.md, and those that they print, run as printed."""

import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from tests.app.conftest import Goat
from tests.app.conftest import goat as goat  # the fixture
from tests.pages import ROOT
from torch_goat.experiments.search import defaults

DATA = os.environ.get("TORCH_GOAT_DATA")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in text.splitlines() if line.strip().startswith("goat ")]


README = (ROOT / "README.md").read_text(encoding="utf-8")
(EXAMPLE,) = blocks("README.md", "python")
PAGE = commands("\n".join(blocks("docs/own-graph.md", "sh")))
TRAIN, PREDICT, EXPLAIN, REPORT, TUNE, TRAIN_FOUND, EXPORT, TRAIN_EXPORTED = PAGE


@pytest.fixture(params=["few epochs", pytest.param("all epochs", marks=pytest.mark.slow)])
def shorter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that shorten a search. Trainings get shorter defaults, so that their commands stay the same."""
    if request.param == "all epochs":
        return []
    monkeypatch.setattr(defaults, "_TABLES", replace(defaults._TABLES, training={"epochs": 3, "patience": 0}))
    return ["--trials", "1"]


def follow(goat: Goat, trained: str, nodes: Path) -> None:
    """Runs the printed commands, which must write a prediction for every node and a report."""
    printed = commands(trained.split("Next:")[1])
    assert [command[0] for command in printed] == ["predict", "explain", "report"]
    for command in printed:
        goat(*command)
    assert len(Path("predictions.csv").read_text().splitlines()) == len(nodes.read_text().splitlines())
    assert Path("report.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_the_readme_shows_the_same_commands() -> None:
    assert commands("\n".join(blocks("README.md", "sh"))) == [TRAIN, PREDICT, EXPLAIN, REPORT]


@pytest.mark.usefixtures("quick_processes")
def test_the_commands_and_those_they_print_run(goat: Goat, tmp_path: Path, shorter: list[str]) -> None:
    shutil.copytree(ROOT / "examples/village", tmp_path / "examples/village")
    follow(goat, goat(*TRAIN).out, tmp_path / "examples/village/nodes.csv")
    for command in ([*PREDICT, "--force"], EXPLAIN, [*REPORT, "--force"], [*TUNE, *shorter], TRAIN_FOUND):
        goat(*command)

    (use,) = blocks("docs/own-graph.md", "python")
    exec(use, {})
    assert Path("village.pt2").exists()


@pytest.mark.usefixtures("shorter")
def test_the_python_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples/village", tmp_path / "examples/village")
    monkeypatch.chdir(tmp_path)
    for example in blocks("docs/python.md", "python"):
        exec(example, {})
    printed = capsys.readouterr().out
    assert "GraphSAGE" in printed
    assert "Effect(neighbor=" in printed
    assert Path("village-model/run").is_dir()


@pytest.mark.skipif(DATA is None, reason="TORCH_GOAT_DATA is not set")
@pytest.mark.usefixtures("shorter")
def test_an_exported_dataset_is_trained_on(goat: Goat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_GOAT_DATA", str(DATA))
    goat(*EXPORT)
    assert "goat predict" in goat(*TRAIN_EXPORTED).out  # whose commands are followed above


def run_example(capsys: pytest.CaptureFixture[str], epochs: int = 100) -> float:
    assert "range(100)" in EXAMPLE
    torch.manual_seed(0)
    exec(EXAMPLE.replace("range(100)", f"range({epochs})"), {})
    (accuracy,) = re.findall(r"^Test accuracy: ([01]\.\d{3})$", capsys.readouterr().out, re.MULTILINE)
    return float(accuracy)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert len(EXAMPLE.splitlines()) <= 20
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
    assert all(f"\nmake {command} " in README for command in ("demo", "test"))


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a ring of seven communities in place of Cora."""
    y = torch.arange(140) // 20
    nodes = torch.arange(140)
    other = (nodes[:, None] + torch.tensor([1, 2, 3])) % 20 + 20 * y[:, None]  # three neighbours of the same class
    edge_index = torch.stack([other.flatten(), nodes.repeat_interleave(3)])
    train_mask = nodes % 2 == 0
    x = torch.nn.functional.one_hot(y, 7) + 0.5 * torch.randn(140, 7)
    data = Data(x=x, edge_index=edge_index, y=y, train_mask=train_mask, test_mask=~train_mask)
    monkeypatch.setattr("torch_geometric.datasets.Planetoid", lambda *_, **__: [data])
    assert run_example(capsys) > 0.9


@pytest.mark.skipif(not (DATA and Path(DATA, "Planetoid/Cora/raw").is_dir()), reason="TORCH_GOAT_DATA has no Cora")
def test_the_example_runs_on_cora(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/Planetoid").symlink_to(Path(str(DATA), "Planetoid").resolve())
    monkeypatch.chdir(tmp_path)
    assert run_example(capsys, epochs=30) > 0.5
