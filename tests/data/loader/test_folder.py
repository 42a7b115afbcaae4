import errno
import json
import os
import shutil
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import Data

from torch_goat.data.loader import CSC, neighbor_loader, open_graph, write_graph
from torch_goat.data.loader.folder import digest
from torch_goat.settings import SettingsError


def graph() -> Data:
    edge_index = torch.randint(20, (2, 90))
    masks = {f"{part}_mask": torch.arange(20) % 3 == number for number, part in enumerate(("train", "val", "test"))}
    return Data(
        x=torch.randn(20, 3), edge_index=edge_index, edge_attr=torch.randn(90, 2), y=torch.arange(20) % 4, **masks
    )


def edges(data: Data) -> list[tuple[float, ...]]:
    """Every edge with its features, sorted."""
    csc = CSC.of(data)
    attr = data.edge_attr if csc.edge is None else data.edge_attr[csc.edge]
    return sorted(map(tuple, torch.cat([csc.edge_index().t().double(), attr.double()], dim=1).tolist()))


@pytest.mark.parametrize("form", ["grouped", "edge_index", "safetensors"])
def test_what_is_written_is_read(tmp_path: Path, form: str) -> None:
    data = graph()
    if form == "grouped":
        write_graph(data, tmp_path)
    elif form == "edge_index":
        for name, value in data.to_dict().items():
            np.save(tmp_path / f"{name}.npy", value.numpy())
    else:
        save_file({name: value.contiguous() for name, value in data.to_dict().items()}, tmp_path / "graph.safetensors")
    read = open_graph(tmp_path)
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(read[name], data[name])
    assert edges(read) == edges(data)
    assert (read.num_nodes, read.num_edges) == (20, 90)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
def test_batches_of_a_folder_are_those_of_the_graph(tmp_path: Path, subgraph_type: str, num_workers: int) -> None:
    data = graph()
    data.edge_index = data.edge_index[:, data.edge_index[1].sort(stable=True)[1]]  # as it is written
    write_graph(data, tmp_path)
    nodes = data.train_mask if subgraph_type == "directional" else None
    options = {
        "input_nodes": nodes,
        "batch_size": 3,
        "subgraph_type": subgraph_type,
        "num_workers": num_workers,
        "transform": marked,
    }
    here, there = (neighbor_loader(one, [2, 2], **options) for one in (data, open_graph(tmp_path)))
    for batch, wanted in zip(there, here, strict=True):
        assert batch.marked
        for key in ("x", "edge_index", "edge_attr", "n_id"):
            assert torch.equal(batch[key], wanted[key])


def marked(batch: Data) -> Data:
    batch.marked = batch.edge_attr is not None
    return batch


def test_pages_are_read_when_they_are_looked_at(tmp_path: Path) -> None:
    """A file far larger than memory (it has a hole in it) is opened, sampled from, and left as it was."""
    rows, width = 1 << 32, 64  # one terabyte
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
        start = file.tell()
        os.truncate(file.fileno(), start + rows * width * 4)
    with open(tmp_path / "x.npy", "r+b") as file:
        file.seek(start + (rows - 1) * width * 4)
        file.write(np.full(width, 7, "<f4").tobytes())
    np.save(tmp_path / "edge_index.npy", np.array([[rows - 1, 3], [5, rows - 1]]))
    data = open_graph(tmp_path)
    assert data.num_nodes == rows
    assert bool((data.x[torch.tensor([rows - 1])] == 7).all())
    data.x[0] = 1.0  # this process's own page
    assert float(open_graph(tmp_path).x[0].sum()) == 0


def test_the_digest_changes_with_the_arrays_and_with_nothing_else(tmp_path: Path) -> None:
    write_graph(graph(), tmp_path / "one")
    first = digest(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "readme.txt").write_text("mine")
    assert digest(tmp_path / "two") == first
    seen = {first}
    for name in ("x", "y", "train_mask", "indices", "edge_attr"):
        array = np.load(tmp_path / "two" / f"{name}.npy")
        array.reshape(-1)[-1] = 1 - array.reshape(-1)[-1] if array.dtype != bool else ~array.reshape(-1)[-1]
        np.save(tmp_path / "two" / f"{name}.npy", array)
        seen.add(digest(tmp_path / "two"))
    assert len(seen) == 6


