import subprocess
import sys

import pytest


def goat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from torch_goat.cli import main; main()", *arguments],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_demo_prints_a_table_of_three_models() -> None:
    result = goat("demo", "--epochs", "2")
    assert result.returncode == 0, result.stderr
    for text in ("GOAT", "GAT", "GraphSAGE-LSTM", "accuracy (%)", "time (s)", "2/2"):
        assert text in result.stdout


def test_backends_are_listed() -> None:
    result = goat("backends")
    assert result.returncode == 0
    assert "reference" in result.stdout
    assert "torch" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text"), [(["demo", "--epochs", "0"], "--epochs"), (["dance"], "dance"), (["demo", "x"], "x")]
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], text: str) -> None:
    result = goat(*arguments)
    assert result.returncode == 2
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def failing(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import torch_goat.cli.demo as demo\n"
        "def broken(seed): raise ValueError('the graph is broken')\n"
        "demo.top2 = broken\n"
        "from torch_goat.cli import main; main()"
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)


def test_failure_is_a_sentence_unless_debugging() -> None:
    result = failing("demo")
    assert result.returncode == 1
    assert result.stderr == "goat: the graph is broken (--debug shows the traceback)\n"
    assert "Traceback" in failing("--debug", "demo").stderr


def test_without_its_extras_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from torch_goat.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "typer is missing" in result.stderr
    assert "torch-goat[cli]" in result.stderr
