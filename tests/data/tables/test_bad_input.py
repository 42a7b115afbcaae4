"""Every refusal is one sentence that names the file, and the line and the column where there are such."""

import io
import os
import pickle
import re
import zipfile
from pathlib import Path

import pytest

from tests.data.tables.files import EDGES, NODES, apply, write
from tests.data.tables.fuzz import fuzz
from torch_goat.data.tables import TableError, load_tables


def refused(tmp_path: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES, **options) -> str:
    tables = write(tmp_path, nodes, edges, **options)
    with pytest.raises(TableError) as caught:
        load_tables(tables)
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path) in message
    return message.replace(f"{tmp_path}{os.sep}", "")


BAD_NODES = [
    (NODES + "a,1,Ulm,1,no\n", "line 12, column 'id': duplicate node 'a', first seen in line 2"),
    (NODES + ",1,Ulm,1,no\n", "line 12, column 'id': the node has no id"),
    ("", "line 1: the file is empty"),
    ("id,label\n", "line 1: there are no rows below the header"),
    (NODES.replace(",no\n", ",yes\n"), "line 2, column 'label': all nodes have the class 'yes'"),
    (NODES.replace("yes\n", "\n").replace("no\n", "\n"), "line 2, column 'label': no node has a target"),
    (
        "id,x,label\n" + "".join(f"{name},1,{number // 2}th\n" for number, name in enumerate("abcdefghij")),
        "column 'label': 10 nodes in 5 classes are too few to have",
    ),
    (NODES.replace("j,55", "j,fifty"), "line 11, column 'age': 'fifty' is not a valid number"),
    (NODES.replace("j,55", "j,inf"), "line 11, column 'age': 'inf' is not a valid number"),
    (NODES.replace("town", "age"), "line 1: there are two columns named 'age'"),
    (NODES.replace("town", ""), "line 1: column 3 has no name"),
    (NODES + "k,1,Ulm,1,yes,6\n", "line 12: found 6 cells, but the"),
    (NODES + 'k,1,"Ulm,1,yes\n', "line 12: a quotation mark"),
    (NODES.replace("label", '"label'), "line 1: 'label\\na,30,Ulm,1"),
    (NODES.replace("0,yes\n", "0,yes \n"), "line 6, column 'label': 'yes ' differs from 'yes' only by blanks"),
    (NODES.replace("20,Bonn", "20,Bonn "), "line 5, column 'town': 'Bonn ' differs from 'Bonn' only by blanks; spell"),
    (pickle.dumps({"a": 1}), "is a pickle, not a table; such files can execute code"),
    (pickle.dumps({"id": [1, 2]}, protocol=0), "is a pickle, not a table; such files can execute code"),
    (b'<?xml version="1.0"?><!DOCTYPE a><a/>', "is GraphML and already contains the edges; leave out"),
]
BAD_EDGES = [
    (EDGES + "\nj,zoe\n", "line 13, column 'target': the edge names 'zoe', which is not a node of nodes.csv"),
    (EDGES + "j,\n", "line 12, column 'target': the edge has no node"),
    (" \n", "line 1: the file is empty"),
    ("source\na\n", "line 1: found only one column ('source')"),
    (EDGES.partition("\n")[2], "line 1: the columns 'a' and 'b' have the names of nodes, so the header seems to be"),
    (EDGES.encode() + b"a,\0\n", "line 12: found a NUL byte"),
    (b"\x1f\x8b\x08\x00rest", "is a gzip archive, not a table; unpack it first"),
]
DATES = NODES.replace("yes", "2024-01-02").replace("no\n", "2024-02-03\n")
PARTS = NODES.replace("Kiel", "dev").replace("Ulm", "train").replace("Bonn", "tets")
GIVEN = "id,part,label\na,train,x\nb,train,y\nc,val,x\n"
BY_PART = {"split_column": "part"}
BAD_OPTIONS = [
    (NODES, {"target": "lable"}, "line 1: there is no column 'lable' for the target; did you mean 'label'?"),
    (NODES, {"drop": ("zip",)}, "line 1: there is no column 'zip' for --drop"),
    (NODES, {"time_column": "town"}, "line 2, column 'town': 'Ulm' is neither a number nor a date"),
    (DATES, {"task": "regression"}, "line 2, column 'label': '2024-01-02' is not a number, like most of the column"),
    (PARTS, {"split_column": "town"}, "line 3, column 'town': 'tets' is not a split"),
    ("id,y\na,Ada\nb,Bo\n", {"target": "y"}, "line 2, column 'y': every node has a different class"),
    ("id,y\na,2.5\nb,2.5\n", {"target": "y"}, "line 2, column 'y': all targets are '2.5'"),
    (GIVEN + "d,test,\ne,test,\n", BY_PART, "line 5, column 'label': none of the 2 test nodes has a target"),
    (GIVEN + "d,val,y\n", BY_PART, "column 'part': there is no test node with a 'label'"),
    (
        "id,part,label\na,test,y\nb,train,x\nc,train,x\nd,val,y\n",
        BY_PART,
        "line 3, column 'label': all 2 training nodes have the target 'x', so there is nothing to learn",
    ),
    (
        "id,when,y\na,1,u\nb,1,v\nc,2,u\nd,2,v\ne,,\n",
        {"target": "y", "time_column": "when"},
        "column 'when': 2 distinct times of nodes with a target are too few; training, validation and test nodes need "
        "at least 3, so choose another column or split.",
    ),
    (
        "id,when,y\na,1,2.5\nb,2,2.5\nc,3,2.5\nd,4,0.5\ne,5,1.5\n",
        {"target": "y", "time_column": "when"},
        "line 2, column 'y': all 3 training nodes have the target '2.5', so there is nothing to learn",
    ),
]


