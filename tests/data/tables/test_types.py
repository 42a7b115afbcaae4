"""What the columns of a table are taken for, alike in every format."""

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from tests.data.tables.files import EDGES, NODES, with_column, write
from tests.processes import stop_after
from torch_goat.data.tables import Column, TableError, Tables, apply_schema, columns, csv_source, load_tables
from torch_goat.data.tables.frames import table_file
from torch_goat.experiments import Interrupted, Run, train
from torch_goat.experiments.own_graph import table_experiment

LABELS = ["a", "b"] * 15


def formats(folder: Path, **cells: list) -> dict[str, Any]:
    """The same nodes as CSV, Parquet and GraphML, loaded."""
    frame = pd.DataFrame({"id": [f"n{number}" for number in range(30)], **cells, "label": LABELS})
    edges = pd.DataFrame({"source": ["n0"], "target": ["n1"]})
    for name, table in (("nodes", frame), ("edges", edges)):
        table.to_csv(folder / f"{name}.csv", index=False)
        table.to_parquet(folder / f"{name}.parquet", index=False)
    graph = nx.Graph()
    for _, row in frame.iterrows():
        named = {
            key: value.isoformat() if isinstance(value, date | time) else value
            for key, value in row[1:].items()
            if pd.notna(value)
        }
        graph.add_node(row["id"], **named)
    graph.add_edge("n0", "n1")
    nx.write_graphml_xml(graph, folder / "graph.graphml")
    paired = {kind: (str(folder / f"nodes.{kind}"), str(folder / f"edges.{kind}")) for kind in ("csv", "parquet")}
    files = paired | {"graphml": (str(folder / "graph.graphml"), "")}
    return {kind: load_tables(Tables(nodes=nodes, edges=ends, target="label")) for kind, (nodes, ends) in files.items()}


def test_a_column_of_texts_stays_one_whatever_it_contains(tmp_path: Path) -> None:
    texts = [str(number % 3) for number in range(30)]
    found = formats(tmp_path, code=texts, when=["2024-05-31", "2024-06-01"] * 15)
    kinds = {kind: {column.name: column.kind for column in graph.schema.nodes} for kind, graph in found.items()}
    assert kinds["csv"] == {"code": "number", "when": "date"}  # which has no types
    assert kinds["parquet"] == {"code": "category", "when": "category"}
    assert kinds["graphml"] == {"code": "category", "when": "date"}  # which has no type for dates
    assert found["parquet"].schema.nodes[0].categories == ("0", "1", "2")
    frame = pd.DataFrame({"id": range(30), "label": [f"{number % 3}.5" for number in range(30)]})
    for column, task in ((frame["label"], "classification"), (frame["label"].astype(float), "regression")):
        frame.assign(label=column).to_parquet(tmp_path / "nodes.parquet")
        pd.DataFrame({"source": [0], "target": [1]}).to_parquet(tmp_path / "edges.parquet")
        files = {name: str(tmp_path / f"{name}.parquet") for name in ("nodes", "edges")}
        assert load_tables(Tables(**files, target="label")).schema.task == task
    frame.assign(label=LABELS, x=[f"{number / 7:.3f}" for number in range(30)]).to_parquet(tmp_path / "nodes.parquet")
    with pytest.raises(TableError, match=r"30 distinct texts in 30 rows .*--drop x.*, or store it as numbers"):
        load_tables(Tables(**files, target="label"))


def test_numbers_with_leading_zeros_are_categories_in_every_format(tmp_path: Path) -> None:
    found = formats(tmp_path, zip=["01067", "80331", "10115"] * 10, zero=[0, 0.5, 10] * 10)
    for graph in found.values():
        code, number = sorted(graph.schema.nodes, key=lambda column: column.name, reverse=True)
        assert (code.kind, code.categories) == ("category", ("01067", "10115", "80331"))
        assert number.kind == "number"
    assert any("the column 'zip' has numbers with leading zeros" in note for note in found["csv"].notes)
    # The only one may be anywhere in a large file.
    lines = [f"n{number},{10_000 + number % 9},{'ab'[number % 2]}" for number in range(3000)]
    lines[2500] = 'n2500,"00007",a'
    tables = write(tmp_path, "\n".join(["id,zip,label", *lines]), "source,target\n")
    assert load_tables(tables).schema.nodes[0].kind == "category"
    assert guessed_classes(tmp_path, [f"0{number % 30}" for number in range(90)]) == 30


