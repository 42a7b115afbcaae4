import errno
import subprocess
import sys
from pathlib import Path

import pytest

import torch_goat.app.cli.demo
from tests.app.cli.conftest import Goat
from torch_goat.app import cli
from torch_goat.app.cli.app import app, run

COMMANDS = [command.callback.__name__ for command in app.registered_commands if command.callback is not None]


def test_all_commands_are_there() -> None:
    assert {"train", "tune", "runs", "datasets", "demo", "backends"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(goat: Goat, command: str) -> None:
    ended = goat(command, "--help")
    assert ended.code == 0
    assert f"Example: goat {command}" in ended.out


@pytest.mark.parametrize("command", ["train", "tune", "demo", "reproduce"])
def test_what_computes_has_a_device_and_a_precision(goat: Goat, command: str) -> None:
    help_text = goat(command, "--help").out
    assert "--device" in help_text
    assert "--precision" in help_text


def test_demo_compares_three_models_and_leaves_nothing_behind(goat: Goat, tmp_path: Path) -> None:
    ended = goat("demo", "--epochs", "2", "--device", "cpu")
    assert ended.code == 0
    for text in ("GOAT", "GAT", "GraphSAGE-LSTM", "accuracy (%)", "time (s)", "after 2 epochs"):
        assert text in ended.out
    assert "epoch 2 of 2" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_backends_are_listed(goat: Goat) -> None:
    ended = goat("backends")
    assert ended.code == 0
    assert "reference" in ended.out
    assert "torch" in ended.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["demo", "--epochs", "0"], "--epochs"),
        (["trian"], "train"),
        (["demo", "x"], "x"),
        (["demo", "--device", "gpu"], "the device must be 'auto', 'cpu', 'cuda' or 'cuda:1', got 'gpu'"),
        (["demo", "--device", "cuda:99"], "there is no device 'cuda:99'"),
        (["demo", "--precision", "32-tru"], "did you mean '32-true'?"),
        (["demo", "--device", "cpu", "--precision", "16-mixed"], "needs a GPU"),
        (["train", "top2", "--tensorbord"], "--tensorboard"),
    ],
)
def test_wrong_usage_is_exit_code_2(goat: Goat, arguments: list[str], text: str) -> None:
    ended = goat(*arguments)
    assert ended.code == 2
    assert text in ended.err
    assert "Traceback" not in ended.err


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*arguments: object, **options: object) -> None:
        raise RuntimeError("the graph is broken")

    monkeypatch.setattr(torch_goat.app.cli.demo, "train", train)


@pytest.mark.usefixtures("broken")
def test_a_failure_is_a_sentence(goat: Goat) -> None:
    ended = goat("demo", "--device", "cpu")
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "goat: the graph is broken (--debug shows the traceback)"


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("arguments", [["--debug", "demo"], ["demo", "--debug"], ["demo", "--debug", "--epochs", "1"]])
def test_debug_shows_the_traceback_wherever_it_stands(arguments: list[str]) -> None:
    with pytest.raises(RuntimeError, match="the graph is broken"):
        run(arguments)


def test_a_file_that_is_not_there_is_a_sentence(goat: Goat) -> None:
    ended = goat("train", "--config", "none.toml")
    assert ended.code == 1
    assert ended.err == "goat: none.toml: no such file or directory.\n"


def test_ctrl_c_is_a_sentence_and_exit_code_130(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_goat.app.cli.demo, "train", train)
    ended = goat("demo", "--device", "cpu")
    assert ended.code == 130
    assert ended.err.splitlines()[-1] == "goat: stopped."


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_its_extras_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match=rf"goat: {name} is missing; .*pip install 'torch-goat\[cli\]'"):
        cli.main()


def test_without_optuna_only_searching_is_refused(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in [name for name in sys.modules if name.startswith("torch_goat.experiments.search.")]:
        monkeypatch.delitem(sys.modules, name)
    ended = goat("tune", "top2")
    assert ended.code == 1
    assert ended.err == "goat: goat tune needs optuna; install it with: pip install 'torch-goat[cli]'.\n"
    assert goat("datasets").code == 0


def test_ctrl_c_is_answered_while_pytorch_is_imported() -> None:
    code = "import sys, torch_goat.app.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_a_file_that_may_not_be_written_is_a_sentence_with_advice(goat: Goat, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "out.html")

    monkeypatch.setattr("torch_goat.app.cli.app.torch_goat.backends", refused, raising=False)
    ended = goat("backends")
    assert (ended.code, ended.err) == (
        1,
        "goat: out.html: permission denied; change its permissions or choose another place.\n",
    )


def test_the_command_runs_as_a_program() -> None:
    code = "from torch_goat.app.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0
    assert result.stdout == f"torch-goat {torch_goat.__version__}\n"
