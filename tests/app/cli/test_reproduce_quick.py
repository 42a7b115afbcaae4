import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from torch_goat.experiments.recipes import plan, read_recipe


def test_table_1_runs_from_the_command_to_the_table(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from torch_goat.app.cli import main; main()", "reproduce", "table1", "--quick"]
    command += ["--jobs", "2", "--device", "cpu", "--out", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    recipe = read_recipe("table1")
    runs = plan(recipe, quick=True)
    assert len(runs) == len(recipe.rows) * 5 * 2
    values: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        test = json.loads((tmp_path / "table1-quick" / run.folder / "result.json").read_text())["metrics"]["test"]
        values.setdefault((run.row, run.column), []).append(
            100 * test["accuracy"] if "accuracy" in test else test["mse"]
        )
    with open(tmp_path / "table1-quick.csv", newline="") as file:
        records = {(record["row"], record["column"]): record for record in csv.DictReader(file)}
    assert records.keys() == values.keys()
    markdown = (tmp_path / "table1-quick.md").read_text(encoding="utf-8")
    for (row, column), record in records.items():
        mean, std = np.mean(values[row, column]), np.std(values[row, column], ddof=1)
        assert float(record["mean"]) == pytest.approx(mean, rel=1e-12)
        assert float(record["std"]) == pytest.approx(std, rel=1e-9)
        decimals = 2 if column == "top2" else 5 if column == "effective-size-1000" else 4
        published = recipe.published(row, column)
        for text in (ended.stdout, markdown):
            assert f"{mean:.{decimals}f}" in text
            assert f" ± {std:.{decimals}f}" in text
            if published is not None:
                assert f"paper {published.text} ({mean - published.mean:+.{decimals}f})".replace("-", "−") in text
