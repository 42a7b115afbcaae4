from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.tables.files import EDGES, write
from torch_goat.data.tables import load_tables, read
from torch_goat.experiments import Run, RunError, own_graph, train
from torch_goat.experiments.own_graph import compare_models, graph_name, table_experiment


def test_models_are_compared_from_python_and_the_files_are_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, encoded, parse, load = [], [], read.open_tables, own_graph.load_tables
    monkeypatch.setattr(read, "open_tables", lambda *files: opened.append(files) or parse(*files))
    monkeypatch.setattr(own_graph, "load_tables", lambda tables, index: encoded.append(index) or load(tables, index))
    tables = write(tmp_path)
    compared = compare_models(
        tables,
        tmp_path / "all",
        assignments=["epochs=2"],
        repeats=2,
        models=("goat", "gat", "sage-mean"),
        runner=partial(train, device="cpu"),
    )
    assert (opened, encoded) == ([(tables.nodes, tables.edges)], [0, 1])
    assert {path.name for path in compared.folder.iterdir()} == {"plan.json"} | {
        f"{model}-{repeat}" for model in ("goat", "gat", "sage-mean") for repeat in range(2)
    }
    scores = {
        model: [Run(compared.folder / f"{model}-{repeat}").result.metrics["val"]["accuracy"] for repeat in range(2)]
        for model in ("goat", "gat", "sage-mean")
    }
    first = compared.ranking.groups[0]
    assert np.mean(scores[first.label]) == max(map(np.mean, scores.values()))
    assert first.best.result.metrics["val"]["accuracy"] == max(scores[first.label])


def test_a_plan_is_kept_if_another_comparison_cannot_use_its_folder(tmp_path: Path) -> None:
    tables = write(tmp_path)
    compare_models(tables, tmp_path / "all", repeats=1, models=("constant",), device="cpu")
    plan = (tmp_path / "all/plan.json").read_bytes()
    with pytest.raises(RunError, match=r"constant-0 holds another experiment \(tables.target = 'label' there, 'town'"):
        compare_models(replace(tables, target="town"), tmp_path / "all", repeats=1, models=("constant",), device="cpu")
    assert (tmp_path / "all/plan.json").read_bytes() == plan


def test_a_graph_that_is_handed_on_trains_as_one_that_is_read(tmp_path: Path) -> None:
    tables = write(tmp_path)
    experiment = table_experiment(tables, load_tables(tables), "gcn")
    results = [
        train(experiment, tmp_path / name, graph=graph, device="cpu")
        for name, graph in (("given", load_tables(tables)), ("read", None))
    ]
    assert results[0].metrics == results[1].metrics
    assert (tmp_path / "given/schema.json").read_bytes() == (tmp_path / "read/schema.json").read_bytes()


def test_a_graph_without_its_edge_features_is_the_graph_read_without(tmp_path: Path) -> None:
    edges = "\n".join(f"{line},{'weight' if 'source' in line else 1.5}" for line in (EDGES + "b,a\n").splitlines())
    plain = load_tables(write(tmp_path, edges=edges))
    without = load_tables(write(tmp_path, edges=edges, edge_features=True)).without_edge_features()
    assert without.schema == plain.schema
    assert without.data.edge_attr is None
    assert torch.equal(without.data.edge_index, plain.data.edge_index)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("shop/nodes.csv", "shop"),
        ("shop.graphml", "shop"),
        ("my shop!/node.csv", "my-shop"),
        ("cora/nodes.csv", "cora-own"),
    ],
)
def test_a_graph_is_named_after_its_file_or_folder(tmp_path: Path, path: str, name: str) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).touch()
    assert graph_name(tmp_path / path) == name
