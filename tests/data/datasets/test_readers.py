import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.datasets import LastFMAsia, Planetoid

from tests.data.datasets import tiny
from torch_goat.data.datasets import readers
from torch_goat.data.datasets.cache import Graph


def check_edges(graph: Graph, *pairs: tuple[int, int]) -> None:
    assert sorted(map(tuple, graph["edge_index"].t().tolist())) == sorted({*pairs, *((b, a) for a, b in pairs)})


def parts(graph: Graph) -> list[list[int]]:
    return [graph[f"{part}_mask"].nonzero().view(-1).tolist() for part in ("train", "val", "test")]


def test_planetoid(tmp_path: Path) -> None:
    written = tiny.write_planetoid(tmp_path / "Planetoid/Cora/raw", "cora")
    graph = readers.pyg(Planetoid, "Cora")(tmp_path)
    assert graph["x"].tolist() == written["features"].tolist()
    assert graph["y"].tolist() == written["labels"].tolist()
    check_edges(graph, (0, 1), (0, 2), (3, 529))
    assert parts(graph) == [[*range(10)], [*range(10, 510)], [*range(518, 530)]]
    assert not (tmp_path / "Planetoid/Cora/processed").exists()


def test_lastfm_asia(tmp_path: Path) -> None:
    path = tmp_path / "LastFMAsia/raw/lastfm_asia.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, features=np.array([[0.5, 1], [2, 3]]), target=np.array([1, 0]), edges=np.array([[0, 1]]))
    graph = readers.pyg(LastFMAsia, symmetric=True)(tmp_path)
    assert graph["x"].tolist() == [[0.5, 1], [2, 3]]
    assert graph["y"].tolist() == [1, 0]
    check_edges(graph, (0, 1))


def test_ogbn_arxiv(tmp_path: Path) -> None:
    tiny.write_arxiv(tmp_path)
    graph = readers.ogbn_arxiv(tmp_path)
    assert graph["x"].tolist() == [[0.5, -1], [2, 3], [4, 5], [-0.25, 0]]
    assert graph["x"].dtype == torch.float
    assert graph["y"].tolist() == [2, 0, 1, 2]
    check_edges(graph, (0, 1), (3, 2))
    assert parts(graph) == [[0, 3], [1], [2]]


def test_arxiv_structure(tmp_path: Path) -> None:
    tiny.write_arxiv(tmp_path)
    (tmp_path / "ogbn_arxiv/raw/node-feat.csv.gz").unlink()
    tiny.put(tmp_path / "ogbn_arxiv/raw/edge.csv.gz", "0,1\n1,0\n3,2\n3,0\n")
    graph = readers.arxiv_structure(tmp_path)
    check_edges(graph, (0, 1), (3, 2), (3, 0))
    # Degrees are 2, 1, 1 and 2; every paper has a neighbour with two, so that the largest tells nothing.
    half = math.log(2) / 2
    made, received = [math.log(1 + count) for count in (1, 1, 0, 2)], [math.log(1 + count) for count in (2, 1, 1, 0)]
    for found, values in zip(graph["x"].t(), (made, received, [half, 2 * half, 2 * half, half]), strict=False):
        spread = statistics.pstdev(values)
        expected = [(value - statistics.fmean(values)) / spread for value in values]
        assert found.tolist() == pytest.approx(expected, abs=1e-6)
    assert graph["x"][:, 3].tolist() == [0, 0, 0, 0]
    assert graph["x"].shape == (4, 4)
    assert parts(graph) == [[0, 3], [1], [2]]


@pytest.mark.parametrize("name", ["disease_nc", "disease_lp"])
def test_disease(tmp_path: Path, name: str) -> None:
    tiny.write_disease(tmp_path, name)
    graph = readers.disease(name)(tmp_path)
    assert graph["x"].tolist() == [[0, 2], [1, 3], [0, 0]]
    assert graph["y"].tolist() == [1, 1, 0]
    check_edges(graph, (0, 1), (1, 2))


def test_cora_content(tmp_path: Path) -> None:
    tiny.write_linqs(tmp_path)
    graph = readers.cora_content(tmp_path)
    assert graph["x"].tolist() == [[1, 0, 1], [0, 0, 1], [1, 1, 1]]
    assert graph["y"].tolist() == [1, 0, 1]
    check_edges(graph, (0, 2), (1, 2))