def guessed_classes(tmp_path: Path, labels: list[str]) -> int:
    lines = [f"n{number},{label}" for number, label in enumerate(labels)]
    return len(load_tables(write(tmp_path, "\n".join(["id,label", *lines]), "source,target\n")).schema.classes)


@pytest.mark.parametrize(
    "moments",
    [
        [date(2024, 1, 1) + timedelta(days=37 * number) for number in range(30)],
        [datetime(2024, 1, 1, 9, 30, 15) + timedelta(hours=37 * number) for number in range(30)],
        [datetime(2024, 1, 1, 9, tzinfo=timezone(timedelta(hours=2))) + timedelta(hours=hour) for hour in range(30)],
    ],
    ids=["date", "time", "zone"],
)  # fmt: skip
def test_dates_are_days_in_every_format(tmp_path: Path, moments: list) -> None:
    found = formats(tmp_path, when=moments)
    exact = [
        (one.astimezone(UTC) if one.tzinfo else one.replace(tzinfo=UTC)).timestamp() / 86400
        for one in (when if isinstance(when, datetime) else datetime(*when.timetuple()[:3]) for when in moments)
    ]
    for graph in found.values():
        (column,) = graph.schema.nodes
        assert column.kind == "date"
        train = np.array(exact)[graph.data.train_mask.numpy()]
        assert column.mean == pytest.approx(train.mean(), abs=1e-6)
        np.testing.assert_allclose(graph.data.x[:, 0], (np.array(exact) - train.mean()) / train.std(), rtol=1e-4)
        (note,) = (note for note in graph.notes if "days since 1970-01-01" in note)
        assert "the dates in 'when'" in note


def test_dates_of_several_spellings_and_bad_ones(tmp_path: Path) -> None:
    same = ["2024-05-31", "2024-05-31T02:00+02:00", "2024-05-30 22:00:00-0200", "2024-05-31T00:00:00.000Z"]
    nodes = with_column("when", [*same, "", "1969-12-31", "9999-12-31", *same[:3]])
    graph = load_tables(write(tmp_path, nodes))
    column = graph.schema.nodes[-1]
    shown = graph.data.x[:, -2] * column.scale + column.mean if column.missing else graph.data.x[:, -1]
    days = (shown if column.missing else shown * column.scale + column.mean).double()
    assert days[[0, 1, 2, 3, 7, 8, 9]].max() - days[[0, 1, 2, 3, 7, 8, 9]].min() < 0.5  # float32
    assert load_tables(write(tmp_path, nodes, categories=("when",))).schema.nodes[-1].kind == "category"
    with pytest.raises(TableError, match="line 11, column 'when': '2024-02-30' is not a valid date, but the column"):
        load_tables(write(tmp_path, nodes[: nodes.rindex(",")] + ",2024-02-30"))


def test_times_of_day_are_hours_in_every_format(tmp_path: Path) -> None:
    clock = [time(0), time(9, 30), time(23, 59, 59), time(10, 30, 15, 500_000), None] * 6
    found = formats(tmp_path, clock=clock)
    frame = pd.read_parquet(tmp_path / "nodes.parquet")  # in memory
    files = {"nodes": table_file(frame, tmp_path / "memory.parquet"), "edges": str(tmp_path / "edges.csv")}
    found["memory"] = load_tables(Tables(**files, target="label"))
    hours = np.array([0, 9.5, 24 - 1 / 3600, 10.5 + 15.5 / 3600, np.nan] * 6)
    for graph in found.values():
        (column,) = graph.schema.nodes
        train = hours[graph.data.train_mask.numpy()]
        assert (column.kind, column.missing) == ("time", True)
        assert (column.mean, column.scale) == pytest.approx((np.nanmean(train), np.nanstd(train)))
        expected = np.nan_to_num((hours - np.nanmean(train)) / np.nanstd(train))
        np.testing.assert_allclose(graph.data.x[:, 0], expected, atol=1e-6)
        assert graph.data.x[:, 1].tolist() == np.isnan(hours).tolist()
        assert torch.equal(graph.data.x, found["csv"].data.x)
        (note,) = (note for note in graph.notes if "hours since midnight" in note)
        assert "the times in 'clock' are read as hours since midnight." in note
        for kind in ("csv", "parquet"):  # at prediction
            new = apply_schema(graph.schema, *(str(tmp_path / f"{name}.{kind}") for name in ("nodes", "edges")))
            assert torch.equal(new.data.x, graph.data.x)


