import tomllib
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from tests.data.tables.files import EDGES, NODES, apply, with_column, write
from torch_goat.data.tables import Column, Schema, TableError, Tables, apply_schema, load_tables
from torch_goat.settings import SettingsError, dumps, parse


def test_tables_become_a_graph(tmp_path: Path) -> None:
    data, ids, schema, notes, *_ = load_tables(write(tmp_path))
    assert ids == tuple("abcdefghij")
    assert schema.classes == ("no", "yes")
    assert data.y.tolist() == [1, 0] * 5
    assert notes == ()
    expected = nx.parse_edgelist(EDGES.splitlines()[1:], delimiter=",").to_directed()
    edges = {(ids[source], ids[target]) for source, target in data.edge_index.t().tolist()}
    assert edges == set(expected.edges)
    assert data.edge_index.size(1) == len(edges)


def test_statistics_are_those_of_the_training_part(tmp_path: Path) -> None:
    parts = ["train"] * 5 + ["val"] * 2 + ["test"] * 3
    data, _, schema, *_ = load_tables(write(tmp_path, with_column("split", parts), split_column="split"))
    age, town, member = schema.nodes
    known = np.array([30, 40, 20, 50])
    assert age == Column("age", "number", known.mean(), known.std(), missing=True)
    assert town == Column("town", "category", categories=("Bonn", "Ulm"))
    assert (member.kind, member.missing) == ("flag", False)
    standard = (np.array([30, 40, 35, 20, 50, 60, 35, 45, 25, 55]) - 35) / known.std()  # c has none: the mean
    expected = [[value, name == "c", place == "Bonn", place == "Ulm", flag] for name, value, place, flag in zip(
        "abcdefghij", standard, ["Ulm", "Bonn", "Ulm", "Bonn", "Ulm", "", "Kiel", "Bonn", "Ulm", "Bonn"],
        [1, 0, 1, 0, 0, 1, 1, 0, 1, 0], strict=True,
    )]  # fmt: skip
    torch.testing.assert_close(data.x, torch.tensor(expected, dtype=torch.float32))
    assert data.train_mask.tolist() == [part == "train" for part in parts]


def test_columns_of_neighbours_that_never_have_a_target_are_encoded(tmp_path: Path) -> None:
    """As those of products, if customers have the targets."""
    customers = [f"c{number},{20 + number},,,{'no' if number % 2 else 'yes'}" for number in range(10)]
    products = ["p0,,30000,tea,", "p1,,10000,tea,", "p2,,50000,nuts,"]
    edges = "\n".join(["source,target", *(f"c{number},p{number % 3}" for number in range(10))])
    graph = load_tables(write(tmp_path, "\n".join(["id,age,price,kind,label", *customers, *products]), edges))
    prices = np.array([30000, 10000, 50000])
    assert graph.schema.nodes[1:] == (
        Column("price", "number", prices.mean(), prices.std(), missing=True),
        Column("kind", "category", categories=("nuts", "tea"), missing=True),
    )
    standard = (prices - prices.mean()) / prices.std()
    expected = [
        [value, 0, kind == "nuts", kind == "tea", 0]
        for value, kind in zip(standard, ["tea", "tea", "nuts"], strict=True)
    ]
    torch.testing.assert_close(graph.data.x[10:, -5:], torch.tensor(expected, dtype=torch.float32))
    assert graph.data.x[:10, -5:].tolist() == [[0, 1, 0, 0, 1]] * 10


