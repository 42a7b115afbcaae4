"""Files in other encodings, with other separators and of other formats give the same graph."""

import re
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import networkx as nx
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.tables.files import EDGES, NODES, with_column, write
from torch_goat.data.tables import Column, Schema, TableError, Tables, apply_schema, load_tables
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


def test_rows_that_end_early_are_noted(tmp_path: Path) -> None:
    whole = "id,label,age,town\n" + "".join(f"{one},{'yes' if one % 2 else 'no'},{one},Ulm\n" for one in range(10))
    missing, cut = (
        whole.replace("8,Ulm", "8,").replace("9,Ulm", "9,"),
        whole.replace("8,Ulm", "8").replace("9,Ulm", "9"),
    )
    edges = "source,target\n0,1\n1,2\n"
    graph = load_tables(write(tmp_path, missing, edges))
    assert not any("cells" in note for note in graph.notes)
    other = load_tables(write(tmp_path, cut, edges))
    assert same(graph, other)
    (note,) = (one for one in other.notes if "cells" in one)
    assert note.endswith(
        "nodes.csv, line 10: found 3 cells, but the header has 4 columns; the others are read as missing (2 such rows)."
    )


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
    plain = load_tables(write(tmp_path))
    for name in ("nodes", "edges"):
        pd.read_csv(tmp_path / f"{name}.csv").to_parquet(tmp_path / f"{name}.parquet")
    tables = Tables(nodes=str(tmp_path / "nodes.parquet"), edges=str(tmp_path / "edges.parquet"), target="label")
    assert same(plain, load_tables(tables))
    damaged = (tmp_path / "nodes.parquet").read_bytes()
    (tmp_path / "nodes.parquet").write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(TableError, match="not a readable Parquet file"):
        load_tables(tables)


@pytest.mark.parametrize(
    "times",
    [
        [2**53 + 5, 2**53 - 3, 2**53 + 4, 2**53 + 6],  # some of which are equal as floats
        [2**64 - 3, 0, 2**63, 2**64 - 1],
        [0.5, -1e9, 0.25, 1e20],
        ["2024-05-31T10:00:00.000000002Z", "2024-05-30", "2024-05-31T10:00:00.000000001Z", "2024-06-01"],
    ],
    ids=str,
)
def test_an_order_is_exact_and_the_same_in_every_format(tmp_path: Path, times: list) -> None:
    ends = list(zip("abcd", "bcde", strict=True))
    edges = "source,target,time\n" + "".join(f"{a},{b},{time}\n" for (a, b), time in zip(ends, times, strict=True))
    tables = write(tmp_path, edges=edges, order_by="time", directed=True)
    graph = load_tables(tables)
    assert graph.data.edge_key.tolist() == [sorted(times).index(time) for time in times]
    labelled = nx.DiGraph()
    labelled.add_nodes_from((line.split(",")[0], {"label": line.rpartition(",")[2]}) for line in NODES.splitlines()[1:])
    labelled.add_edges_from((a, b, {"time": str(time)}) for (a, b), time in zip(ends, times, strict=True))
    nx.write_graphml(labelled, tmp_path / "graph.graphml")
    other = load_tables(Tables(nodes=str(tmp_path / "graph.graphml"), target="label", order_by="time"))
    assert torch.equal(other.data.edge_key, graph.data.edge_key)
    frame = pd.read_csv(tables.edges)
    if isinstance(times[0], str):
        frame["time"] = pd.to_datetime(frame["time"], format="ISO8601", utc=True)
    frame.to_parquet(tmp_path / "edges.parquet")
    other = load_tables(replace(tables, edges=str(tmp_path / "edges.parquet")))
    assert torch.equal(other.data.edge_key, graph.data.edge_key)


def test_without_pyarrow_a_parquet_file_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"nodes\.csv is a Parquet file, which needs pyarrow"):
        load_tables(write(tmp_path, b"PAR1rest"))


CELLS = {  # of a column: its cells and the type that pandas gives it
    "truth": (st.sampled_from([True, False, None]), object),
    "count": (st.one_of(st.none(), st.integers(-3, 3)), "Int64"),
    "whole": (st.sampled_from([0.0, 1.0, 2.0, None]), "float64"),
    "number": (st.floats(-1e9, 1e9), "float64"),
    "short": (st.floats(-100, 100, width=32), "float32"),
    "day": (st.dates(date(2024, 1, 1), date(2024, 1, 9)), object),
    "time": (st.datetimes(datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 1)), "datetime64[us]"),
    "clock": (st.sampled_from([datetime(2024, 1, 1), datetime(2024, 1, 2, 9, 30), None]), "datetime64[us]"),
    "hour": (st.one_of(st.none(), st.times(time(9), time(9, 0, 1))), object),
    "zone": (st.sampled_from([datetime(2024, month, 1, tzinfo=UTC) for month in (1, 7)]), "datetime64[us, UTC]"),
    "kind": (st.sampled_from(["a", "b", None]), "category"),
    "text": (st.sampled_from(["a", "1", "1.0", "007", "true", "NA", "x y", "é", None]), object),
}


