"""The whole workflow on tables: train, then every command that it prints, as a user would copy it."""

import csv
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph, to_undirected

from tests.app.conftest import Goat
from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables.folder import write_tables
from torch_goat.experiments.own_graph import MODELS

VILLAGE = Path(__file__).parents[3] / "examples" / "village"
DATA = os.environ.get("TORCH_GOAT_DATA", "")
FEW = 1500  # nodes of a large graph that are kept


def heterophilous(name: str, folder: Path) -> list[str]:
    """Tables of a graph with its first split; of a large one, a part."""
    place = Path(DATA) / f"Heterophilous/{name}/raw/{name}.npz"
    if not DATA or not place.is_file():
        pytest.skip(f"TORCH_GOAT_DATA has no {name}")
    with np.load(place, allow_pickle=False) as arrays:
        x, y, edges = (torch.from_numpy(arrays[key]) for key in ("node_features", "node_labels", "edges"))
        masks = {part: torch.from_numpy(arrays[f"{part}_masks"][0]).bool() for part in ("train", "val", "test")}
    kept = torch.arange(min(FEW, len(y)))
    edge_index, _ = subgraph(kept, to_undirected(edges.long().t().contiguous()), num_nodes=len(y))
    data = Data(x=x.float()[kept], y=y.long()[kept], edge_index=edge_index)
    for part, mask in masks.items():
        data[f"{part}_mask"] = mask[kept]
    write_tables(data, folder)
    return [str(folder)]


@pytest.mark.parametrize(
    "graph",
    [
        "village",
        "tolokers",
        pytest.param("cora", marks=pytest.mark.slow),
        pytest.param("chameleon_filtered", marks=pytest.mark.slow),
    ],
)
def test_the_whole_workflow_with_the_printed_commands(goat: Goat, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if graph == "village":
        shutil.copytree(VILLAGE, "village")
        named = ["village/nodes.csv", "village/edges.csv", "--target", "joins"]
    elif graph == "cora":
        if not DATA or not DATASETS["cora"].available(DATA):
            pytest.skip("TORCH_GOAT_DATA has no Cora")
        monkeypatch.setenv("TORCH_GOAT_DATA", DATA)
        goat("datasets", "export", "cora", "tables")
        named = ["tables"]
    else:
        named = heterophilous(graph, Path("tables"))
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
