"""Every refusal is one sentence that names the file, and the line and the column where there are such."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest

from tests.data.tables.files import EDGES, NODES, write
from torch_goat.data.tables import TableError, apply_schema, load_tables


def refused(tmp_path: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES, **options) -> str:
    tables = write(tmp_path, nodes, edges, **options)
    with pytest.raises(TableError) as caught:
        load_tables(tables)
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path) in message
    return message.replace(f"{tmp_path}{os.sep}", "")


BAD = {
    "an edge to an unknown node": (
        {"edges": EDGES + "\nj,zoe\n"},
        "edges.csv, line 13, column 'target': the edge names 'zoe', which is not a node of nodes.csv",
    ),
    "an edge without an end": ({"edges": EDGES + "j,\n"}, "edges.csv, line 12, column 'target': the edge has no node"),
    "duplicate ids": (
        {"nodes": NODES + "a,1,Ulm,1,no\n"},
        "nodes.csv, line 12, column 'id': duplicate node 'a', first seen in line 2",
    ),
    "an id that is missing": (
        {"nodes": NODES + ",1,Ulm,1,no\n"},
        "nodes.csv, line 12, column 'id': the node has no id",
    ),
    "dates where numbers are asked for": (
        {"nodes": NODES.replace("yes", "2024-01-02").replace("no\n", "2024-02-03\n"), "task": "regression"},
        "nodes.csv, line 2, column 'label': '2024-01-02' is not a number, like most of the column",
    ),
    "classes of one or two nodes": (
        {"nodes": "id,x,label\n" + "".join(f"{name},1,{number // 2}th\n" for number, name in enumerate("abcdefghij"))},
        "nodes.csv, line 1, column 'label': 10 nodes in 5 classes are too few to have",
    ),
    "an empty file": ({"nodes": ""}, "nodes.csv, line 1: the file is empty"),
    "an empty file of edges": ({"edges": " \n"}, "edges.csv, line 1: the file is empty"),
    "a header alone": ({"nodes": "id,label\n"}, "nodes.csv, line 1: there are no rows below the header"),
    "a target with one class": (
        {"nodes": NODES.replace(",no\n", ",yes\n")},
        "nodes.csv, line 2, column 'label': all nodes have the class 'yes'",
    ),
    "a target with as many classes as nodes": (
        {"target": "name", "nodes": "id,name\na,Ada\nb,Bo\n", "edges": "source,target\na,b\n"},
        "nodes.csv, line 2, column 'name': every node has a different class",
    ),
    "no target at all": (
        {"nodes": NODES.replace(",yes\n", ",\n").replace(",no\n", ",\n")},
        "nodes.csv, line 2, column 'label': no node has a target",
    ),
    "numbers that do not vary": (
        {"nodes": "id,y\na,2.5\nb,2.5\n", "edges": "source,target\na,b\n", "target": "y"},
        "nodes.csv, line 2, column 'y': all targets are '2.5'",
    ),
    "a text among numbers": (
        {"nodes": NODES.replace("j,55", "j,fifty")},
        "nodes.csv, line 11, column 'age': 'fifty' is not a valid number",
    ),
    "an infinite number": (
        {"nodes": NODES.replace("j,55", "j,inf")},
        "nodes.csv, line 11, column 'age': 'inf' is not a valid number",
    ),
    "a column that is not there": (
        {"target": "lable"},
        "nodes.csv, line 1: there is no column 'lable' for the target; did you mean 'label'?",
    ),
    "a column to drop that is not there": (
        {"drop": ("zip",)},
        "nodes.csv, line 1: there is no column 'zip' for --drop",
    ),
    "two columns of one name": (
        {"nodes": NODES.replace("town", "age")},
        "nodes.csv, line 1: there are two columns named 'age'",
    ),
    "a column without a name": ({"nodes": NODES.replace("town", "")}, "nodes.csv, line 1: column 3 has no name"),
    "more cells than columns": ({"nodes": NODES + "k,1,Ulm,1,yes,6\n"}, "nodes.csv, line 12: found 6 cells, but the"),
    "a quotation mark that stays open": ({"nodes": NODES + 'k,1,"Ulm,1,yes\n'}, "nodes.csv, line 12: a quotation mark"),
    "a header that stays open": ({"nodes": NODES.replace("label", '"label')}, "nodes.csv, line 1: 'label\\na,30,Ulm,1"),
    "edges of one column": ({"edges": "source\na\n"}, "edges.csv, line 1: found only one column ('source')"),
    "a word that is no part": (
        {"nodes": NODES.replace("Kiel", "dev").replace("Ulm", "train").replace("Bonn", "tets"), "split_column": "town"},
        "nodes.csv, line 3, column 'town': 'tets' is not a split",
    ),
    "labels missing for all test nodes": (
        {
            "nodes": "id,part,label\na,train,x\nb,train,y\nc,val,x\nd,test,\ne,test,\n",
            "edges": "source,target\na,b\n",
            "split_column": "part",
        },
        "nodes.csv, line 5, column 'label': none of the 2 test nodes has a target",
    ),
    "no test nodes": (
        {
            "nodes": "id,part,label\na,train,x\nb,train,y\nc,val,x\nd,val,y\n",
            "edges": "source,target\na,b\n",
            "split_column": "part",
        },
        "nodes.csv, line 1, column 'part': there is no test node with a 'label'",
    ),
    "training nodes of one class": (
        {
            "nodes": "id,part,label\na,test,y\nb,train,x\nc,train,x\nd,val,y\n",
            "edges": "source,target\na,b\n",
            "split_column": "part",
        },
        "nodes.csv, line 3, column 'label': all 2 training nodes have the target 'x', so there is nothing to learn",
    ),
    "training nodes of one number": (
        {
            "nodes": "id,when,y\na,1,2.5\nb,2,2.5\nc,3,2.5\nd,4,0.5\ne,5,1.5\n",
            "edges": "source,target\na,b\n",
            "target": "y",
            "time_column": "when",
        },
        "nodes.csv, line 2, column 'y': all 3 training nodes have the target '2.5', so there is nothing to learn",
    ),
    "classes that differ by a blank": (
        {"nodes": NODES.replace("50,Ulm,0,yes", "50,Ulm,0,yes ")},
        "nodes.csv, line 6, column 'label': 'yes ' differs from 'yes' only by blanks; spell both alike.",
    ),
    "categories that differ by a blank": (
        {"nodes": NODES.replace("d,20,Bonn", "d,20,Bonn ")},
        "nodes.csv, line 5, column 'town': 'Bonn ' differs from 'Bonn' only by blanks; spell both alike.",
    ),
    "a time that is none": (
        {"nodes": NODES, "time_column": "town"},
        "nodes.csv, line 2, column 'town': 'Ulm' is neither a number nor a date",
    ),
    "edges without features": ({"edge_features": True}, "edges.csv, line 1: the edges have no feature columns"),
    "a pickle": ({"nodes": pickle.dumps({"a": 1})}, "nodes.csv is a pickle, not a table; such files can execute code"),
    "a pickle without a mark": (
        {"nodes": pickle.dumps({"id": [1, 2]}, protocol=0)},
        "nodes.csv is a pickle, not a table; such files can execute code",
    ),
    "a NUL": ({"edges": EDGES.encode() + b"a,\0\n"}, "edges.csv, line 12: found a NUL byte"),
    "a gzip archive": ({"edges": b"\x1f\x8b\x08\x00rest"}, "edges.csv is a gzip archive, not a table; unpack it first"),
    "a document type": (
        {"nodes": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "ha">]><a/>'},
        "nodes.csv is GraphML and already contains the edges; leave out edges.csv",
    ),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_bad_tables_are_refused(tmp_path: Path, given: dict, message: str) -> None:
    assert refused(tmp_path, **given).startswith(message)


def test_free_text_is_refused_with_what_to_do(tmp_path: Path) -> None:
    lines = [f"n{number},born in {1900 + number},name {number},{number % 2}" for number in range(30)]
    nodes = "\n".join(["id,story,full name,label", *lines])
    message = refused(tmp_path, nodes, "source,target\nn0,n1\n")
    assert message.startswith("nodes.csv, line 2, column 'story': 30 distinct texts in 30 rows")
    assert "--drop story --drop 'full name'" in message
    load_tables(write(tmp_path, nodes, "source,target\nn0,n1\n", drop=("story", "full name")))


def test_a_zip_bomb_is_refused_unopened(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("nodes.csv", b"0" * 50_000_000)
    assert refused(tmp_path, packed.getvalue()).startswith("nodes.csv is a zip archive")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    tables = write(tmp_path)
    (tmp_path / "nodes.csv").unlink()
    with pytest.raises(TableError, match=r"cannot read .*nodes\.csv: no such file"):
        load_tables(tables)
    os.mkfifo(tmp_path / "nodes.csv")
    with pytest.raises(TableError, match=r"nodes\.csv is not a file"):
        load_tables(tables)


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ("id,age,town\nx,1,Ulm\n", "source,target\n", "line 1: there is no column 'member' for a feature the model"),
        (
            "name,age,town,member\nx,1,Ulm,1\n",
            "source,target\nx,x\n",
            "line 1: there is no column 'id' for the node ids",
        ),
        ("id,age,town,member\nx,old,Ulm,1\n", "source,target\nx,x\n", "line 2, column 'age': 'old' is not a number"),
    ],
)
def test_a_model_is_not_applied_to_other_columns(tmp_path: Path, nodes: str, edges: str, message: str) -> None:
    schema = load_tables(write(tmp_path)).schema
    (tmp_path / "new.csv").write_text(nodes)
    (tmp_path / "links.csv").write_text(edges)
    with pytest.raises(TableError, match=f"new.csv, {message}"):
        apply_schema(schema, str(tmp_path / "new.csv"), str(tmp_path / "links.csv"))
