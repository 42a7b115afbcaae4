import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix
from torch_geometric.data import Data

from tests.small_runs import Done
from torch_goat.app.report.charts import Calibrated, calibration_chart, mean_chart
from torch_goat.app.report.compose import comparable, gather
from torch_goat.app.report.measures import calibration, confusion, degrees, mean_by
from torch_goat.app.report.text import comparison_notes, comparison_table, data_table
from torch_goat.data.tables import Tables
from torch_goat.experiments import NamedGraph, Result, Run, RunError, compare_runs


def test_only_runs_on_the_same_data_and_target_are_comparable(runs: Path) -> None:
    one, number = Run(runs / "compared/gcn"), Run(runs / "number")

    def on_tables(target: str, result: Result = one.result, **options: str) -> Done:
        tables = Tables("nodes.csv", target, **options)
        return Done(replace(one.experiment, dataset="village", split="random", tables=tables), result)

    tried = [on_tables("joins"), on_tables("joins"), on_tables("craft"), on_tables("joins", digest="ab")]
    tried += [on_tables("joins", drop=("land",)), on_tables("joins", number.result)]
    chosen, others = comparable(tried)
    assert chosen == [tried[0], tried[1], tried[4]]
    assert others == ["village random (craft)", "village random (joins)"]


def test_several_runs_with_the_same_result_have_the_interval_of_one(runs: Path) -> None:
    one = Run(runs / "compared/gcn")
    seeds = [Done(replace(one.experiment, seed=seed), one.result) for seed in range(3)]
    test = {"accuracy": one.result.metrics["test"]["accuracy"] / 2}
    other = Done(replace(one.experiment, seed=3), replace(one.result, metrics=one.result.metrics | {"test": test}))
    single, several, varied = (compare_runs(found, test_nodes=12) for found in (seeds[:1], seeds, [*seeds, other]))
    rows = [comparison_table(found, 12).rows[0] for found in (single, several, varied)]
    assert rows[0] == rows[1]
    assert [row[3] for row in rows] == ["12 test nodes of one run"] * 2 + ["4 runs"]
    notes = [comparison_notes(found.groups, [], [], found.groups[0])[1] for found in (several, varied)]
    assert notes[0].startswith("For a single run, or several with the same result, the interval covers the random")
    assert notes[1].startswith("For several runs, the interval is Student's t interval of their mean over seeds")


def test_unfinished_and_damaged_runs_are_left_out(runs: Path, tmp_path: Path) -> None:
    folder = runs / "compared"
    for name in ("stopped", "damaged"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_bytes((folder / "gcn/config.toml").read_bytes())
    (tmp_path / "damaged/result.json").write_text("[1]")
    with pytest.raises(RunError, match=r"no finished run in .* is damaged"):
        gather(tmp_path)
    (tmp_path / "good").symlink_to(folder / "gcn")
    shutil.copytree(folder / "gcn", tmp_path / "copy")
    found, left_out = gather(tmp_path)
    assert [one.folder.name for one in found] == ["copy"]
    assert [text.partition(" (")[0] for text in left_out] == ["damaged is damaged", "stopped is not done"]
    with pytest.raises(RunError, match="no folder"):
        gather(tmp_path / "nowhere")


def test_confusion_and_calibration_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(4, size=(2, 100))
    assert (confusion(truth, predicted, 5) == confusion_matrix(truth, predicted, labels=range(5))).all()
    confidence = rng.random(500)
    correct = rng.random(500) < confidence**2
    bins, error = calibration(confidence, correct)
    share, center = calibration_curve(correct, confidence, n_bins=10)
    assert [one.value for one in bins] == pytest.approx(share)
    assert [one.center for one in bins] == pytest.approx(center)
    assert sum(one.nodes for one in bins) == 500
    assert error == pytest.approx(sum(one.nodes * abs(one.value - one.center) for one in bins) / 500)
    assert calibration(np.array([1.0, 1.0]), np.array([True, True]))[1] == 0


def test_bins_by_size_partition_the_nodes_and_keep_equal_keys_together() -> None:
    size = np.array([1, 1, 1, 1, 1, 1, 2, 3, 4, 50])
    correct = np.array([1, 1, 1, 0, 0, 0, 1, 1, 0, 1], dtype=bool)
    bins = mean_by(size, correct, bins=3)
    assert [(one.low, one.high, one.nodes, one.value) for one in bins] == [
        (1, 1, 6, 0.5),
        (2, 2, 1, 1.0),
        (3, 50, 3, pytest.approx(2 / 3)),
    ]
    expected = stats.binomtest(2, 3).proportion_ci(method="wilson")
    assert bins[-1].interval == pytest.approx((expected.low, expected.high))
    assert mean_by(size[:0], correct[:0]) == []
    first, second = mean_by(np.arange(8), np.array([1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]), bins=2)
    assert (first.value, second.value) == (2.5, 25.0)  # the mean of real values, with the normal interval
    half = 1.959964 * np.std([1, 2, 3, 4], ddof=1) / 2
    assert first.interval == pytest.approx((2.5 - half, 2.5 + half), abs=1e-5)


def test_self_loops_are_not_neighbours() -> None:
    """0 - 1 - 2 undirected, with loops at 1 and 2, and 3 isolated."""
    edge_index = torch.tensor([[0, 1, 1, 2, 1, 2], [1, 0, 2, 1, 1, 2]])
    data = Data(x=torch.zeros(4, 1), edge_index=edge_index)
    assert degrees(data).tolist() == [1, 2, 1, 0]
    rows = dict(data_table(NamedGraph(data, tuple("abcd"), ("x", "y"))).rows)
    assert rows["edges"] == "4 (undirected)"
    assert rows["neighbours per node"] == "0 to 2, median 1"


def test_a_calibration_without_test_nodes_is_an_empty_chart() -> None:
    unchanged, changed = (calibration_chart(Calibrated([], 0.07), *one) for one in ((), (Calibrated([], 0.2),)))
    assert "<svg" in unchanged.svg
    assert "<svg" in changed.svg
    assert "calibration error: 7.0 % (not rescaled)." in unchanged.caption
    assert "calibration error: 7.0 % (before rescaling: 20.0 %)." in changed.caption
    assert "<svg" in mean_chart([]).svg
