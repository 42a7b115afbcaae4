import dataclasses
import multiprocessing
import os
import pickle
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from tests.data.datasets import tiny
from tests.data.datasets.test_raw import Trap
from tests.processes import start_in, until
from torch_goat.data.datasets import DATASETS, DataError, load
from torch_goat.data.datasets.dataset import Real
from torch_goat.data.datasets.splits import Split, given

KEYS = ("x", "y", "edge_index", "train_mask", "val_mask", "test_mask")
WORDS = [[page % 2, min(page, 1), page] for page in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.write_webkb(tmp_path / "data")
    return tmp_path / "data"


def equal(a: Data, b: Data) -> bool:
    return a.keys() == b.keys() and all(a[key].equal(b[key]) for key in a.keys() if key != "num_classes")  # noqa: SIM118


def test_gives_the_graph_and_the_split_of_the_index(folder: Path) -> None:
    data = tiny.webkb().load("geom-gcn", 4, folder)
    assert data.x.tolist() == WORDS
    assert data.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert sorted(data.edge_index.t().tolist()) == [[0, 1], [1, 0], [2, 3], [4, 0], [5, 5]]
    assert data.train_mask.tolist() == [False, False, True, True, True, False]
    assert data.val_mask.tolist() == [False] * 5 + [True]
    assert data.test_mask.tolist() == [True, True, False, False, False, False]
    assert data.num_classes == 3
    assert equal(tiny.webkb().load("", 4, folder), data)


def test_a_protocol_may_normalize_the_features(folder: Path) -> None:
    x = torch.tensor(WORDS)
    assert torch.allclose(tiny.webkb().load("random", 1, folder).x, x / x.sum(dim=1, keepdim=True).clamp(min=1))
    assert tiny.webkb().load("geom-gcn", 0, folder).x.max() == 5  # the cache holds them as they are


def test_the_data_folder_is_never_written_to(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
    for path in before:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        tiny.webkb().load(data_dir=folder)
        tiny.webkb().load(data_dir=folder)
        assert {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]} == before
    finally:
        for path in before:
            path.chmod(0o755)


def test_a_changed_raw_file_is_never_served_stale(folder: Path) -> None:
    dataset = tiny.webkb()
    dataset.load(data_dir=folder)
    path = folder / "WebKB/texas/raw/out1_graph_edges.txt"
    times = path.stat()
    path.write_text(path.read_text().replace("2\t3", "3\t2"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # same size, same time
    assert [3, 2] in dataset.load(data_dir=folder).edge_index.t().tolist()


def test_without_a_data_folder_the_files_are_downloaded(folder: Path, cache: Path) -> None:
    dataset = tiny.webkb(folder.as_uri())
    assert not dataset.available()
    first = dataset.load()
    assert [path.name for path in (cache / "raw").iterdir()] == ["WebKB"]  # nothing half done lies about
    shutil.rmtree(folder)
    assert dataset.available()
    assert equal(dataset.load(), first)


def test_one_missing_file(folder: Path) -> None:
    missing = folder / "WebKB/texas/raw/texas_split_0.6_0.2_7.npz"
    missing.unlink()
    assert not tiny.webkb().available(folder)
    with pytest.raises(DataError, match=r"needs WebKB/texas/raw/texas_split_0\.6_0\.2_7\.npz \(split 7\)"):
        tiny.webkb().load(data_dir=folder)


@pytest.mark.parametrize("name", ["out1_node_feature_label.txt", "out1_graph_edges.txt", "texas_split_0.6_0.2_9.npz"])
def test_a_truncated_file_is_refused_by_name(folder: Path, cache: Path, name: str) -> None:
    path = folder / "WebKB/texas/raw" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name} is damaged or truncated"):
        tiny.webkb().load(data_dir=folder)
    assert not list(cache.rglob("*.safetensors"))


def test_files_of_another_graph_are_refused(folder: Path) -> None:
    dataset = tiny.webkb()
    for field, wrong, message in (
        ("nodes", 7, "contain 6 rows of features, but texas has 7"),
        ("edge_columns", 4, "contain 5 edges, but texas has 4"),
        ("features", 2, "contain 3 features, but texas has 2"),
        ("classes", 4, "contain 3 classes, but texas has 4"),
        ("protocols", {"other": Split((2, 2, 2), draw=given)}, r"does not consist of \(2, 2, 2\) distinct nodes"),
    ):
        with pytest.raises(DataError, match=message):
            dataclasses.replace(dataset, **{field: wrong}).load(data_dir=folder)


def test_nonsense_in_a_file_is_one_sentence(folder: Path) -> None:
    path = folder / "WebKB/texas/raw/out1_graph_edges.txt"
    path.write_text(path.read_text().replace("2\t3", "2\tx"))
    with pytest.raises(DataError, match=r"texas cannot be read from .* and 11 more files .*invalid literal"):
        tiny.webkb().load(data_dir=folder)
    path.write_text(path.read_text().replace("2\tx", "2\t6"))
    with pytest.raises(DataError, match="contain edges of nodes that texas does not have"):
        tiny.webkb().load(data_dir=folder)


def test_a_library_that_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    tiny.write_disease(folder)
    real = DATASETS["disease-lp"]
    assert isinstance(real, Real)
    raw = tuple(dataclasses.replace(file, lines=0) for file in real.raw)
    with pytest.raises(DataError, match=r"reading disease-lp needs scipy\.sparse; install torch-goat\[train\]"):
        dataclasses.replace(real, raw=raw).load(data_dir=folder)


def test_pickles_are_not_opened_unless_they_are_the_published_ones(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for name in ("cora", "citeseer", "pubmed"):
        for file in DATASETS[name].raw:
            path = tmp_path / "data" / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(Trap(mark)))
        with pytest.raises(DataError, match=rf"ind\.{name}\.x is not the published file \(SHA-256"):
            load(name, data_dir=tmp_path / "data")
    assert not mark.exists()


def prepare(folder: Path, log: Path) -> None:
    """One reader is killed while it parses, then four start together; each notes when it parses."""
    fork = multiprocessing.get_context("fork")

    def load(seconds: float, start: Any, results: Any) -> None:
        def read(root: Path) -> object:
            with open(log, "a") as lines:
                lines.write(f"{seconds}\n")
            time.sleep(seconds)
            return dataset.read(root)

        dataset = tiny.webkb()
        start.wait()
        data = dataclasses.replace(dataset, read=read).load("geom-gcn", 3, folder)
        results.put({key: data[key].tolist() for key in KEYS})

    results = fork.Queue()
    killed = fork.Process(target=load, args=(60, fork.Barrier(1), results))
    killed.start()
    until(log.exists, killed)
    killed.kill()
    killed.join()
    start = fork.Barrier(4)
    together = [fork.Process(target=load, args=(0.3, start, results)) for _ in range(4)]
    for process in together:
        process.start()
    print(*(results.get(timeout=300) for _ in together), sep="\n")


def test_processes_that_prepare_the_same_dataset_at_once(folder: Path, tmp_path: Path) -> None:
    start_in(tmp_path, prepare, folder, tmp_path / "log").join()
    data = tiny.webkb().load("geom-gcn", 3, folder)
    assert (tmp_path / "out").read_text().splitlines() == [str({key: data[key].tolist() for key in KEYS})] * 4
    assert (tmp_path / "log").read_text() == "60\n0.3\n"  # one of the four parsed, the others waited for it