def test_a_schema_survives_its_file_and_gives_new_tables_the_same_input(tmp_path: Path) -> None:
    graph = load_tables(write(tmp_path))
    schema = Schema.from_json(graph.schema.to_json(), "schema.json")
    assert schema == graph.schema
    new = apply_schema(schema, str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv"))
    assert torch.equal(new.data.x, graph.data.x)
    assert torch.equal(new.data.edge_index, graph.data.edge_index)
    assert new.ids == graph.ids
    assert new.target is not None
    assert list(new.target) == ["yes", "no"] * 5


def test_new_tables_may_have_other_columns_and_unseen_values(tmp_path: Path) -> None:
    schema = load_tables(write(tmp_path)).schema
    nodes = "member,colour,town,age,id\n1,red,Rome,33,x\n,blue,Ulm,,y\n"
    new = apply(tmp_path, schema, nodes, "source,target\nx,y\n")
    town = slice(2, 2 + len(schema.nodes[1].categories))
    assert new.data.x[0, town].sum() == 0
    assert new.data.x[1, town].sum() == 1
    notes = " ".join(new.notes)
    assert "line 2, column 'town': the category 'Rome' was not seen in training" in notes
    assert "line 3, column 'member': a value is missing, although every training node had one" in notes
    assert "does not use the columns colour" in notes
    assert new.target is None


def test_new_nodes_are_joined_to_the_training_graph(tmp_path: Path) -> None:
    tables = write(tmp_path)
    graph = load_tables(tables)
    nodes, edges = "id,age,town,member\nx,30,Ulm,1\n", "source,target\nx,a\n"
    unknown = r"links\.csv, line 2, column 'target': the edge names 'a', which is not a node"
    with pytest.raises(TableError, match=unknown):
        apply(tmp_path, graph.schema, nodes, edges)
    new = apply(tmp_path, graph.schema, nodes, edges, tables)
    assert new.ids == ("x",)
    assert torch.equal(new.data.x, torch.cat([graph.data.x, graph.data.x[:1]]))  # x is as a is
    added = set(map(tuple, new.data.edge_index.t().tolist())) - set(map(tuple, graph.data.edge_index.t().tolist()))
    assert added == {(10, 0), (0, 10)}
    with pytest.raises(TableError, match="line 2, column 'id': the node 'a' is already in the training graph"):
        apply(tmp_path, graph.schema, nodes.replace("x,", "a,"), edges, tables)


def test_a_number_that_does_not_vary_is_zero(tmp_path: Path) -> None:
    nodes = "id,stamp,label\n" + "".join(f"n{i},1700000000123456789,{'ab'[i % 2]}\n" for i in range(60))
    graph = load_tables(write(tmp_path, nodes, "source,target\nn0,n1\n"))
    assert graph.schema.nodes[0].scale == 1
    assert not graph.data.x.any()  # though the mean of such numbers is off by what rounding leaves
    nodes = "id,stamp,label\n" + "".join(f"n{i},{17 * 10**17 + 10**5 * i},{'ab'[i % 2]}\n" for i in range(60))
    graph = load_tables(write(tmp_path, nodes, "source,target\nn0,n1\n"))
    assert float(graph.data.x[graph.data.train_mask].std(correction=0)) == pytest.approx(1, rel=1e-3)


def test_targets_of_new_nodes_that_cannot_be_compared_are_told(tmp_path: Path) -> None:
    links, rows = "source,target\nx,y\n", "x,40,Ulm,1,Yes\ny,inf,Bonn,0,no\nz,?,Bonn,0,\n"
    schema = load_tables(write(tmp_path)).schema
    new = apply(tmp_path, schema, f"id,age,town,member,label\n{rows.replace('inf', '50')}", links)
    assert new.target is not None
    assert new.target.fillna("").tolist() == ["Yes", "no", ""]
    (note,) = (note for note in new.notes if "'label'" in note)
    assert "line 2, column 'label': 'Yes' is none of the classes, so every prediction for it counts as wrong" in note
    schema = load_tables(write(tmp_path, target="age")).schema
    new = apply(tmp_path, schema, f"id,age,town,member,label\n{rows.replace('Yes', 'yes')}", links)
    assert new.target is not None
    assert new.target.isna().tolist() == [False, True, True]
    (note,) = (note for note in new.notes if "'age'" in note)
    assert "line 3, column 'age': 'inf' is not a number, so it counts as missing (1 in total)." in note


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        ("from,to,source", ["from", "to"]),
        ("U,V,target", ["U", "V"]),
        ("destination,source,x", ["source", "destination"]),
        ("target,src,x", ["src", "target"]),
        ("x,start,end", ["x", "start"]),
    ],
)
def test_edges_are_read_from_a_pair_of_columns(tmp_path: Path, columns: str, read: list[str]) -> None:
    graph = load_tables(write(tmp_path, edges=f"{columns}\na,b,c\nc,d,a\n"))
    assert [graph.schema.source, graph.schema.destination] == read
    said = "edges.csv: no column is named source or target; edges are read from the columns 'x' and 'start'."
    assert [said in note for note in graph.notes if "no column" in note] == [True] * (read == ["x", "start"])


