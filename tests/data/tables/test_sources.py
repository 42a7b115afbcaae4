"""Files in other encodings, with other separators and of other formats give the same graph."""

import sys
from pathlib import Path

import networkx as nx
import pytest
import torch

from tests.data.tables.files import EDGES, NODES, write
from torch_goat.data.tables import TableError, Tables, load_tables
from torch_goat.data.tables.graph import TableGraph


def same(graph: TableGraph, other: TableGraph) -> bool:
    equal = all(torch.equal(graph.data[key], other.data[key]) for key in ("x", "y", "edge_index", "train_mask"))
    return equal and graph.ids == other.ids and graph.schema == other.schema


@pytest.mark.parametrize(("encoding", "noted"), [("utf-8-sig", False), ("utf-16", False), ("cp1252", True)])
def test_the_encoding_is_found_out(tmp_path: Path, encoding: str, noted: bool) -> None:
    nodes = NODES.replace("Ulm", "Köln").replace("a,30", "ä,30")
    edges = EDGES.replace("a,b", "ä,b").replace("j,a", "j,ä")
    plain = load_tables(write(tmp_path, nodes, edges))
    other = load_tables(write(tmp_path, nodes.encode(encoding), edges.encode(encoding)))
    assert same(plain, other)
    assert other.ids[0] == "ä"
    assert any(f"read as {encoding}" in note for note in other.notes) is noted


def test_quotes_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    plain = load_tables(write(tmp_path))
    nodes = NODES.replace("Kiel", '"Kiel"').replace("c,", "\n\nc,").replace("\n", "\r\n")
    assert same(plain, load_tables(write(tmp_path, nodes, EDGES.replace(",", ", "))))
    # A cell with a line break moves the lines after it, and messages still name the right one.
    nodes = NODES.replace("Bonn", '"Bo\nnn"').replace("g,35", "g,three")
    with pytest.raises(TableError, match="line 10, column 'age': 'three'"):
        load_tables(write(tmp_path, nodes))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_the_separator_is_found_out_also_beside_decimal_commas(tmp_path: Path, separator: str) -> None:
    plain = load_tables(write(tmp_path))
    other = load_tables(write(tmp_path, NODES.replace(",", separator), EDGES.replace(",", separator)))
    assert same(plain, other)
    assert any("separated by" in note for note in other.notes)
    plain = load_tables(write(tmp_path, NODES.replace("0,", "0.5,")))
    nodes = NODES.replace("0,", "0.5,").replace(",", separator).replace(".", ",")
    assert same(plain, load_tables(write(tmp_path, nodes)))


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_of_a_target_and_of_times(tmp_path: Path, separator: str) -> None:
    lines = [f"n{i},0.{i},{i * i}.5" for i in range(20)]
    plain = "\n".join(["id,when,y", *lines])
    edges = "source,target\nn1,n2\n"
    for options in ({"target": "y"}, {"target": "y", "time_column": "when"}):
        expected = load_tables(write(tmp_path, plain, edges, **options))
        found = load_tables(write(tmp_path, plain.replace(",", separator).replace(".", ","), edges, **options))
        assert expected.schema.task == "regression"
        assert same(expected, found)


def test_some_numbers_are_categories(tmp_path: Path) -> None:
    column = load_tables(write(tmp_path, categories=("member",))).schema.nodes[2]
    assert (column.kind, column.categories) == ("category", ("0", "1"))
    nodes = "id\tx\ty\n" + "".join(f"n{i}\t{i % 9 + 1},{i % 9}00\t{'ab'[i % 2]}\n" for i in range(20))
    graph = load_tables(write(tmp_path, nodes, "source,target\nn1,n2\n", target="y"))
    assert [column.kind for column in graph.schema.nodes] == ["category"]  # thousands, not 1.1 to 9.8


def test_names_are_any_text(tmp_path: Path) -> None:
    odd = ["NA", "007", "7", "<b>x</b>", "née", "null", "a b", "=1+1", "0", "'"]
    nodes, edges = NODES, EDGES
    for old, new in zip("abcdefghij", odd, strict=True):
        nodes = nodes.replace(f"\n{old},", f"\n{new},")
        edges = edges.replace(f"\n{old},", f"\n{new},").replace(f",{old}\n", f",{new}\n")
    graph = load_tables(write(tmp_path, nodes, edges))
    assert graph.ids == tuple(odd)
    assert torch.equal(graph.data.edge_index, load_tables(write(tmp_path)).data.edge_index)


