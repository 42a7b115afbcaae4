import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.small_runs import run, small_graphs
from torch_goat.app.report.compare import Finished, compare, gather, on_one_dataset
from torch_goat.data.tables import Tables
from torch_goat.experiments import RunError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("runs")
    with small_graphs():
        for seed in range(3):
            run(place / f"gcn/{seed}", "gcn", seed=seed)
        run(place / "gat", "gat")
        run(place / "slow", "gcn", learning_rate=0.001)
        run(place / "other", "gcn", "betweenness-100")
        yield place


def test_runs_that_differ_in_their_seed_are_one_row(folder: Path) -> None:
    runs, _ = on_one_dataset(gather(folder)[0])
    rows = {row.label: row for row in compare(runs, 12, lambda run: np.zeros(1))}
    assert set(rows) == {"gcn, learning_rate=0.05", "gcn, learning_rate=0.001", "gat"}
    scores = [
        json.loads((folder / f"gcn/{seed}/result.json").read_text())["metrics"]["test"]["accuracy"] for seed in range(3)
    ]
    row = rows["gcn, learning_rate=0.05"]
    expected = stats.t.interval(0.95, 2, loc=np.mean(scores), scale=stats.sem(scores))
    assert row.mean == pytest.approx(np.mean(scores))
    assert (row.low, row.high) == pytest.approx((max(0, expected[0]), min(1, expected[1])))
    one = rows["gat"]
    interval = stats.binomtest(round(one.mean * 12), 12).proportion_ci(method="wilson")
    assert (one.low, one.high) == pytest.approx((interval.low, interval.high))


def test_the_best_validation_comes_first(folder: Path) -> None:
    runs, others = on_one_dataset(gather(folder)[0])
    assert others == ["betweenness-100"]
    rows = compare(runs, 12, lambda run: np.zeros(1))
    assert [row.validation for row in rows] == sorted((row.validation for row in rows), reverse=True)
    best = rows[0].best
    assert best.score("val", "accuracy") == max(run.score("val", "accuracy") for run in rows[0].runs)


def test_what_is_asked_of_another_target_is_not_compared(folder: Path) -> None:
    (one,), _ = gather(folder / "gat")

    def asked(target: str, **options: str) -> Finished:
        tables = Tables("nodes.csv", target, **options)
        return replace(one, experiment=replace(one.experiment, dataset="village", split="random", tables=tables))

    (number,), _ = gather(folder / "other")
    runs = [asked("joins"), asked("joins"), asked("craft"), asked("joins", digest="ab"), asked("joins", drop=("land",))]
    runs.append(replace(runs[0], result=number.result))  # classes there, numbers here
    chosen, others = on_one_dataset(runs)
    assert chosen == [runs[0], runs[1], runs[4]]
    assert others == ["village random (craft)", "village random (joins)"]


def test_one_metric_judges_all(folder: Path) -> None:
    """Accuracy and macro F1 are not put beside each other: by accuracy the first would be better."""
    (one,), _ = gather(folder / "gat")
    runs = []
    for weighted, accuracy, macro_f1 in ((False, 0.9, 0.5), (True, 0.8, 0.7)):
        training = replace(one.experiment.training, class_weights=weighted)
        metrics = {split: {"accuracy": accuracy, "macro_f1": macro_f1} for split in ("train", "val", "test")}
        experiment, result = replace(one.experiment, training=training), replace(one.result, metrics=metrics)
        runs.append(replace(one, experiment=experiment, result=result))
    rows = compare(runs, 12, lambda run: np.zeros(1))
    assert [(row.metric, row.mean, row.validation) for row in rows] == [("macro_f1", 0.7, 0.7), ("macro_f1", 0.5, 0.5)]
    (row,) = compare(runs[:1], 12, lambda run: np.zeros(1))
    assert (row.metric, row.mean) == ("accuracy", 0.9)


def test_no_interval_goes_beyond_what_a_share_can_be(folder: Path) -> None:
    (one,), _ = gather(folder / "gat")
    runs = [
        replace(one, result=replace(one.result, metrics={split: {"accuracy": share} for split in ("val", "test")}))
        for share in (0.9, 1.0)
    ]
    (row,) = compare(runs, 12, lambda run: np.zeros(1))
    assert (row.low, row.high) == (pytest.approx(0.95 - 12.7062 * 0.05, abs=1e-4), 1.0)  # t of one degree of freedom


def test_a_single_regression_run_has_the_interval_of_its_errors(folder: Path) -> None:
    runs, _ = gather(folder / "other")
    squares = np.array([0.1, 0.2, 0.6])
    (row,) = compare(runs, 3, lambda run: squares)
    half = 1.959964 * squares.std(ddof=1) / math.sqrt(3)
    assert row.high == pytest.approx(row.mean + half, abs=1e-5)
    assert row.low >= 0


def test_what_is_not_done_or_damaged_is_left_out_and_told(folder: Path, tmp_path: Path) -> None:
    for name in ("stopped", "damaged"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_bytes((folder / "gat/config.toml").read_bytes())
    (tmp_path / "damaged/result.json").write_text("[1]")
    with pytest.raises(RunError, match=r"no run that is done in .* is damaged"):
        gather(tmp_path)
    (tmp_path / "good").symlink_to(folder / "gat")
    (tmp_path / "copy").mkdir()
    for name in ("config.toml", "result.json"):
        (tmp_path / "copy" / name).write_bytes((folder / "gat" / name).read_bytes())
    runs, left_out = gather(tmp_path)
    assert [one.folder.name for one in runs] == ["copy"]
    assert len(left_out) == 2
    with pytest.raises(RunError, match="no folder"):
        gather(tmp_path / "nowhere")


def test_no_two_models_are_called_the_same(folder: Path) -> None:
    (one,), _ = gather(folder / "gat")
    runs = [one]
    for clip_norm in (1.0, 2.0):  # after four others that both have alike
        training = replace(
            one.experiment.training, epochs=9, learning_rate=0.1, weight_decay=0.0, warmup=3, clip_norm=clip_norm
        )
        runs.append(replace(one, experiment=replace(one.experiment, training=training)))
    labels = {row.label for row in compare(runs, 12, lambda run: np.zeros(1))}
    first = "gat, epochs=9, learning_rate=0.1, weight_decay=0.0, warmup=3, clip_norm="
    assert {f"{first}1.0", f"{first}2.0"} < labels
    assert len(labels) == 3