def test_edges_with_direction_and_features(tmp_path: Path) -> None:
    edges = "from,to,weight,kind\na,b,1,x\nb,c,3,y\nc,d,,x\na,b,3,x\n"
    nodes = with_column("part", ["train"] * 6 + ["val"] * 2 + ["test"] * 2)
    options = {"edge_features": True, "split_column": "part"}
    data, _, schema, *_ = load_tables(write(tmp_path, nodes, edges, directed=True, **options))
    assert data.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]
    weight, kind = schema.edges
    assert (weight.kind, weight.missing, kind.categories) == ("number", True, ("x", "y"))
    assert schema.edge_dim == data.edge_attr.size(1) == 4
    first = ((1 + 3) / 2 - weight.mean) / weight.scale  # of the two edges from a to b
    torch.testing.assert_close(data.edge_attr[0], torch.tensor([first, 0, 1, 0]))
    both = load_tables(write(tmp_path, nodes, edges, **options)).data
    assert both.edge_index.size(1) == 6
    assert load_tables(write(tmp_path, edges=edges)).data.edge_attr is None


@pytest.mark.parametrize("directed", [True, False])
def test_edges_have_the_rank_of_their_largest_key(tmp_path: Path, directed: bool) -> None:
    edges = "source,target,weight,time\na,b,1,50\nc,b,1,-3\na,c,1,40\nb,a,1,70\na,b,1,60\n"
    options = {"directed": directed, "order_by": "time"}
    graph = load_tables(write(tmp_path, edges=edges, **options))
    ranks = {-3: 0, 40: 1, 50: 2, 60: 3, 70: 4}
    expected = {("a", "b"): 60, ("c", "b"): -3, ("a", "c"): 40, ("b", "a"): 70}
    if not directed:
        expected = {("a", "b"): 70, ("b", "a"): 70, ("c", "b"): -3, ("b", "c"): -3, ("a", "c"): 40, ("c", "a"): 40}
    pairs = [tuple("abc"[node] for node in pair) for pair in graph.data.edge_index.t().tolist()]
    found = dict(zip(pairs, graph.data.edge_key.tolist(), strict=True))
    assert found == {pair: ranks[time] for pair, time in expected.items()}
    assert any("duplicates; they count once, and the largest 'time' is kept" in note for note in graph.notes)
    assert any("the edge columns weight are not used" in note for note in graph.notes)
    with_features = load_tables(write(tmp_path, edges=edges, edge_features=True, **options))
    assert [column.name for column in with_features.schema.edges] == ["weight"]
    assert torch.equal(with_features.data.edge_key, graph.data.edge_key)
    assert "edge_key" not in load_tables(write(tmp_path, edges=edges)).data


def test_keys_of_joined_tables_are_ranked_together(tmp_path: Path) -> None:
    tables = write(tmp_path, edges="source,target,time\na,b,30\nb,c,10\n", order_by="time", directed=True)
    schema = load_tables(tables).schema
    nodes = "id,age,town,member\nx,30,Ulm,1\n"
    for links, expected in (("x,a,20\nx,b,40\n", [2, 0, 1, 3]), ("", [1, 0])):
        new = apply(tmp_path, schema, nodes, f"source,target,time\n{links}", tables)
        assert new.data.edge_key.tolist() == expected
    with pytest.raises(TableError, match="line 2, column 'time': '2024-05-31' cannot be compared with the training"):
        apply(tmp_path, schema, nodes, "source,target,time\nx,a,2024-05-31\n", tables)
    with pytest.raises(TableError, match=r"links\.csv, line 1: there is no column 'time' for the order of neighbours"):
        apply(tmp_path, schema, nodes, "source,target\nx,a\n", tables)


