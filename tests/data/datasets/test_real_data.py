"""The real files, where ``TORCH_GOAT_DATA`` names a folder with them."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.datasets import Amazon, HeterophilousGraphDataset, Planetoid, WebKB
from torch_geometric.utils import to_undirected

from tests.data.datasets.test_registry import PUBLISHED
from torch_goat.data.datasets import DATASETS, load

FOLDER = Path(os.environ["TORCH_GOAT_DATA"]) if os.environ.get("TORCH_GOAT_DATA") else None
pytestmark = pytest.mark.skipif(FOLDER is None, reason="TORCH_GOAT_DATA names no folder with the real data")

SPLITS = [(name, split) for name, (*_, splits) in PUBLISHED.items() if name != "disease-sim" for split in splits]


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, with one cache for all tests of this file."""
    assert FOLDER is not None
    monkeypatch.setenv("TORCH_GOAT_DATA", str(FOLDER))
    monkeypatch.setenv("TORCH_GOAT_CACHE", str(tmp_path_factory.getbasetemp() / "real-cache"))
    return FOLDER


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_counts_and_split_sizes(name: str, split: str) -> None:
    if not DATASETS[name].available():
        pytest.skip(f"{name} is not in the data folder")
    protocol = DATASETS[name].protocols[split]
    data = load(name, split=split, index=protocol.count - 1)
    nodes, _, columns, features, classes, sizes = PUBLISHED[name]
    assert (data.num_nodes, data.num_edges, data.num_features, data.num_classes) == (nodes, columns, features, classes)
    assert data.y.shape == (data.num_nodes,)
    assert torch.equal(data.y.unique(), torch.arange(data.num_classes))
    parts = [data.train_mask, data.val_mask, data.test_mask]
    assert tuple(int(part.sum()) for part in parts) == (protocol.others[-1] if protocol.others else sizes[split])
    assert not bool((parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]).any())
    assert data.is_undirected() == (name not in ("cornell", "texas", "wisconsin"))


@pytest.mark.parametrize(
    ("name", "kind", "theirs"),
    [
        ("cora", Planetoid, "Planetoid/Cora"),
        ("texas", WebKB, "WebKB/texas"),
        ("photo", Amazon, "Amazon/Photo"),
        ("minesweeper", HeterophilousGraphDataset, "Heterophilous/minesweeper"),
        ("tolokers", HeterophilousGraphDataset, "Heterophilous/tolokers"),
    ],
)
def test_is_what_the_class_of_pyg_gives(name: str, kind: type, theirs: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / theirs / "raw", tmp_path / (theirs := Path(theirs).name) / "raw")
    expected = kind(str(tmp_path), theirs)[0]
    data = load(name, split="tuned" if name == "cora" else "")  # where Cora's features are as they are
    for key in ("x", "y", "edge_index"):
        assert torch.equal(data[key], expected[key])
    if name in ("texas", "minesweeper", "tolokers"):
        fourth = load(name, index=3)
        for key in ("train_mask", "val_mask", "test_mask"):
            assert torch.equal(fourth[key], expected[key][:, 3])


def test_the_splits_of_the_filtered_graphs_have_the_registered_sizes() -> None:
    for name in ("squirrel-filtered", "chameleon-filtered"):
        for index in range(10):  # loading fails for other sizes
            assert (
                int(load(name, index=index).val_mask.sum()) == DATASETS[name].protocols["platonov"].sizes_of(index)[1]
            )


def test_the_papers_split_of_cora() -> None:
    data = load("cora-content")
    assert data.train_mask.nonzero().view(-1).tolist() == list(range(140))
    assert data.val_mask.nonzero().view(-1).tolist() == list(range(200, 500))
    assert data.test_mask.nonzero().view(-1).tolist() == list(range(500, 1500))
    assert sorted(data.y[:140].bincount().tolist(), reverse=True) == [41, 28, 21, 17, 14, 11, 8]


def test_cora_is_the_same_graph_in_both_sources() -> None:
    """Degrees, and how often neighbours share a class, do not depend on the order of nodes and classes."""
    found = []
    for data in (load("cora-content"), load("cora")):
        source, target = data.edge_index
        alike = int((data.y[source] == data.y[target]).sum())
        found.append((sorted(source.bincount().tolist()), sorted(data.y.bincount().tolist()), alike))
    assert found[0] == found[1]


def test_row_sums() -> None:
    for name in ("cora", "citeseer", "cora-content"):
        sums = load(name).x.sum(dim=1)
        assert bool((((sums - 1).abs() < 1e-5) | (sums == 0)).all())  # CiteSeer has nodes without words
    assert set(load("computers").x.unique().tolist()) == {0, 1}


def test_what_is_known_of_graphs_whose_features_are_not_there(folder: Path) -> None:
    def check(name: str, labels: np.ndarray, num_edges: int) -> None:
        known = DATASETS[name]
        assert (len(labels), num_edges, int(labels.max()) + 1) == (known.nodes, known.edges, known.classes)

    arrays, arxiv = np.load(folder / "ogbn_arxiv/arxiv_graph.npz"), DATASETS["ogbn-arxiv"]
    edges = torch.from_numpy(arrays["edge_index"]).long()
    check("ogbn-arxiv", arrays["label"], edges.size(1))
    assert to_undirected(edges, num_nodes=arxiv.nodes).size(1) == arxiv.edge_columns
    assert tuple(np.bincount(arrays["split"]).tolist()) == arxiv.protocols["public"].sizes
    lastfm = folder / "LastFMAsia"
    labels = np.loadtxt(lastfm / "lastfm_asia_target.csv", delimiter=",", skiprows=1, dtype=int)[:, 1]
    check("lastfm-asia", labels, len((lastfm / "lastfm_asia_edges.csv").read_text().splitlines()) - 1)
    disease = folder / "Disease/disease_nc"
    edges = (disease / "disease_nc.edges.csv").read_text().splitlines()
    check("disease-nc", np.load(disease / "disease_nc.labels.npy"), len(edges))