def test_times_of_day_of_several_spellings_and_bad_ones(tmp_path: Path) -> None:
    same = ["9:30", "09:30", "09:30:00", "09:30:00.000", "9:30:00.0"]
    nodes = with_column("clock", [*same, "", "00:00", "23:59:59.999", *same[:2]])
    graph = load_tables(write(tmp_path, nodes))
    column = graph.schema.nodes[-1]
    shown = graph.data.x[:, -1 - column.missing] * column.scale + column.mean
    assert shown[[0, 1, 2, 3, 4, 6, 7, 8, 9]].tolist() == pytest.approx([9.5] * 5 + [0, 24] + [9.5] * 2, abs=1e-4)
    kept = load_tables(write(tmp_path, nodes, categories=("clock",))).schema.nodes[-1]
    assert kept.kind == "category"
    assert len(kept.categories) <= 3  # all spellings of one time are the same
    for bad in ("24:00", "25:61", "10:60", "10:30:60", "10:30Z", "10", "noon"):
        others = load_tables(write(tmp_path, nodes[: nodes.rindex(",")] + f",{bad}")).schema.nodes[-1]
        assert others.kind == "category"  # such as durations of 9:30 and 25:10
        only = load_tables(write(tmp_path, with_column("clock", [bad + "x", bad] * 5))).schema.nodes[-1]
        assert only.kind == "category"


