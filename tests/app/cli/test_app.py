import errno
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import torch_goat.app.cli.demo
from tests.app.conftest import Goat
from torch_goat.app import cli
from torch_goat.app.cli.app import app, run

COMMANDS = [command.callback.__name__ for command in app.registered_commands if command.callback is not None]


def test_every_command_has_help_with_an_example(goat: Goat) -> None:
    assert {"train", "tune", "runs", "datasets", "demo", "backends"} <= set(COMMANDS)
    for command in COMMANDS:
        ended = goat(command, "--help")
        assert f"Example: goat {command}" in ended.out
        if command in ("train", "tune", "demo", "reproduce"):
            assert "--device" in ended.out
            assert "--precision" in ended.out


def test_demo_compares_three_models_and_leaves_nothing_behind(goat: Goat, tmp_path: Path) -> None:
    ended = goat("demo", "--epochs", "2", "--device", "cpu")
    for text in ("GOAT", "GAT", "GraphSAGE-LSTM", "accuracy (%)", "time (s)", "after 2 epochs"):
        assert text in ended.out
    assert "epoch 2 of 2" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_version_and_backends(goat: Goat) -> None:
    assert goat("--version").out == f"torch-goat {torch_goat.__version__}\n"
    ended = goat("backends")
    assert "reference" in ended.out
    assert "torch" in ended.out


def test_a_failure_and_ctrl_c_are_a_sentence(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, code, line in (
        (KeyboardInterrupt(), 130, "goat: stopped."),
        (RuntimeError("the graph is broken"), 1, "goat: the graph is broken (--debug shows the traceback)"),
    ):
        monkeypatch.setattr("torch_goat.experiments.training.train.train", Mock(side_effect=error))
        assert goat("demo", "--device", "cpu", code=code).err.splitlines()[-1] == line
    for arguments in (["--debug", "demo"], ["demo", "--debug"], ["demo", "--debug", "--epochs", "1"]):
        with pytest.raises(RuntimeError, match="the graph is broken"):
            run(arguments)


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_its_extras_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match=rf"goat: {name} is missing; .*pip install 'torch-goat\[cli\]'"):
        cli.main()


def test_without_optuna_only_searching_is_refused(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in [name for name in sys.modules if name.startswith("torch_goat.experiments.search.")]:
        monkeypatch.delitem(sys.modules, name)
    ended = goat("tune", "top2", code=1)
    assert ended.err == "goat: goat tune needs optuna; install it with: pip install 'torch-goat[cli]'.\n"
    goat("datasets")


def test_ctrl_c_is_answered_while_pytorch_is_imported() -> None:
    code = "import sys, torch_goat.app.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_a_file_that_may_not_be_written_is_a_sentence_with_advice(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", "out.html"))
    monkeypatch.setattr("torch_goat.app.cli.app.torch_goat.backends", refused, raising=False)
    said = goat("backends", code=1).err
    assert said == "goat: out.html: permission denied; change its permissions or choose another place.\n"
