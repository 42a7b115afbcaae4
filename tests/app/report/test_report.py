import csv
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from sklearn.metrics import f1_score
from torch_geometric.data import Data

from tests.app.conftest import Goat
from tests.small_runs import MODELS, run
from torch_goat.app.report import compose, report
from torch_goat.app.report.text import split_table
from torch_goat.data.tables import Tables, load_tables
from torch_goat.experiments import Experiment, NamedGraph, Run, RunError, TrainingOptions, compare_runs, train
from torch_goat.experiments.own_graph import table_experiment
from torch_goat.settings import SettingsError

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


class Page(HTMLParser):
    """The tags and the visible text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def folder(runs: Path) -> Path:
    return runs / "compared"


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, str]:
    return {name: report(folder / name) for name in ("", "goat/0", "gcn")}


def test_targets_that_vary_little_next_to_their_mean_have_different_ends() -> None:
    y = torch.tensor([-1.0, 0.0, 2.0])
    data = Data(x=torch.zeros(3, 1), y=y, train_mask=y < 3, val_mask=y > 3, test_mask=y > 3)
    graph = NamedGraph(data, ("a", "b", "c"), (), target_mean=1e9, target_scale=3.0)
    cells = split_table(graph, Experiment("mine")).rows[0]
    low, high, mean = map(float, re.findall(r"[\d.]+", cells[-1]))
    assert (low, high, mean) == pytest.approx((1e9 - 3, 1e9 + 6, 1e9 + 1), abs=0.01, rel=0)


def test_numbers_are_those_of_the_result(folder: Path, pages: dict[str, str]) -> None:
    text = Page(pages["goat/0"]).text
    metrics = json.loads((folder / "goat/0/result.json").read_text())["metrics"]
    for split, values in metrics.items():
        name = {"train": "training", "val": "validation", "test": "test"}[split]
        row = "\\s*".join([name, *(f"{100 * value:.1f}" for value in values.values())])
        assert re.search(row, text), row


def test_the_page_is_self_contained_and_reproducible(folder: Path, pages: dict[str, str]) -> None:
    html = pages[""]
    page = Page(html)
    for tag, attributes in page.tags:
        assert "src" not in attributes, tag
        assert attributes.get("href", "#").startswith("#")
    assert "default-src 'none'" in html
    assert html.count("<h2") == 8
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert report(folder) == html


def test_models_orders_and_charts_are_shown(pages: dict[str, str]) -> None:
    text = Page(pages[""]).text
    assert "Which model predicts the class of a node best on top2?" in text
    assert "12 test nodes of one run" in text
    text = Page(pages["goat/0"]).text
    for label in (
        "test accuracy (%)", "epoch", "cross-entropy (nats)", "predicted class (number of nodes)",
        "correct predictions (%)", "confidence: probability of the predicted class (%)",
        "degree (number of neighbours)", "Kendall's tau (−1 to 1)",
        "Stability of the order over epochs", "Agreement with other seeds",
    ):  # fmt: skip
        assert label in text
    text = Page(pages["gcn"]).text
    assert "no GOAT layer" in text
    assert "Stability of the order over epochs" not in text


def test_the_answer_comes_first_and_is_the_verdict(folder: Path, pages: dict[str, str]) -> None:
    html = pages[""]
    verdict = compare_runs([Run(folder / name) for name in ("goat/0", "goat/1", "gcn")]).verdict
    assert verdict.conclusion == "too few runs to tell"
    assert f'<p class="verdict" id="verdict">{verdict.sentences[0]}</p>' in html
    sections = re.findall(r'<section id="(\w+)"', html)
    assert sections == [
        "answer", "comparison", "importance", "order", "viewer", "data", "learning", "predictions", "cost",
    ]  # fmt: skip
    assert "too few runs to tell" in html[html.index('id="comparison"') :]


def test_the_trivial_prediction_is_measured_by_the_metric_that_decides(tmp_path: Path) -> None:
    """And averaged over the splits of the runs, as the metric of the model is."""
    expected = []
    for index in (0, 1):
        run(tmp_path / str(index), "gcn", index=index, class_weights=True, metric="macro_f1")
        data = Run(tmp_path / str(index)).graph().data
        most = data.y[data.train_mask].mode().values
        expected.append(f1_score(data.y[data.test_mask], most.expand(int(data.test_mask.sum())), average="macro"))
    text, mean = Page(report(tmp_path)).text, 50 * sum(expected)
    assert f"If all predictions were the most frequent class, the macro F1 would be {mean:.1f} %." in text
    assert re.search(r"GCN has a macro F1 of [\d.]+ % on the test nodes, on average over 2 runs", text)
    assert "Macro F1 by epoch" in text


def test_the_same_run_in_two_folders_counts_once(folder: Path, tmp_path: Path) -> None:
    for name in ("gcn", "copy/gcn"):
        shutil.copytree(folder / "gcn", tmp_path / name)
    assert "12 test nodes of one run" in Page(report(tmp_path)).text


def test_learning_curves_are_not_those_of_the_test_nodes(pages: dict[str, str]) -> None:
    for name in ("metric", "loss"):
        (chart,) = re.findall(rf'<figure id="chart-{name}">(.*?)</figure>', pages["gcn"], re.DOTALL)
        assert "validation</text>" in chart
        assert "test" not in Page(chart).text


def test_regression_has_residuals(runs: Path) -> None:
    text = Page(report(runs / "number")).text
    assert "Residuals" in text
    assert "Confusion" not in text
    assert "If all predictions were the training mean, the mean squared error would be" in text


def test_hostile_names_are_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Run(folder / "goat/0").graph()
    ids = tuple(f"{HOSTILE} {node}" for node in named.ids)
    hostile = named._replace(ids=ids, classes=(HOSTILE, f"$\\frac{{{HOSTILE}"))
    monkeypatch.setattr(Run, "graph", lambda self, data_dir=None: hostile)
    page = Page(report(folder / "goat/0"))
    assert [tag for tag, _ in page.tags].count("script") == 2  # the data and the viewer
    assert "img" not in [tag for tag, _ in page.tags]
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    assert "<img src=x onerror" in page.text


def hostile_tables(folder: Path) -> Path:
    """A run on tables whose columns, categories, classes and target have hostile names; returns its folder."""
    rows = [[node, (node * 7) % 5, f"{HOSTILE}{node % 3}", f"{'ab'[node % 2]}{HOSTILE}"] for node in range(30)]
    for name, head, lines in (
        ("nodes.csv", ["id", f"{HOSTILE} land", f"{HOSTILE} craft", f"{HOSTILE} target"], rows),
        ("edges.csv", ["source", "target"], [[node, (3 * node + step) % 30] for node in range(30) for step in (1, 4)]),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([head, *lines])
    tables = Tables(str(folder / "nodes.csv"), f"{HOSTILE} target", edges=str(folder / "edges.csv"))
    config = Experiment("", model=MODELS["goat"], training=TrainingOptions(epochs=2))
    train(table_experiment(tables, load_tables(tables, 0), "goat", config), folder / "run", device="cpu")
    return folder / "run"


def test_hostile_columns_are_text(tmp_path: Path) -> None:
    page = Page(report(hostile_tables(tmp_path)))
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in page.tags]
    assert f"How well does GOAT predict {HOSTILE} target on" in page.text
    assert f"{HOSTILE} craft" in page.text  # in the table of importances


def test_named_nodes_are_explained(folder: Path) -> None:
    html = report(folder / "goat/0", nodes=["3", "7"])
    data = json.loads(re.search(r'id="viewer-data">(.*?)</script>', html)[1])
    assert data["first"] == 3
    assert data["arrays"]["chosen"][2] == 2
    with pytest.raises(SettingsError, match="no node 'x'"):
        report(folder / "goat/0", nodes=["x"])
    with pytest.raises(SettingsError, match="at most 200 nodes, got 201"):
        report(folder / "goat/0", nodes=["3"] * 201)


def test_the_command_writes_a_page_once(goat: Goat, folder: Path, tmp_path: Path) -> None:
    ended = goat("report", str(tmp_path), "-o", "x.html", code=1)
    assert "no finished run" in ended.err
    assert not list(tmp_path.iterdir())
    for arguments, code in (([], 0), ([], 2), (["--force", "--nodes", "7"], 0)):
        ended = goat("report", str(folder / "gcn"), "-o", "report.html", *arguments, code=code)
        assert ("report.html already exists" in ended.err) is (code == 2)
        assert ("The report is in report.html" in ended.out) is (code == 0)
    assert Path("report.html").read_text().startswith("<!doctype html>")


def test_a_damaged_run_is_left_out_and_named(folder: Path, tmp_path: Path) -> None:
    for name in ("goat/0", "gcn"):
        shutil.copytree(folder / name, tmp_path / name)
    results = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/result.json")}
    best = max(sorted(results, reverse=True), key=lambda name: results[name]["metrics"]["val"]["accuracy"])
    (tmp_path / best / "metrics.csv").unlink()  # of the run that is shown in detail
    text = Page(report(tmp_path)).text
    assert f"Not included: {best} is damaged (metrics.csv: No such file or directory)." in text
    assert text.count("12 test nodes of one run") == 1
    with pytest.raises(RunError, match=r"damaged .metrics\.csv"):
        report(tmp_path / best)


def test_a_run_with_fixed_orders_is_only_compared(folder: Path, tmp_path: Path) -> None:
    """The best run has fixed orders, which are not stored with the network; the page shows the next one."""
    shutil.copytree(folder / "gcn", tmp_path / "gcn")
    run(tmp_path / "fixed", "goat", fixed_ordering=0, epochs=1)
    path = tmp_path / "fixed/result.json"
    result = json.loads(path.read_text())
    result["metrics"]["val"]["accuracy"] = 1.0
    path.write_text(json.dumps(result))
    Run(tmp_path / "fixed").accept()
    text = Page(report(tmp_path)).text
    assert "GOAT classifies" in text
    assert "GOAT was trained with fixed orders" in text
    assert "Learning curves of GCN (seed 0, split 0)" in text
    with pytest.raises(RunError, match="trained with fixed orders"):
        report(tmp_path / "fixed")


def test_folder_names_may_be_invalid_unicode(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _ = compose.gather(folder / "gcn")
    monkeypatch.setattr(compose, "gather", lambda place: (runs, ["\udcff is not done"]))  # not valid Unicode
    page = report(folder / "gcn").encode()
    assert b"Not included: ? is not done." in page


def test_graphs_without_edges_and_test_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Run(folder / "gcn").graph()
    data = named.data.clone()
    data.edge_index, data.test_mask = data.edge_index[:, :0], data.test_mask & False
    monkeypatch.setattr(Run, "graph", lambda self, data_dir=None: named._replace(data=data))
    text = Page(report(folder / "gcn")).text
    assert "There are no test nodes." in text
    assert "0 to 0, median 0" in text