def graphml(path: Path, directed: bool = False) -> Tables:
    """The same graph, as NetworkX writes it."""
    graph = nx.DiGraph() if directed else nx.Graph()
    header, *rows = (line.split(",") for line in NODES.splitlines())
    for name, *cells in rows:
        values = dict(zip(header[1:], cells, strict=True))
        graph.add_node(name, **{key: int(cell) if cell.isdecimal() else cell for key, cell in values.items() if cell})
    graph.add_edges_from(line.split(",") for line in EDGES.splitlines()[1:])
    nx.write_graphml_xml(graph, path)
    return Tables(nodes=str(path), target="label")


def test_graphml_is_the_same_graph(tmp_path: Path) -> None:
    plain, other = load_tables(write(tmp_path)), load_tables(graphml(tmp_path / "graph.graphml"))
    assert other.ids == plain.ids
    assert other.schema.classes == plain.schema.classes
    assert {column.name for column in other.schema.nodes} == {"age", "town", "member"}
    assert torch.equal(other.data.edge_index, plain.data.edge_index)
    assert load_tables(graphml(tmp_path / "graph.graphml", directed=True)).data.edge_index.size(1) == 10


LAUGHS = '<?xml version="1.0"?>\n<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>\n<graphml>&b;</graphml>'
INCLUDE = '<?xml version="1.0"?>\n<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]><graphml>&a;</graphml>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "line 2: document types"),
        (INCLUDE, "line 2: document types"),
        ("<graphml><graph>\n<node/></graph></graphml>", "line 2: <node> has no id"),
        ("<graphml><graph>\n<hyperedge/></graph></graphml>", "line 2: hyperedges are not supported"),
        ("<graphml><graph><node id='a'>\n<data key='k'/></node></graph></graphml>", "line 2: there is no key 'k'"),
        ("<graphml><graph/>\n<graph/></graphml>", "line 2: found a second or nested graph"),
        (
            "<graphml><graph edgedefault='undirected'><node id='a'/>\n<edge source='a' target='a' directed='true'/>"
            "</graph></graphml>",
            "line 2: the edge is directed, but the graph is undirected; make all edges of one kind",
        ),
        ("<graphml><graph>", "line 1: not a GraphML file"),
        ("<html></html>", "line 1: not a GraphML file: it contains no graph"),
        ("<graphml><graph></graph></graphml>", "line 1: the graph has no nodes"),
        ("<graphml><graph><node id='a'/></graph></graphml>", "line 1: there is no column 'label' for the target"),
        ("<?xml version='1.0' encoding='nonsense'?><graphml/>", "line 1: not a GraphML file"),
    ],
)
def test_bad_graphml_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "graph.graphml"
    path.write_text(text)
    with pytest.raises(TableError, match=f"graph.graphml, {message}"):
        load_tables(Tables(nodes=str(path), target="label"))


@pytest.mark.parametrize("purpose", ["for='node'", "for='all'", ""])
def test_defaults_of_graphml(tmp_path: Path, purpose: str) -> None:
    own = ["" if i % 3 else f"<data key='x'>{i}</data>" for i in range(20)]
    nodes = "".join(f"<node id='n{i}'><data key='y'>{'ab'[i % 2]}</data>{own[i]}</node>" for i in range(20))
    path = tmp_path / "graph.graphml"
    path.write_text(
        f"<graphml><key id='x' {purpose}><default>5.0</default></key><key id='y' for='node'/><graph>{nodes}"
        "<edge source='n0' target='n1'/></graph></graphml>"
    )
    data = load_tables(Tables(nodes=str(path), target="y")).data
    values = torch.tensor([5.0 if i % 3 else i for i in range(20)])
    train = values[data.train_mask]
    assert data.x.size(1) == 1  # none is missing
    assert torch.allclose(data.x[:, 0], (values - train.mean()) / train.std(unbiased=False), atol=1e-5)


def test_parquet_is_the_same_graph(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow (the extra parquet) is not installed")
    import pandas as pd

    plain = load_tables(write(tmp_path))
    for name in ("nodes", "edges"):
        pd.read_csv(tmp_path / f"{name}.csv").to_parquet(tmp_path / f"{name}.parquet")
    tables = Tables(nodes=str(tmp_path / "nodes.parquet"), edges=str(tmp_path / "edges.parquet"), target="label")
    assert same(plain, load_tables(tables))
    damaged = (tmp_path / "nodes.parquet").read_bytes()
    (tmp_path / "nodes.parquet").write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(TableError, match="not a readable Parquet file"):
        load_tables(tables)


def test_without_pyarrow_a_parquet_file_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"nodes\.csv is a Parquet file, which needs pyarrow"):
        load_tables(write(tmp_path, b"PAR1rest"))