def test_the_digest_of_a_large_file_reads_parts_of_it(tmp_path: Path) -> None:
    with open(tmp_path / "x.npy", "wb") as file:
        os.truncate(file.fileno(), 1 << 40)  # a hole
    seen = [digest(tmp_path)]
    for place in (0, (1 << 40) - 1):
        with open(tmp_path / "x.npy", "r+b") as file:
            file.seek(place)
            file.write(b"1")
        seen.append(digest(tmp_path))
    os.truncate(tmp_path / "x.npy", (1 << 40) + 1)
    assert len({*seen, digest(tmp_path)}) == 4


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("y", torch.zeros(9, 1), r"y has shape \[9, 1\]"),
        ("train_mask", torch.ones(9, 2, dtype=torch.bool), r"train_mask has shape \[9, 2\]"),
        ("x", torch.zeros(9, 2, dtype=torch.bfloat16), "x is bfloat16, which .npy files do not support"),
    ],
)
def test_what_could_not_be_opened_is_not_written(tmp_path: Path, key: str, value: torch.Tensor, message: str) -> None:
    data = Data(x=torch.randn(9, 2), edge_index=torch.tensor([[0], [1]]))
    data[key] = value
    with pytest.raises(SettingsError, match=message):
        write_graph(data, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_a_part_of_grouped_data_has_no_edges_to_read(tmp_path: Path) -> None:
    write_graph(graph(), tmp_path)
    part = open_graph(tmp_path).subgraph(torch.arange(15, 20))  # of which PyG renumbers the nodes alone
    with pytest.raises(ValueError, match="grouped for 20 nodes, but the graph has 5"):
        neighbor_loader(part, [2])


def test_nothing_is_written_over(tmp_path: Path) -> None:
    write_graph(graph(), tmp_path)
    before = (tmp_path / "x.npy").read_bytes()
    with pytest.raises(SettingsError, match="already exists"):
        write_graph(graph(), tmp_path)
    assert (tmp_path / "x.npy").read_bytes() == before
    small = Data(x=torch.randn(2, 1), edge_index=torch.tensor([[0], [1]]))
    write_graph(small, tmp_path, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["indices.npy", "indptr.npy", "x.npy"]


def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(graph(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(np, "save", Mock(wraps=np.save, side_effect=[DEFAULT, DEFAULT, full]))
    with pytest.raises(OSError, match="No space left"):
        write_graph(graph(), tmp_path, force=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def safetensors(**entry: object) -> bytes:
    """Sixteen bytes of zeros under a header."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(16)


def damage(folder: Path, name: str, value: object) -> None:
    if callable(value):
        value = value((folder / name).read_bytes())
    if isinstance(value, bytes):
        (folder / name).write_bytes(value)
    elif value is None:
        (folder / name).unlink()
    else:
        np.save(folder / name, value)


NOT_NUMBERS, NOT_INTACT = "not an intact array of numbers", "not an intact safetensors file"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x.npy", b"not an array", NOT_NUMBERS),
        ("x.npy", lambda whole: whole[:-4], f"{NOT_NUMBERS} .*greater than file size"),
        ("x.npy", lambda whole: whole.replace(b"(20, 3)", b"(-20,3)"), NOT_NUMBERS),
        ("x.npy", lambda whole: whole.replace(b"{'descr': '<f4'", b"{" * 15), NOT_NUMBERS),
        ("x.npy", np.array([{}], dtype=object), NOT_NUMBERS),
        ("x.npy", np.asfortranarray(np.zeros((20, 3), np.float32)), "column by column"),
        ("x.npy", np.zeros((20, 3), int), r"x has shape \[20, 3\]"),
        ("y.npy", np.zeros(19), "y has shape"),
        ("train_mask.npy", np.zeros(20), "train_mask has shape"),
        ("indices.npy", None, "must contain x"),
        ("edge_index.npy", np.zeros((2, 1), int), "contains its edges twice"),
        ("xs.npy", np.zeros(3), "did you mean 'x'"),
        ("graph.safetensors", b"\0" * 4, NOT_INTACT),
        ("graph.safetensors", (2).to_bytes(8, "little") + json.dumps([]).encode(), NOT_INTACT),
        *(("graph.safetensors", safetensors(data_offsets=ends), NOT_INTACT) for ends in ([0, 8], [-4, 12])),
        *(("graph.safetensors", safetensors(shape=shape), NOT_INTACT) for shape in ([-2, -2], [2.0, 2], "22")),
    ],
)
def test_damaged_folders(tmp_path: Path, name: str, value: object, message: str) -> None:
    write_graph(graph(), tmp_path)
    damage(tmp_path, name, value)
    with pytest.raises(SettingsError, match=message):
        open_graph(tmp_path)


def test_wrong_numbers(tmp_path: Path) -> None:
    write_graph(graph(), tmp_path)
    damage(tmp_path, "indices.npy", np.full(90, 20))
    with pytest.raises(IndexError, match="node 20"):
        CSC.of(open_graph(tmp_path))
    damage(tmp_path, "indices.npy", np.zeros(80, int))
    damage(tmp_path, "edge_attr.npy", None)
    with pytest.raises(ValueError, match="ascend from 0 to the number of edges, 80"):
        CSC.of(open_graph(tmp_path))
    for name, value in (("indices", None), ("indptr", None), ("edge_index", np.array(3))):
        damage(tmp_path, f"{name}.npy", value)
    with pytest.raises(SettingsError, match=r"edge_index has shape \[\] and type torch.int64, expected \[2, 0\]"):
        open_graph(tmp_path)
    with pytest.raises(SettingsError, match="it has neither"):
        open_graph(tmp_path / "elsewhere")