def test_durations_are_days_with_a_note(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": range(30), "stay": pd.to_timedelta(range(30), unit="h"), "label": LABELS})
    files = {
        "nodes": table_file(frame, tmp_path / "nodes.parquet"),
        "edges": table_file(pd.DataFrame({"source": [0], "target": [1]}), tmp_path / "edges.parquet"),
    }
    graph = load_tables(Tables(**files, target="label"))
    (column,) = graph.schema.nodes
    assert graph.data.x[:, 0] * column.scale + column.mean == pytest.approx(np.arange(30) / 24, abs=1e-6)
    assert any("the durations in 'stay' are read as days." in note for note in graph.notes)
    kept = load_tables(Tables(**files, target="label", categories=("stay",)))
    assert not any("durations" in note for note in kept.notes)


def test_booleans_are_the_same_in_every_format(tmp_path: Path) -> None:
    found = formats(tmp_path, member=[True, False, False] * 10)
    for graph in found.values():
        assert graph.schema.nodes[0].kind == "category"
        assert [text.lower() for text in graph.schema.nodes[0].categories] == ["false", "true"]
        assert torch.equal(graph.data.x, found["csv"].data.x)


def warned(tmp_path: Path, labels: list, **cells: list) -> list[str]:
    """The columns that the warnings name."""
    frame = pd.DataFrame({"id": [f"n{number}" for number in range(len(labels))], **cells, "label": labels})
    graph = load_tables(write(tmp_path, frame.to_csv(index=False), "source,target\n"))
    return [note.split("'")[1] for note in graph.notes if note.startswith("Warning: ")]


def test_columns_that_nearly_duplicate_the_target_are_told(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(3, size=300)
    noisy = np.where(np.arange(300) < 2, 2 - labels, labels)
    columns = {
        "copy": [f"grade {'xyz'[label]}" for label in noisy],
        "code": list(7 - 2 * labels),
        "score": list(labels + draw.uniform(-0.3, 0.3, size=300)),
        "good": list(np.where(draw.random(300) < 0.9, labels, 0)),  # what a feature may be
        "serial": list(draw.permutation(300)),
        "noise": list(draw.normal(size=300)),
    }
    assert warned(tmp_path, ["abc"[label] for label in labels], **columns) == ["copy", "code", "score"]
    rare = ["yes" if number < 3 else "no" for number in range(300)]
    assert warned(tmp_path, rare, same=[1, *[0] * 299], noise=columns["noise"]) == []  # as good as no column
    y = draw.uniform(0, 2, size=300)
    numbers = {
        "unit": list(1000 * y + 5),
        "monotone": list(np.exp(3 * y)),
        "rounded": [f"about {value:.1f}" for value in y],
        "good": list(y + 0.3 * draw.normal(size=300)),
        "serial": columns["serial"],
    }
    assert warned(tmp_path, list(y), **numbers) == ["unit", "monotone", "rounded"]


def test_all_problems_of_both_files_are_told_at_once(tmp_path: Path) -> None:
    nodes = NODES.replace("j,55", "j,fifty").replace("20,Bonn", "20,Bonn ") + "a,1,Ulm,1,no\n,1,Ulm,1,no\n"
    edges = EDGES.replace("\n", ",1\n").replace("target,1", "target,w").replace("a,b,1", "a,b,x") + "zoe,a,1\na,max,1\n"
    with pytest.raises(TableError) as caught:
        load_tables(write(tmp_path, nodes, edges, edge_features=True, drop=("towm",)))
    first, *problems = str(caught.value).replace(f"{tmp_path}/", "").split("\n- ")
    assert first == f"the tables have {len(problems)} problems:"
    for expected in (
        "nodes.csv, line 1: there is no column 'towm' for --drop",
        "nodes.csv, line 12, column 'id': duplicate node 'a'",
        "nodes.csv, line 13, column 'id': the node has no id",
        "nodes.csv, line 11, column 'age': 'fifty' is not a valid number",
        "nodes.csv, line 5, column 'town': 'Bonn ' differs from 'Bonn'",
        "edges.csv, line 12, column 'source': the edge names 'zoe'",
        "edges.csv, line 13, column 'target': the edge names 'max'",
        "edges.csv, line 2, column 'w': 'x' is not a valid number",
    ):
        assert sum(problem.startswith(expected) for problem in problems) == 1, problems
    assert len(problems) == 8


def test_a_run_of_an_earlier_version_keeps_the_kinds_of_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = write(tmp_path, with_column("zip", [f"0{number}" for number in range(10)]))
    with monkeypatch.context() as earlier:
        for module in (columns, csv_source):
            earlier.setattr(module, "has_leading_zeros", lambda values: False)
        graph = load_tables(tables)
        assert graph.schema.nodes[-1].kind == "number"
        experiment = table_experiment(tables, graph, "gcn")
        with pytest.raises(Interrupted):
            train(experiment, tmp_path / "run", graph=graph, device="cpu", observer=stop_after(1))
    write(tmp_path, (tmp_path / "nodes.csv").read_text() + "\n")  # parsed again, with the same content
    tables_now = load_tables(tables)
    assert tables_now.schema.nodes[-1].kind == "category"
    (tmp_path / "nodes.csv").write_text((tmp_path / "nodes.csv").read_text()[:-1])
    train(experiment, tmp_path / "run", graph=tables_now, device="cpu")
    run = Run(tmp_path / "run")
    assert run.schema == graph.schema
    assert torch.equal(run.graph().data.x, graph.data.x)
    assert isinstance(graph.schema.nodes[-1], Column)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_run_of_an_earlier_version_keeps_times_of_day_as_categories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    clock = [time(9, 30), time(10), time(10, 0, 0, 500_000)] * 10
    with monkeypatch.context() as earlier:
        earlier.setattr(columns, "_moment", lambda values: None)
        before = formats(tmp_path, clock=clock)[kind]
    assert before.schema.nodes[0].categories == ("09:30:00", "10:00:00", "10:00:00.500000")
    files = {name: str(tmp_path / f"{name}.{kind}") for name in ("nodes", "edges")}
    assert load_tables(Tables(**files, target="label")).schema.nodes[0].kind == "time"
    now = load_tables(Tables(**files, target="label"), schema=before.schema)
    assert torch.equal(now.data.x, before.data.x)
    for other in ("csv", "parquet"):
        new = apply_schema(before.schema, *(str(tmp_path / f"{name}.{other}") for name in ("nodes", "edges")))
        assert torch.equal(new.data.x, before.data.x)


def test_columns_of_lists_can_be_dropped_and_need_not_be_dropped_to_predict(tmp_path: Path) -> None:
    plain = formats(tmp_path, x=list(range(30)))["parquet"]
    for name in ("nodes", "edges"):
        frame = pd.read_parquet(tmp_path / f"{name}.parquet")
        frame.assign(day=range(len(frame)), lists=[[1, 2]] * len(frame)).to_parquet(tmp_path / f"{name}.parquet")
    files = [str(tmp_path / f"{name}.parquet") for name in ("nodes", "edges")]
    tables = Tables(nodes=files[0], edges=files[1], target="label")
    with pytest.raises(TableError, match=r"column 'lists': values of type list<.*> are not supported; drop the column"):
        load_tables(tables)
    dropped = replace(tables, drop=("lists", "day"))
    assert torch.equal(load_tables(dropped).data.x, plain.data.x)
    assert torch.equal(apply_schema(plain.schema, *files).data.x, plain.data.x)
    used = replace(dropped, time_column="day", order_by="day")  # columns that are dropped, but not from the split
    assert load_tables(used).data.train_mask.nonzero().view(-1).tolist() == list(range(18))