@pytest.mark.parametrize("directed", [False, True])
def test_features_of_duplicate_edges_are_averaged(tmp_path: Path, directed: bool) -> None:
    draw = np.random.default_rng(0)
    rows = [(*map(int, draw.integers(5, size=2)), number) for number in range(60)]  # also loops
    edges = "source,target,w\n" + "".join(f"{'abcde'[a]},{'abcde'[b]},{w}\n" for a, b, w in rows)
    data, _, schema, *_ = load_tables(write(tmp_path, edges=edges, edge_features=True, directed=directed))
    found = defaultdict(list)
    for source, target, weight in rows:
        for pair in [(source, target)] if directed else [(source, target), (target, source)]:
            found[pair].append(weight)
    assert list(map(tuple, data.edge_index.t().tolist())) == sorted(found)
    (column,) = schema.edges
    means = [np.mean(found[pair]) for pair in sorted(found)]
    np.testing.assert_allclose(data.edge_attr[:, 0] * column.scale + column.mean, means, rtol=1e-5, atol=1e-5)


def test_regression_is_standardised_by_its_training_part(tmp_path: Path) -> None:
    tables = write(tmp_path, target="age", drop=("label",))
    data, _, schema, notes, *_ = load_tables(tables)
    assert (schema.task, schema.classes) == ("regression", ())
    y = np.array([30, 40, np.nan, 20, 50, 60, 35, 45, 25, 55])
    train = data.train_mask.numpy()
    assert schema.target_mean == pytest.approx(y[train].mean())
    assert schema.target_scale == data.target_scale == pytest.approx(y[train].std())
    known = ~np.isnan(y)
    np.testing.assert_allclose(data.y.numpy()[known] * schema.target_scale + schema.target_mean, y[known], rtol=1e-5)
    assert not (data.train_mask | data.val_mask | data.test_mask)[2]
    assert "1 node has no 'age' and serves only as a neighbour." in notes
    assert load_tables(write(tmp_path, target="member", drop=("label",))).schema.classes == ("0", "1")
    assert load_tables(write(tmp_path, target="member", drop=("label",), task="regression")).schema.classes == ()


def test_files_that_changed_are_read_again(tmp_path: Path) -> None:
    tables = write(tmp_path)
    first = load_tables(tables).data
    kept = first.x.clone()
    first.x.zero_()
    first.edge_index.zero_()
    again = load_tables(tables).data
    assert torch.equal(again.x, kept)  # what a user writes stays with that user
    assert again.edge_index.any()
    tied = replace(tables, digest=load_tables(tables).digest)
    load_tables(tied)
    write(tmp_path, NODES.replace("a,30,", "a,3000,"))
    assert not torch.equal(load_tables(tables).data.x, kept)
    with pytest.raises(TableError, match="changed since the run was started"):
        load_tables(tied)


def test_a_graph_without_features_has_its_degrees_and_one_without_edges_none(tmp_path: Path) -> None:
    for edges, features in (("source,target\n", False), ("source,target,weight\n", True)):
        assert load_tables(write(tmp_path, edges=edges, edge_features=features)).data.edge_index.shape == (2, 0)
    data = load_tables(write(tmp_path, drop=("age", "town", "member"))).data
    assert torch.equal(data.x, torch.stack([torch.ones(10), torch.full((10,), 2.0).log1p()], dim=1))


