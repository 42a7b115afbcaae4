import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.data.datasets import tiny
from torch_goat.data.datasets import readers
from torch_goat.data.datasets.cache import Graph
from torch_goat.data.datasets.readers import Reader
from torch_goat.data.datasets.splits import given

EYE = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
ARXIV = [[0.5, -1], [2, 3], [4, 5], [-0.25, 0]]  # the features


def check_edges(graph: Graph, *pairs: tuple[int, int]) -> None:
    assert sorted(map(tuple, graph["edge_index"].t().tolist())) == sorted({*pairs, *((b, a) for a, b in pairs)})


def parts(graph: Graph) -> list[list[int]]:
    return [graph[f"{part}_mask"].nonzero().view(-1).tolist() for part in ("train", "val", "test")]


def test_planetoid(tmp_path: Path) -> None:
    written = tiny.write_planetoid(tmp_path / "Planetoid/Cora/raw", "cora")
    graph = readers.pyg("Planetoid", "Cora")(tmp_path)
    assert graph["x"].tolist() == written["features"].tolist()
    assert graph["y"].tolist() == written["labels"].tolist()
    check_edges(graph, (0, 1), (0, 2), (3, 529))
    assert parts(graph) == [[*range(10)], [*range(10, 510)], [*range(518, 530)]]
    assert not (tmp_path / "Planetoid/Cora/processed").exists()


def test_splits_of_a_heterophilous_graph(tmp_path: Path) -> None:
    tiny.write_heterophilous(tmp_path)
    graph = readers.heterophilous("minesweeper")(tmp_path)
    for index, expected in ((0, [0, 2, 1]), (1, [1, 0, 2]), (9, [0, 2, 1])):
        assert [part.tolist() for part in given(graph, index, [])] == [[node] for node in expected]


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


@pytest.mark.parametrize(
    ("write", "read", "x", "y", "pairs"),
    [
        (tiny.write_lastfm, readers.pyg("LastFMAsia", symmetric=True), [[0.5, 1], [2, 3]], [1, 0], [(0, 1)]),
        (tiny.write_heterophilous, readers.heterophilous("minesweeper"), EYE, [0, 1, 1], [(0, 1), (1, 2)]),
        (tiny.write_arxiv, readers.ogbn_arxiv, ARXIV, [2, 0, 1, 2], [(0, 1), (3, 2)]),
        (tiny.write_disease, readers.disease("disease_lp"), [[0, 2], [1, 3], [0, 0]], [1, 1, 0], [(0, 1), (1, 2)]),
        (tiny.write_linqs, readers.cora_content, [[1, 0, 1], [0, 0, 1], [1, 1, 1]], [1, 0, 1], [(0, 2), (1, 2)]),
    ],
)
def test_small_graphs(tmp_path: Path, write: Callable, read: Reader, x: list, y: list, pairs: list) -> None:
    write(tmp_path)
    graph = read(tmp_path)
    assert graph["x"].tolist() == x
    assert graph["x"].dtype == torch.float
    assert graph["y"].tolist() == y
    check_edges(graph, *pairs)
