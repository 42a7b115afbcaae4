import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.app.conftest import Goat
from torch_goat.experiments.recipes import plan, read_recipe

DATASETS = ("betweenness-100", "effective-size-1000", "top2")


@pytest.mark.usefixtures("quick_processes")
def test_table_1_runs_from_the_command_to_the_table(goat: Goat, tmp_path: Path) -> None:
    options = ["--datasets", ",".join(DATASETS), "--jobs", "2", "--device", "cpu", "--out", str(tmp_path)]
    ended = goat("reproduce", "table1", "--quick", *options)
    assert ended.code == 0, ended.err
    recipe = read_recipe("table1")
    runs = [run for run in plan(recipe, quick=True) if run.column in DATASETS]
    assert len(runs) == len(recipe.rows) * len(DATASETS) * 2
    values: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        test = json.loads((tmp_path / "table1-quick" / run.folder / "result.json").read_text())["metrics"]["test"]
        values.setdefault((run.row, run.column), []).append(
            100 * test["accuracy"] if "accuracy" in test else test["mse"]
        )
    with open(tmp_path / "table1-quick.csv", newline="") as file:
        records = {(one["row"], one["column"]): one for one in csv.DictReader(file) if one["runs"] != "0"}
    assert records.keys() == values.keys()
    markdown = (tmp_path / "table1-quick.md").read_text(encoding="utf-8")
    for (row, column), record in records.items():
        mean, std = np.mean(values[row, column]), np.std(values[row, column], ddof=1)
        assert float(record["mean"]) == pytest.approx(mean, rel=1e-12)
        assert float(record["std"]) == pytest.approx(std, rel=1e-9)
        decimals = 2 if column == "top2" else 5 if column == "effective-size-1000" else 4
        published = recipe.published(row, column)
        for text in (ended.out, markdown):
            assert f"{mean:.{decimals}f}" in text
            assert f" ± {std:.{decimals}f}" in text
            if published is not None:
                assert f"paper {published.text} ({mean - published.mean:+.{decimals}f})".replace("-", "−") in text
