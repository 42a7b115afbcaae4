import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.small_runs import run, small, small_graphs
from torch_goat.app.cli.app import run as goat
from torch_goat.app.cli.explain import _blocks
from torch_goat.app.explain import explain
from torch_goat.experiments import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runs")
    with small_graphs():
        run(folder / "goat", "goat", record_orderings=(0,))
        run(folder / "gcn", "gcn")
        run(folder / "apart", "apart", "betweenness-100")
        yield folder


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        goat(["explain", *arguments])
    return int(ended.value.code or 0)


def test_it_prints_orders_contributions_and_stability(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(str(runs / "goat"), "--node", "7") == 0
    printed = capsys.readouterr().out
    found = explain(Run(runs / "goat"), "7")
    for reading in found.readings:
        assert f"layer {reading.layer}, head {reading.head}" in printed
        for node, coefficient in zip(reading.neighbors, reading.coefficients, strict=True):
            assert f"{node} ({coefficient:.3f})" in printed
    for one in found.effects:
        assert f"{one.contribution:+.4f}" in printed
    assert f"{found.interactions[0].value:+.4f}" in printed
    assert "Kendall's tau" in printed
    assert "no run with another seed" in printed
    assert "the node itself is one of them" in printed
    assert command(str(runs / "gcn"), "--node", "7") == 0
    printed = capsys.readouterr().out
    assert "no GOAT layer" in printed
    assert "contribution" in printed


def test_without_self_loops(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    degree = torch.bincount(small("betweenness-100").edge_index[1], minlength=100)
    assert int(degree.min()) == 0
    for node, said in ((degree.argmax(), "with attention coefficients:"), (degree.argmin(), "Nothing to order")):
        assert command(str(runs / "apart"), "--node", str(int(node))) == 0
        assert said in capsys.readouterr().out


def test_files_are_written_once(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "why.json"), "--figure", str(tmp_path / "why.png")]
    assert command(str(runs / "gcn"), "--node", "7", *files) == 0
    written = json.loads((tmp_path / "why.json").read_text())
    assert written == json.loads(json.dumps(explain(Run(runs / "gcn"), "7").to_dict()))
    assert (tmp_path / "why.png").read_bytes()[:4] == b"\x89PNG"
    assert command(str(runs / "gcn"), "--node", "8", *files) == 2
    assert "already exists" in capsys.readouterr().err
    assert json.loads((tmp_path / "why.json").read_text())["node"] == "7"
    assert command(str(runs / "gcn"), "--node", "8", *files, "--force") == 0
    assert json.loads((tmp_path / "why.json").read_text())["node"] == "8"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["gcn", "--node", "x"], 2, "no node 'x' in the graph, whose nodes are 0, 1, 2, ...; name one."),
        (["gcn", "--node", "7", "--json", "new.json", "--figure", "new.xyz"], 2, "new.xyz must end in .png, .svg or"),
        (["nowhere", "--node", "7"], 1, "not a run folder"),
        (["gcn", "--node", "7", "--json", "."], 2, "is a folder"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    runs: Path, arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(str(runs / arguments[0]), *arguments[1:]) == code
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1
    assert not Path("new.json").exists()


def test_a_narrow_terminal_shows_the_heads_below_each_other() -> None:
    columns = ["place", *(f"layer 1, head {head}" for head in range(8))]
    rows = [[str(place), *(f"H{place:03d} (0.{head}25)" for head in range(8))] for place in range(1, 4)]
    blocks = list(_blocks(columns, rows, 80))
    assert len(blocks) > 1
    assert all(block.width() <= 80 for block in blocks)
    assert [name for block in blocks for name in block.names[1:]] == columns[1:]
    for number, row in enumerate(rows):
        assert [cell for block in blocks for cell in block.rows[number][1:]] == row[1:]
        assert {block.rows[number][0] for block in blocks} == {row[0]}
    assert len(list(_blocks(columns, rows, 200))) == 1
    assert len(list(_blocks(columns, rows, 5))) == 8  # one at least


def test_files_are_written_before_anything_is_printed(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as head does when it has enough
    with open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert command(str(runs / "apart"), "--node", "7", "--json", str(tmp_path / "all.json")) == 1
    assert (tmp_path / "all.json").exists()
