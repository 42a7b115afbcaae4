import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.app.conftest import Goat
from tests.data.tables.files import write
from tests.small_runs import small
from torch_goat.app.cli.explain import _blocks
from torch_goat.app.explain import explain
from torch_goat.experiments import Run


def test_it_prints_orders_contributions_and_stability(goat: Goat, runs: Path) -> None:
    ended = goat("explain", str(runs / "compared/goat/0"), "--node", "7")
    found = explain(Run(runs / "compared/goat/0"), "7")
    for reading in found.readings:
        assert f"layer {reading.layer}, head {reading.head}" in ended.out
        for node, coefficient in zip(reading.neighbors, reading.coefficients, strict=True):
            assert f"{node} ({coefficient:.3f})" in ended.out
    for one in found.effects:
        assert f"{one.contribution:+.4f}" in ended.out
    assert f"{found.interactions[0].value:+.4f}" in ended.out
    for other in ("epoch", "seed"):
        assert f"Kendall's tau between this order and that of another {other}" in ended.out
    assert "the node itself is one of them" in ended.out
    ended = goat("explain", str(runs / "compared/gcn"), "--node", "7")
    assert "no GOAT layer" in ended.out
    assert "contribution" in ended.out


def test_without_self_loops_and_other_seeds(goat: Goat, runs: Path) -> None:
    degree = torch.bincount(small("betweenness-100").edge_index[1], minlength=100)
    assert int(degree.min()) == 0
    for node, said in ((degree.argmax(), "with attention coefficients:"), (degree.argmin(), "Nothing to order")):
        ended = goat("explain", str(runs / "number"), "--node", str(int(node)))
        assert said in ended.out
        assert "no run with another seed" in ended.out


def test_numbers_that_vary_little_next_to_their_mean_are_told_apart(goat: Goat, tmp_path: Path) -> None:
    numbers = [1e7 + 3 * (number % 7) + 0.5 for number in range(40)]
    rows = [f"n{number},{number % 5},{value}" for number, value in enumerate(numbers)]
    edges = [f"n{number},n{(number + 1) % 40}" for number in range(40)]
    write(tmp_path, "\n".join(["id,x,label", *rows]), "\n".join(["source,target", *edges]))
    read = ["nodes.csv", "edges.csv", "--target", "label"]
    ended = goat("train", *read, "--model", "gcn", "--set", "epochs=5", "--device", "cpu", "--out", "run")
    graph = Run("run").graph()
    known = np.array(numbers)[graph.data.train_mask.numpy()]
    mean, deviation = map(float, re.search(r"a number \(mean (\S+), standard deviation (\S+)\)", ended.out).groups())
    assert (mean, deviation) == pytest.approx((known.mean(), known.std()), abs=0.001 * known.std(), rel=0)
    found = explain(Run("run"), "n3")
    said = goat("explain", "run", "--node", "n3").out
    predicted, truth = map(float, re.search(r"predicted (\S+); the true value is (\S+)\. ", said).groups())
    exact = [found.prediction.value, numbers[3], *(one.without for one in found.effects)]
    without = [
        float(re.search(rf"(?m)^ *{found.graph.ids[one.neighbor]} .* (\S+) *$", said)[1]) for one in found.effects
    ]
    assert [predicted, truth, *without] == pytest.approx(exact, abs=0.001 * known.std(), rel=0)


def test_files_are_written_once(goat: Goat, runs: Path) -> None:
    run, files = runs / "compared/gcn", ["--json", "why.json", "--figure", "why.png"]
    goat("explain", str(run), "--node", "7", *files)
    assert json.loads(Path("why.json").read_text()) == json.loads(json.dumps(explain(Run(run), "7").to_dict()))
    assert Path("why.png").read_bytes()[:4] == b"\x89PNG"
    refused = goat("explain", str(run), "--node", "8", *files, code=2)
    assert "already exists" in refused.err
    assert json.loads(Path("why.json").read_text())["node"] == "7"
    goat("explain", str(run), "--node", "8", *files, "--force")
    assert json.loads(Path("why.json").read_text())["node"] == "8"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["gcn", "--node", "x"], 2, "no node 'x' in the graph, whose nodes are 0, 1, 2, ...; name one."),
        (["gcn", "--node", "7", "--json", "new.json", "--figure", "new.xyz"], 2, "new.xyz must end in .png, .svg or"),
        (["nowhere", "--node", "7"], 1, "not a run folder"),
        (["gcn", "--node", "7", "--json", "."], 2, "is a folder"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(goat: Goat, runs: Path, arguments: list[str], code: int, text: str) -> None:
    ended = goat("explain", str(runs / "compared" / arguments[0]), *arguments[1:], code=code)
    assert ended.err.count("\n") == 1
    assert text in ended.err
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


def test_files_are_written_before_anything_is_printed(goat: Goat, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as head does when it has enough
    with open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        goat("explain", str(runs / "number"), "--node", "7", "--json", "all.json", code=1)
    assert Path("all.json").exists()