@given(drawn=st.data())
@settings(max_examples=20, deadline=None)
def test_any_table_is_the_same_graph_as_csv_and_as_parquet(drawn: st.DataObject) -> None:
    chosen = drawn.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4, unique=True))
    nodes = pd.DataFrame({"id": [f"{number:02d}" for number in range(20)]})
    for name in chosen:
        cells, kind = CELLS[name]
        nodes[name] = pd.Series(drawn.draw(st.lists(cells, min_size=20, max_size=20))).astype(kind)
    nodes["label"] = pd.Series(drawn.draw(st.sampled_from([[True, False], [0, 1], [0.0, 1.0], ["a", "b"]])) * 10)
    edges = pd.DataFrame({"source": nodes["id"], "target": nodes["id"].shift(-1, fill_value="00"), "w": range(20)})
    options = {
        "target": "label",
        "edge_features": True,
        "categories": tuple({*drawn.draw(st.lists(st.sampled_from(chosen))), *({"text"} & {*chosen})}),
    }
    found: list = []
    with TemporaryDirectory() as folder:
        for kind in ("csv", "parquet"):
            files = {name: f"{folder}/{name}.{kind}" for name in ("nodes", "edges")}
            for name, frame in (("nodes", nodes), ("edges", edges)):
                (frame.to_csv if kind == "csv" else frame.to_parquet)(files[name], index=False)
            try:
                found.append(load_tables(Tables(**files, **options)))
            except TableError as error:
                found.append(re.sub(r"\S+, line \d+", "", str(error)))
        if isinstance(found[0], str) or isinstance(found[1], str):
            assert found[0] == found[1]
            return
        assert same(*found)
        for graph in found:  # each model reads both
            for file in ("csv", "parquet"):
                new = apply_schema(graph.schema, f"{folder}/nodes.{file}", f"{folder}/edges.{file}")
                assert torch.equal(new.data.x, graph.data.x)
                assert torch.equal(new.data.edge_attr, graph.data.edge_attr)
                assert [graph.schema.classes.index(name) for name in new.target] == graph.data.y.tolist()


@pytest.mark.parametrize(
    ("trained", "others"),
    [
        ("09:30 10:00", ["9:30 10:00", "09:30:00 10:00:00.000"]),
        ("FALSE TRUE", ["false true", "False True", "false TRUE"]),
        ("1 2", ["1.0 2.0", "1.00 2"]),
        ("1.50 2.00", ["1.5 2"]),
        ("2024-01-01 2024-01-02", ["2024-01-01T00:00 2024-01-02T00:00:00.000"]),
        ("2024-01-01T09:30Z 2024-01-02T09:30Z", ["2024-01-01T09:30:00+00:00 2024-01-02T09:30:00.0+0000"]),
    ],
)
def test_another_spelling_is_the_same_category_and_class(tmp_path: Path, trained: str, others: list[str]) -> None:
    def cells(text: str) -> str:
        rows = zip("abcdefghij", text.split() * 5, strict=True)
        return "id,what,label\n" + "".join(f"{name},{cell},{cell}\n" for name, cell in rows)

    graph = load_tables(write(tmp_path, cells(trained), categories=("what",), task="classification"))
    assert graph.schema.nodes[0].categories == graph.schema.classes == tuple(trained.split())
    for text in others:
        tables = write(tmp_path, cells(text))
        new = apply_schema(graph.schema, tables.nodes, tables.edges)
        assert torch.equal(new.data.x, graph.data.x)
        assert list(new.target) == trained.split() * 5
        assert new.notes == ()


def test_spellings_in_one_column(tmp_path: Path) -> None:
    def categories(*cells: str) -> tuple[str, ...]:
        nodes = with_column("what", islice(cycle(cells), 10))
        return load_tables(write(tmp_path, nodes, categories=("what",))).schema.nodes[-1].categories

    assert categories("true", "TRUE", "False") == ("False", "TRUE")  # one boolean, whoever wrote it
    assert categories("1.1", "1.10", "1.2") == ("1.1", "1.10", "1.2")  # may be versions
    assert categories("007", "7", "8") == ("007", "7", "8")
    assert categories("TRUE", "true", "maybe") == ("TRUE", "maybe", "true")


def test_schemas_of_earlier_versions_keep_their_categories(tmp_path: Path) -> None:
    tables = write(tmp_path, "id,what,label\na,TRUE,x\nb,true,y\nc,True,x\n", "source,target\na,b\n")
    column = Column("what", "category", categories=("TRUE", "true"))
    schema = Schema("label", "classification", "id", (column,), "source", "target", classes=("x", "y"))
    new = apply_schema(schema, tables.nodes, tables.edges)
    assert new.data.x.tolist()[:2] == [[1, 0], [0, 1]]


def test_a_column_of_unseen_categories_is_an_error_at_prediction(tmp_path: Path) -> None:
    graph = load_tables(write(tmp_path))
    new = NODES.replace("Ulm", "Rome").replace("Bonn", "Oslo").replace("Kiel", "Nice")  # one town is missing
    few = write(tmp_path, new + "k,1,Rome,1,yes\n")
    (note,) = (one for one in apply_schema(graph.schema, few.nodes, few.edges).notes if "town" in one)
    assert "line 2, column 'town': the category 'Rome' was not seen in training and is encoded as none (10" in note
    tables = write(tmp_path, new + "k,1,Rome,1,yes\nl,1,Oslo,0,no\n")
    message = (
        "line 2, column 'town': none of the values, such as 'Rome', 'Oslo', 'Nice', was seen in training, where there "
        "were 'Bonn'"
    )
    with pytest.raises(TableError, match=message):
        apply_schema(graph.schema, tables.nodes, tables.edges)
    tables = write(tmp_path, NODES.replace("Ulm", "").replace("Bonn", "").replace("Kiel", ""))  # all missing
    apply_schema(graph.schema, tables.nodes, tables.edges)
