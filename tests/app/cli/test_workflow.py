"""The whole workflow on tables: train, then every command that it prints, as a user would copy it."""

import csv
import os
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from tests.app.conftest import Goat
from torch_goat.data.datasets import DATASETS, load
from torch_goat.data.tables.folder import write_tables
from torch_goat.experiments.own_graph import MODELS

VILLAGE = Path(__file__).parents[3] / "examples" / "village"
DATA = os.environ.get("TORCH_GOAT_DATA", "")
FEW = 1500  # nodes of a part of a large graph


def tables_of(name: str, folder: Path, most: int | None = None) -> list[str]:
    """Tables of a graph, or of its first nodes, with its first split."""
    if not DATA or not DATASETS[name].available(DATA):
        pytest.skip(f"TORCH_GOAT_DATA has no {name}")
    data = load(name, data_dir=DATA)
    write_tables(data.subgraph(torch.arange(data.num_nodes)[:most]), folder)
    return [str(folder)]


@pytest.mark.parametrize(
    "graph",
    [
        "village",
        "part of tolokers",
        pytest.param("tolokers", marks=pytest.mark.slow),
        pytest.param("cora", marks=pytest.mark.slow),
        pytest.param("chameleon-filtered", marks=pytest.mark.slow),
    ],
)
def test_the_whole_workflow_with_the_printed_commands(goat: Goat, graph: str) -> None:
    if graph == "village":
        shutil.copytree(VILLAGE, "village")
        named = ["village/nodes.csv", "village/edges.csv", "--target", "joins"]
    else:
        named = tables_of(graph.split()[-1], Path("tables"), FEW if graph.startswith("part") else None)
    budget = ["--set", "epochs=3", "--repeats", "1", "--minutes", "0", "--device", "cpu", "--out", "all"]
    ended = goat("train", *named, *budget)
    assert f"Plan: {len(MODELS)} runs of {len(MODELS)} models" in ended.out
    assert "Too few runs to tell" in ended.out
    printed = [shlex.split(line) for line in ended.out.split("Next:\n")[1].splitlines() if line.startswith("  goat ")]
    assert [command[1] for command in printed] == ["predict", "explain", "report"]
    for command in printed:
        goat(*command[1:])
    nodes = Path(named[0]) / "nodes.csv" if Path(named[0]).is_dir() else Path(named[0])
    with open("predictions.csv", newline="") as file, open(nodes, newline="") as table:
        rows, known = list(csv.DictReader(file)), list(csv.DictReader(table))
    assert [row["id"] for row in rows] == [row["id"] for row in known]
    assert "GOAT" in Path("report.html").read_text(encoding="utf-8")
    assert goat("runs", "all").out.count(" done ") == len(MODELS)
    again = goat("train", *named, *budget)  # repeats the plan and no run
    assert again.err.count("finished before") == len(MODELS)
