"""The way of a new user: the commands of the README and the page, and those that they print, exactly as they stand."""

import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.cli.conftest import Ended, Goat
from tests.app.cli.conftest import goat as goat  # the fixture
from torch_goat.experiments.search import defaults

ROOT = Path(__file__).parents[1]
README, PAGE = ((ROOT / file).read_text() for file in ("README.md", "docs/own-graph.md"))
SECTION = README.split("## Your own graph\n")[1].split("\n## ")[0]
DATA = os.environ.get("TORCH_GOAT_DATA")


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in text.splitlines() if line.strip().startswith("goat ")]


def blocks(text: str, language: str = "sh") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


(TRAIN,), FOLLOW, (EXPORT, TRAIN_EXPORTED) = (commands(block) for block in blocks(SECTION))
*OF_BOTH, TUNE, TRAIN_FOUND = commands("\n".join(blocks(PAGE)))


@pytest.fixture(params=["few epochs", pytest.param("all epochs", marks=pytest.mark.slow)])
def shorter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What makes a search shorter. Else the lines are the same; how long a training takes unless it is told is not."""
    if request.param == "all epochs":
        return []
    monkeypatch.setattr(defaults, "_OWN", replace(defaults._OWN, training={"epochs": 3, "patience": 0}))
    return ["--trials", "1"]


def follow(goat: Goat, trained: Ended, nodes: Path) -> None:
    """Copies the printed commands, which must leave a prediction of every node and a page."""
    printed = commands(trained.out.split("Next:")[1])
    assert [command[0] for command in printed] == ["predict", "explain", "report"]
    for command in printed:
        ended = goat(*command)
        assert ended.code == 0, ended.err
    assert len(Path("predictions.csv").read_text().splitlines()) == len(nodes.read_text().splitlines())
    assert Path("report.html").read_text().lstrip().lower().startswith("<!doctype html>")


@pytest.mark.usefixtures("quick_processes")
def test_the_commands_of_the_readme_and_those_they_print_work(goat: Goat, tmp_path: Path, shorter: list[str]) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    assert [TRAIN, *FOLLOW] == OF_BOTH
    trained = goat(*TRAIN)
    assert trained.code == 0, trained.err
    follow(goat, trained, tmp_path / "examples/village/nodes.csv")
    for command in FOLLOW:
        ended = goat(*command, *(["--force"] if command[0] != "explain" else []))
        assert ended.code == 0, ended.err
    for command in ([*TUNE, *shorter], TRAIN_FOUND):
        ended = goat(*command)
        assert ended.code == 0, ended.err

    (example,) = blocks(PAGE, "python")
    exec(example, {})
    assert Path("village.pt2").exists()


@pytest.mark.skipif(DATA is None, reason="TORCH_GOAT_DATA names no folder with the real data")
@pytest.mark.usefixtures("shorter")
def test_so_do_those_on_an_exported_dataset(goat: Goat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_GOAT_DATA", str(DATA))
    exported = goat(*EXPORT)
    assert exported.code == 0, exported.err
    trained = goat(*TRAIN_EXPORTED)
    assert trained.code == 0, trained.err
    follow(goat, trained, tmp_path / "tables/cora/nodes.csv")