def test_random_splits_are_stratified_and_differ(tmp_path: Path) -> None:
    rows = [f"n{number},{number % 7},{'rare' if number % 10 == 0 else 'common'}" for number in range(200)]
    tables = write(tmp_path, "\n".join(["id,x,label", *rows]), "source,target\nn0,n1\n")
    first, second, again = (load_tables(tables, index).data for index in (0, 1, 0))
    assert torch.equal(first.train_mask, again.train_mask)
    assert not torch.equal(first.train_mask, second.train_mask)
    assert bool((first.train_mask.int() + first.val_mask.int() + first.test_mask.int() == 1).all())
    for mask, share in ((first.train_mask, 0.6), (first.val_mask, 0.2), (first.test_mask, 0.2)):
        assert Counter(first.y[mask].tolist()) == {0: round(180 * share), 1: round(20 * share)}


def test_without_a_validation_part_some_training_nodes_validate(tmp_path: Path) -> None:
    nodes = with_column("part", ["train"] * 8 + ["test"] * 2)
    data = load_tables(write(tmp_path, nodes, split_column="part")).data
    assert (int(data.train_mask.sum()), int(data.val_mask.sum()), int(data.test_mask.sum())) == (6, 2, 2)


def test_options_survive_toml_and_refuse_what_is_impossible(tmp_path: Path) -> None:
    tables = write(tmp_path, drop=("age",), train=0.5)
    assert parse(Tables, tomllib.loads(dumps(tables)), "here") == tables
    for values, message in [
        ({"train": 0.9, "val": 0.1}, "sum to less than 1"),
        ({"val": 0.0}, "above 0"),
        ({"split_column": "a", "time_column": "b"}, "cannot be combined"),
        ({"drop": ["label"]}, "which is the target"),
        ({"task": "ranking"}, "is unknown"),
    ]:
        with pytest.raises(SettingsError, match=message):
            parse(Tables, {"nodes": "n", "edges": "e", "target": "label", **values}, "here")


def test_classes_without_training_nodes_and_words_that_count_as_missing_are_told(tmp_path: Path) -> None:
    notes = load_tables(write(tmp_path, NODES.replace("Ulm,1,yes", "Ulm,1,None", 1).replace("0,no", "0,", 1))).notes
    said = "serve only as neighbours. The word 'None' counts as missing (1 times)."
    assert f"2 nodes have no 'label' and {said}" in notes
    nodes = "id,part,label\na,train,x\nb,train,y\nc,val,x\nd,test,z\ne,test,w\n"
    notes = load_tables(write(tmp_path, nodes, "source,target\na,b\n", split_column="part")).notes
    assert "no training node has the class 'w', 'z', so no model can learn to predict it." in notes
    assert not any("training node" in note for note in load_tables(write(tmp_path)).notes)


def test_columns_that_are_not_used_are_told(tmp_path: Path) -> None:
    nodes = "\n".join(line.replace(",", ",,", 1) for line in NODES.splitlines()).replace("id,,", "id,height,")
    _, _, schema, notes, *_ = load_tables(write(tmp_path, nodes))
    assert [column.name for column in schema.nodes] == ["age", "town", "member"]
    assert notes == ("the node columns height are empty and not used.",)
    assert load_tables(write(tmp_path, nodes, drop=("height",))).notes == ()
    edges = "\n".join(f"{line},{'weight' if 'source' in line else 1}" for line in EDGES.splitlines())
    (note,) = load_tables(write(tmp_path, edges=edges)).notes  # with the command, as goat pid has no such option
    assert note == "the edge columns weight are not used; goat train --edge-features uses them."


def test_edges_that_were_several_are_told(tmp_path: Path) -> None:
    twice = EDGES + "b,a\na,b\n"
    notes = load_tables(write(tmp_path, edges=twice)).notes
    assert "2 of 12 edges are duplicates; they count once." in notes
    directed = load_tables(write(tmp_path, edges=twice, directed=True))
    assert any(note.startswith("1 of 12 edges are duplicates") for note in directed.notes)
    weighted = "\n".join(f"{line},{weight}" for weight, line in enumerate(twice.split())).replace(",0\n", ",w\n")
    read = load_tables(write(tmp_path, edges=weighted, edge_features=True))
    assert any("their features are averaged; --directed keeps both directions apart." in note for note in read.notes)
    assert not any("duplicates" in note for note in load_tables(write(tmp_path)).notes)
