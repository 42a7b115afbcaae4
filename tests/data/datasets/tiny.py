"""Small graphs in the raw formats of the real ones, and datasets that are read from them."""

import dataclasses
import gzip
import pickle
from pathlib import Path

import numpy as np
import scipy.sparse

from torch_goat.data.datasets import DATASETS
from torch_goat.data.datasets.dataset import Real
from torch_goat.data.datasets.splits import Split, given, shuffled

NOWHERE = "http://127.0.0.1:9"  # nobody listens there


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def write_webkb(folder: Path) -> None:
    """Six pages of three words, the first without any; 5 links, one given twice; ten splits, shifted by a page each."""
    raw = folder / "WebKB/texas/raw"
    pages = "".join(f"{page}\t{page % 2},{min(page, 1)},{page}\t{page % 3}\n" for page in range(6))
    put(raw / "out1_node_feature_label.txt", "node_id\tfeature\tlabel\n" + pages)
    put(raw / "out1_graph_edges.txt", "node_id\tnode_id\n1\t0\n0\t1\n2\t3\n5\t5\n4\t0\n4\t0\n")
    for index in range(10):
        part = (np.arange(6) + index) % 6
        np.savez(raw / f"texas_split_0.6_0.2_{index}.npz", train_mask=part < 3, val_mask=part == 3, test_mask=part > 3)


def webkb(url: str = NOWHERE) -> Real:
    """A dataset like Texas, read from the files of :func:`write_webkb`."""
    real = DATASETS["texas"]
    assert isinstance(real, Real)
    raw = tuple(
        dataclasses.replace(file, url=f"{url}/{file.path}", lines=7 * file.path.endswith(".txt")) for file in real.raw
    )
    protocols = {
        "geom-gcn": Split((3, 1, 2), count=10, draw=given),
        "random": Split((2, 2, 2), count=3, draw=shuffled(0.4, 0.3), row_normalized=True),
    }
    counts = {"nodes": 6, "edges": 6, "edge_columns": 5, "features": 3, "classes": 3}
    return dataclasses.replace(real, **counts, raw=raw, protocols=protocols)


def write_planetoid(raw: Path, name: str) -> dict[str, np.ndarray]:
    """The pickles of a graph of 530 nodes, 10 for training and the last 12 for testing; returns what is in them.

    The test nodes stand in another order than in ``tx``, which ``test.index`` gives.
    """
    generator = np.random.default_rng(0)
    features = (generator.random((530, 4)) < 0.3).astype(np.float32)
    labels = np.eye(3, dtype=np.int32)[generator.integers(3, size=530)]
    test = 518 + generator.permutation(12)
    objects = {
        "x": scipy.sparse.csr_matrix(features[:10]),
        "tx": scipy.sparse.csr_matrix(features[test]),
        "allx": scipy.sparse.csr_matrix(features[:518]),
        "y": labels[:10],
        "ty": labels[test],
        "ally": labels[:518],
        "graph": {0: [1, 2, 2, 0], 1: [0], 2: [0], 529: [3], 3: [529]},
    }
    raw.mkdir(parents=True)
    for key, value in objects.items():
        (raw / f"ind.{name}.{key}").write_bytes(pickle.dumps(value, protocol=2))
    put(raw / f"ind.{name}.test.index", "".join(f"{node}\n" for node in test))
    return {"features": features, "labels": labels.argmax(axis=1)}


def write_heterophilous(folder: Path) -> None:
    """Three nodes in a row, their two edges listed once; split i trains on node i % 3 and tests on the next."""
    path = put(folder / "Heterophilous/minesweeper/raw/minesweeper.npz", "")
    place = (np.arange(3) - np.arange(10)[:, None]) % 3  # [splits, N]
    graph = {"node_features": np.eye(3, dtype=np.float32), "node_labels": np.array([0, 1, 1])}
    masks = {f"{part}_masks": place == number for number, part in enumerate(("train", "test", "val"))}
    np.savez(path, **graph, **masks, edges=np.array([[0, 1], [2, 1]]))


def write_lastfm(folder: Path) -> None:
    """Two users who follow each other."""
    path = put(folder / "LastFMAsia/raw/lastfm_asia.npz", "")
    np.savez(path, features=np.array([[0.5, 1], [2, 3]]), target=np.array([1, 0]), edges=np.array([[0, 1]]))


def write_arxiv(folder: Path) -> None:
    """Four papers with two features; three citations, two of them between the same papers."""
    root = folder / "ogbn_arxiv"
    put(root / "raw/node-feat.csv.gz", "0.5,-1\n2,3\n4,5\n-0.25,0\n")
    put(root / "raw/node-label.csv.gz", "2\n0\n1\n2\n")
    put(root / "raw/edge.csv.gz", "0,1\n1,0\n3,2\n")
    for part, nodes in (("train", "3\n0\n"), ("valid", "1\n"), ("test", "2\n")):
        put(root / f"split/time/{part}.csv.gz", nodes)


def write_disease(folder: Path) -> None:
    """Three nodes in a row."""
    raw = folder / "Disease/disease_lp"
    put(raw / "disease_lp.edges.csv", "0,1\n1,2\n")
    np.save(raw / "disease_lp.labels.npy", np.array([1.0, 1.0, 0.0]))
    scipy.sparse.save_npz(raw / "disease_lp.feats.npz", scipy.sparse.csr_matrix([[0.0, 2.0], [1.0, 3.0], [0.0, 0.0]]))


def write_linqs(folder: Path) -> None:
    """Three papers on two topics; a paper that cites two others, one of them twice."""
    put(folder / "LINQS/cora/cora.content", "31\t1\t0\t1\tTheory\n7\t0\t0\t1\tAgents\n1050\t1\t1\t1\tTheory\n")
    put(folder / "LINQS/cora/cora.cites", "31\t1050\n7\t1050\n1050\t7\n")
