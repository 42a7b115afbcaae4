from pathlib import Path

import pytest
import torch

from torch_goat.data import datasets
from torch_goat.data.tables import TableError, Tables, find_tables, load_tables, write_tables
from torch_goat.settings import SettingsError


@pytest.mark.parametrize("name", ["top2", "betweenness-100"])
def test_an_exported_dataset_is_read_as_it_was(tmp_path: Path, name: str) -> None:
    data = datasets.load(name, index=2)
    write_tables(data, tmp_path / "graph")
    graph = load_tables(Tables(**find_tables(str(tmp_path / "graph"))))
    scale, mean = graph.schema.target_scale, graph.schema.target_mean
    torch.testing.assert_close(
        graph.data.y * scale + mean if graph.schema.task == "regression" else graph.data.y, data.y
    )
    edges, expected = (set(map(tuple, one.edge_index.t().tolist())) for one in (graph.data, data))
    assert edges == expected
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(graph.data[mask], data[mask])
    if name == "top2":  # numbers, standardised
        (column,) = graph.schema.nodes
        torch.testing.assert_close(graph.data.x * column.scale + column.mean, data.x)
    else:
        assert torch.equal(graph.data.x, data.x)


def test_nodes_without_a_class_stay_without(tmp_path: Path) -> None:
    data = datasets.load("top2")
    nobody = ~(data.train_mask | data.val_mask | data.test_mask)
    nobody |= data.test_mask & (torch.arange(data.num_nodes) % 2 == 0)
    data.y[nobody], data.test_mask = -1, data.test_mask & ~nobody
    write_tables(data, tmp_path / "graph")
    graph = load_tables(Tables(**find_tables(str(tmp_path / "graph"))))
    assert graph.schema.classes == ("0", "1")
    assert torch.equal(graph.data.y[~nobody], data.y[~nobody])
    assert torch.equal(graph.data.test_mask, data.test_mask)


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    data = datasets.load("betweenness-100")
    (tmp_path / "edges.csv").write_text("mine")
    with pytest.raises(SettingsError, match=r"edges\.csv already exists"):
        write_tables(data, tmp_path)
    assert (tmp_path / "edges.csv").read_text() == "mine"
    assert not (tmp_path / "nodes.csv").exists()
    write_tables(data, tmp_path, force=True)
    assert (tmp_path / "edges.csv").read_text().startswith("source,target\n")


def test_a_folder_of_two_files_needs_no_settings_and_settings_are_checked(tmp_path: Path) -> None:
    (tmp_path / "nodes.tsv").touch()
    with pytest.raises(TableError, match=r"has no edges\.csv"):
        find_tables(str(tmp_path))
    (tmp_path / "edges.csv").touch()
    assert find_tables(str(tmp_path)) == {"nodes": str(tmp_path / "nodes.tsv"), "edges": str(tmp_path / "edges.csv")}
    with pytest.raises(TableError, match=r"is a folder.*leave out x\.csv"):
        find_tables(str(tmp_path), "x.csv")
    (tmp_path / "graph.toml").write_text('nodes = "../secret.csv"\nedges = "edges.csv"\ntarget = "y"\n')
    with pytest.raises(TableError, match="must be names of files in the folder"):
        find_tables(str(tmp_path))
    (tmp_path / "graph.toml").write_text('nodes = "n.csv"\nedges = "e.csv"\ntarget = "y"\ncolor = 1\n')
    with pytest.raises(SettingsError, match="unknown key 'color'"):
        find_tables(str(tmp_path))
