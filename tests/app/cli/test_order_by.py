"""``--order-by``: neighbours in the order of a column of the edges."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.app.conftest import Goat
from torch_goat import settings
from torch_goat.experiments import Run, predict
from torch_goat.experiments.models import export_program
from torch_goat.experiments.search import Search
from torch_goat.settings import SettingsError

NODES, LAST = 24, 2**60
FAST = ["--set", "epochs=2", "--set", "hidden_channels=4", "--device", "cpu"]
TABLES = ["nodes.csv", "edges.csv", "--target", "label", "--order-by", "time"]
ORDERED = [*TABLES, "--directed", "--model", "goat", "--set", "last=goat", *FAST]


def write_edges(rows: list[tuple[str, str, int]], name: str = "edges.csv") -> str:
    Path(name).write_text("source,target,time\n" + "".join(f"{a},{b},{time}\n" for a, b, time in rows))
    return name


@pytest.fixture
def edges(goat: Goat) -> list[tuple[str, str, int]]:
    """Written with nodes: directed edges at different times, many of which are equal as floats."""
    draw = random.Random(0)
    pairs = [(a, b) for a in range(NODES) for b in range(NODES) if a != b and draw.random() < 0.25]
    times = draw.sample(range(LAST - len(pairs), LAST), len(pairs))
    rows = [(f"n{a}", f"n{b}", time) for (a, b), time in zip(pairs, times, strict=True)]
    lines = (f"n{i},{draw.random()},{'ab'[i % 2]}\n" for i in range(NODES))
    Path("nodes.csv").write_text("id,x,label\n" + "".join(lines))
    write_edges(rows)
    return rows


@pytest.fixture
def trained(goat: Goat, edges: list[tuple[str, str, int]]) -> Path:
    """A run of two GOAT layers, trained in mini-batches."""
    batches = ["--batch-size", "5", "--fanout", "3,3", "--set", "record_orderings=[0, 2]"]
    goat("train", *ORDERED, *batches, "--out", "runs/goat")
    return Path("runs/goat")


def probabilities(run: Path, edges: str) -> torch.Tensor:
    return predict(Run(run), "nodes.csv", edges).probabilities


def test_neighbours_are_read_from_the_latest(goat: Goat, edges: list[tuple[str, str, int]], trained: Path) -> None:
    """In training, in explanations and in the report; contributions are what a prediction without the edge gives."""
    run = Run(trained)
    ids = [f"n{i}" for i in range(NODES)]
    expected = {name: [name] + [a for a, b, _ in sorted(edges, key=lambda row: -row[2]) if b == name] for name in ids}
    recorded = list(run.orderings)
    assert [(epoch, layer) for epoch, layer, _ in recorded] == [(0, 1), (0, 2), (2, 1), (2, 2)]
    for _, _, ordering in recorded:
        for node, name in enumerate(ids):
            for head in range(ordering.heads):
                assert [ids[source] for source in ordering.neighbors(node, head)] == expected[name]
    ended = goat("explain", "runs/goat", "--node", "n3", "--json", "why.json")
    assert "Neighbours in given order" in ended.out
    assert "Kendall" not in ended.out + ended.err
    assert "seed" not in ended.out
    said = json.loads(Path("why.json").read_text())
    assert {one["layer"] for one in said["orders"]} == {1, 2}
    assert all(one["neighbors"] == expected["n3"] for one in said["orders"])
    for one in said["contributions"][:2]:
        less = write_edges([row for row in edges if row[:2] != (one["neighbor"], "n3")], "less.csv")
        value = probabilities(trained, less)[3, ["a", "b"].index(said["prediction"])]
        assert float(value) == pytest.approx(one["without"], abs=1e-5)
    goat("report", "runs", "-o", "report.html")
    assert "The order is given by the edges, not learned" in Path("report.html").read_text()


def test_predictions_follow_the_order(goat: Goat, edges: list[tuple[str, str, int]], trained: Path) -> None:
    run = Run(trained)
    graph, found = run.graph(), predict(run, "nodes.csv", "edges.csv")
    right = torch.tensor([one == true for one, true in zip(found.values, found.truth or (), strict=True)])
    for split, metrics in run.result.metrics.items():  # of exact inference, while training samples neighbours
        assert float(right[graph.data[f"{split}_mask"]].double().mean()) == metrics["accuracy"]
    same = write_edges([*((a, b, 3 * time) for a, b, time in edges), (*edges[0][:2], 0)], "same.csv")
    assert torch.equal(probabilities(trained, same), found.probabilities)  # the earlier of two times does not count
    times = [time for *_, time in edges]
    permuted = write_edges([(a, b, time) for (a, b, _), time in zip(edges, times[::-1], strict=True)], "permuted.csv")
    assert (probabilities(trained, permuted) - found.probabilities).abs().max() > 1e-4
    Path("plain.csv").write_text("source,target,tme\nn1,n2,3\n")
    for join in ([], ["--join"]):
        refused = goat("predict", "runs/goat", "nodes.csv", "plain.csv", *join, code=1).err
        assert (
            "plain.csv, line 1: there is no column 'time' for the order of neighbours; did you mean 'tme'?" in refused
        )


def test_models_are_compared_and_only_goat_needs_the_column(goat: Goat, edges: list[tuple[str, str, int]]) -> None:
    fast = ["--set", "epochs=2", "--device", "cpu", "--repeats", "1"]
    ended = goat("train", *TABLES, *fast, "--out", "all")
    assert "Order: GOAT reads neighbours in decreasing order of 'time'; other models ignore it." in ended.out
    given = {path.name: Run(path).experiment.model.given_order for path in Path("all").glob("*-0")}
    assert {name for name, reads in given.items() if reads} == {"goat-0"}
    assert len(given) == 8
    assert not Path("all/goat-0/orderings").exists()  # which are the same after every epoch
    Path("plain.csv").write_text("source,target\nn1,n2\n")
    goat("predict", "all/gat-0", "nodes.csv", "plain.csv")
    goat("predict", "all/goat-0", "nodes.csv", "plain.csv", code=1)
    network = Run("all/goat-0").network
    with pytest.raises(ValueError, match="a network with given_order=True cannot be exported"):
        export_program(network)


@pytest.mark.parametrize("more", [[], ["--grid"]])
def test_a_search_reads_the_order(
    goat: Goat, edges: list[tuple[str, str, int]], more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_start(search: Search, *_: object, **__: object) -> None:
        Path("start.toml").write_text(settings.dumps(search.experiment))
        raise SettingsError("no trials")

    monkeypatch.setattr("torch_goat.experiments.search.tune.tune", write_start)
    assert "no trials" in goat("tune", *TABLES, "--set", "epochs=1", *more, code=2).err
    goat("train", "--config", "start.toml", "--out", "run", "--device", "cpu")
    found = Run("run").experiment
    assert found.model.given_order
    assert found.tables
    assert found.tables.order_by == "time"
    refused = goat("train", *TABLES[:4], "--config", "start.toml", code=2).err
    assert "given_order = True needs tables.order_by (--order-by)" in refused
    # Also with the settings of a run that learned its order.
    model, tables = replace(found.model, given_order=False, order_noise=0.2), replace(found.tables, order_by="")
    learned = replace(found, model=model, tables=tables, training=replace(found.training, order_noise_end=0.1))
    Path("learned.toml").write_text(settings.dumps(learned))
    goat("train", *TABLES, "--config", "learned.toml", "--out", "given", "--device", "cpu")
    assert Run("given").experiment.model.given_order
    assert Run("given").experiment.model.order_noise == 0