@pytest.mark.parametrize(("nodes", "message"), BAD_NODES)
def test_bad_nodes_are_refused(tmp_path: Path, nodes: str | bytes, message: str) -> None:
    assert re.sub("^nodes.csv,? ", "", refused(tmp_path, nodes)).startswith(message)


@pytest.mark.parametrize(("edges", "message"), BAD_EDGES)
def test_bad_edges_are_refused(tmp_path: Path, edges: str | bytes, message: str) -> None:
    assert re.sub("^edges.csv,? ", "", refused(tmp_path, edges=edges)).startswith(message)


@pytest.mark.parametrize(("nodes", "options", "message"), BAD_OPTIONS)
def test_nodes_that_do_not_suit_the_options_are_refused(
    tmp_path: Path, nodes: str, options: dict, message: str
) -> None:
    edges = EDGES if nodes.startswith("id,age") else "source,target\na,b\n"
    assert refused(tmp_path, nodes, edges, **options).startswith(f"nodes.csv, {message}")


@pytest.mark.parametrize(
    ("column", "times", "message"),
    [
        ("tim", "1 2", "line 1: there is no column 'tim' for the order of neighbours; did you mean 'time'?"),
        ("source", "1 2", "line 1: 'source' holds ends of the edges; order by another column."),
        ("time", "1 NA", "line 3, column 'time': neighbours are ordered by this column; fill in a value."),
        ("time", "1 2 soon", "line 4, column 'time': 'soon' is neither a number nor a date such as 2024-05-31."),
        ("time", "2024-05-31 2024-06-31", "line 3, column 'time': '2024-06-31' is neither a number nor a date"),
        ("time", "1 inf", "line 3, column 'time': 'inf' is not a valid number"),
    ],
)
def test_bad_keys_of_an_order_are_refused(tmp_path: Path, column: str, times: str, message: str) -> None:
    rows = "".join(f"a,{end},{time}\n" for end, time in zip("bcd", times.split(), strict=False))
    edges = f"source,target,time\n{rows}"
    assert refused(tmp_path, edges=edges, order_by=column).startswith(f"edges.csv, {message}")


def test_edges_without_features_are_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, edge_features=True)
    assert message.startswith("edges.csv, line 1: the edges have no feature columns")


def test_free_text_is_refused_with_what_to_do(tmp_path: Path) -> None:
    lines = [f"n{number},born in {1900 + number},name {number},{number % 2}" for number in range(30)]
    nodes = "\n".join(["id,story,full name,label", *lines])
    message = refused(tmp_path, nodes, "source,target\nn0,n1\n")
    assert message.startswith("nodes.csv, line 2, column 'story': 30 distinct texts in 30 rows")
    assert "--drop story --drop 'full name'" in message
    load_tables(write(tmp_path, nodes, "source,target\nn0,n1\n", drop=("story", "full name")))
    assert "keep it as categories (--category story)" in message
    load_tables(write(tmp_path, nodes, "source,target\nn0,n1\n", categories=("story", "full name")))
    many = "\n".join(["id,story,label", *[f"n{number},in {number},{number % 2}" for number in range(101)]])
    for categories in ((), ("story",)):  # which would not help
        assert "--category" not in refused(tmp_path, many, "source,target\nn0,n1\n", categories=categories)


def test_numbers_with_too_many_values_to_be_categories_can_be_read_as_numbers(tmp_path: Path) -> None:
    nodes = "\n".join(["id,size,label", *[f"n{number},{number}.5,{number % 2}" for number in range(101)]])
    message = refused(tmp_path, nodes, "source,target\nn0,n1\n", categories=("size",))
    assert message.endswith("drop the column (--drop size), or leave out --category size to read numbers.")
    load_tables(write(tmp_path, nodes, "source,target\nn0,n1\n"))
    codes = nodes.replace(",1.5,", ",01.5,")
    assert "--category" not in refused(tmp_path, codes, "source,target\nn0,n1\n", categories=("size",))


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
    ("nodes", "message"),
    [
        ("id,age,town\nx,1,Ulm\n", "line 1: there is no column 'member' for a feature the model"),
        ("name,age,town,member\nx,1,Ulm,1\n", "line 1: there is no column 'id' for the node ids"),
        ("id,age,town,member\nx,old,Ulm,1\n", "line 2, column 'age': 'old' is not a number"),
    ],
)
def test_a_model_is_not_applied_to_other_columns(tmp_path: Path, nodes: str, message: str) -> None:
    schema = load_tables(write(tmp_path)).schema
    with pytest.raises(TableError, match=f"new.csv, {message}"):
        apply(tmp_path, schema, nodes, "source,target\nx,x\n")
    with pytest.raises(TableError, match=r"links\.csv, line 1: there is no column 'source' for the ends of edges; the"):
        apply(tmp_path, schema, "id,age,town,member\nx,1,Ulm,1\n", "from,to\nx,x\n")


def test_made_up_files_are_read_or_refused_with_a_sentence() -> None:
    assert fuzz(seconds=60, seed=1, limit=150) > 0
