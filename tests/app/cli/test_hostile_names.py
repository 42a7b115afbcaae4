"""Names in data never reach the terminal as control characters, and spreadsheets never as formulas if so asked."""

import csv
import io
import re
import sys
from pathlib import Path

import pytest
import torch
from rich.text import Text

from tests.app.conftest import Goat
from tests.data.tables.files import EDGES, NODES, write
from torch_goat.app.cli import app
from torch_goat.app.cli.console import Aligned, console
from torch_goat.experiments import Predictions, RunError

FAST = ["--set", "epochs=2", "--set", "hidden_channels=4", "--device", "cpu"]
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\x7f\x08\r"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def hostile(text: str) -> str:
    """A table in which the node ``a``, the town ``Ulm`` and the class ``yes`` have such names."""
    for name in ("a", "Ulm", "yes"):
        text = re.sub(rf"(^|,){name}(?=,|$)", lambda found: f'{found[1]}"{name}{EVIL}"', text, flags=re.M)  # noqa: B023
    return text


@pytest.fixture
def run(goat: Goat, tmp_path: Path) -> str:
    write(tmp_path, hostile(NODES), hostile(EDGES))
    goat("train", "nodes.csv", "edges.csv", "--target", "label", "--model", "goat", *FAST, "--out", f"run{EVIL}")
    return f"run{EVIL}"


def test_no_command_prints_control_characters(goat: Goat, tmp_path: Path, run: str) -> None:
    tables = ["nodes.csv", "edges.csv"]
    (tmp_path / f"bad{EVIL}.csv").write_text(hostile(NODES).replace("30", EVIL))
    (tmp_path / "unseen.csv").write_text(NODES.replace("Ulm", f"x{EVIL}").replace("Bonn", "y").replace("Kiel", "z"))
    (tmp_path / "links.csv").write_text(f"source,target\nb,{EVIL[:-1]}\n")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.toml").write_text(f'dataset = "{EVIL}')
    shown = ""
    for arguments, code in (
        (["train", *tables, "--target", "label", "--model", "gcn", *FAST, "--out", f"other{EVIL}"], 0),
        (["train", *tables, "--target", EVIL, "--out", "x"], 1),
        (["train", *tables, "--target", "label", "--set", f"{EVIL}=1", "--out", "x"], 2),
        (["train", *tables, EVIL], 2),
        (["train", f"--{EVIL}"], 2),
        (["predict", run, *tables], 0),
        (["predict", run, *tables, "-o", f"out{EVIL}.csv"], 0),
        (["predict", run, f"bad{EVIL}.csv", "edges.csv"], 1),
        (["predict", run, "unseen.csv", "edges.csv"], 1),
        (["predict", run, "nodes.csv", "links.csv"], 1),
        (["explain", run, "--node", f"a{EVIL}"], 0),
        (["explain", run, "--node", EVIL], 2),
        (["runs", "."], 0),
        (["runs", ".", "--format", "csv"], 0),
        (["runs", ".", "--format", "json"], 0),
        ([EVIL], 2),
    ):
        said = goat(*arguments, code=code)
        assert not RAW.search(said.out), (arguments, said.out)
        assert not RAW.search(said.err), (arguments, said.err)
        shown += said.out + said.err
    assert "\\u001b]0;owned" in shown  # escaped, not removed
    written = (tmp_path / f"out{EVIL}.csv").read_bytes().decode()  # files hold the names as they are
    assert f"a{EVIL}" in written


def test_a_traceback_has_no_control_characters(
    goat: Goat, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # restored afterwards
    with pytest.raises(RunError) as raised:
        app.run(["--debug", "explain", EVIL, "--node", "a"])
    sys.excepthook(raised.type, raised.value, raised.tb)
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert not RAW.search(printed)


def test_safe_csv_has_no_formulas(goat: Goat, tmp_path: Path) -> None:
    names = ["=1+1", "+1", "-1", "@sum", "\ttab", "\rreturn", "e=", "'f"]
    nodes = "id,x,label\n" + "".join(f'"{name}",{n},{("=yes", "no")[n % 2]}\n' for n, name in enumerate(names))
    write(tmp_path, nodes, "source,target\ne=,@sum\n")
    goat("train", "nodes.csv", "edges.csv", "--target", "label", "--model", "gcn", *FAST, "--out", "run")
    for options, mark in (([], ""), (["--safe-csv"], "'")):
        goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv", "--force", *options)
        with (tmp_path / "out.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        assert header == ["id", "prediction", "probability of =yes", "probability of no"]
        assert [row[0] for row in rows] == [f"{mark if n < 6 else ''}{name}" for n, name in enumerate(names)]
        assert {row[1] for row in rows} <= {f"{mark}=yes", "no"}


def test_numbers_are_no_formulas() -> None:
    found = Predictions(("-a", "b"), (-1.5, 2.0), (), torch.empty(2, 0), None, ())
    assert found.to_csv(safe=True).splitlines() == ["id,prediction", "'-a,-1.5", "b,2"]


def test_a_terminal_receives_only_the_control_characters_of_styles() -> None:
    for one in (Aligned([EVIL], [[EVIL], ["x"]]), Text(EVIL, "bold"), f"[bold]{EVIL}"):
        made = console()
        made.file = printed = io.StringIO()
        made._force_terminal = True
        made.print(one)
        assert "\\u001b]0;owned" in printed.getvalue()
        assert not RAW.search(re.sub("\x1b\\[[01]m", "", printed.getvalue()))
