import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.recipes.recipes import TINY, write
from tests.processes import start_alone
from torch_goat.experiments import Event, Interrupted, PlannedRun, train
from torch_goat.experiments.recipes import read_recipe
from torch_goat.experiments.tables import run_table
from torch_goat.experiments.tables.ledger import read_lines
from torch_goat.experiments.tables.run_table import TableFolder, begun_recipe
from torch_goat.settings import SettingsError

SEARCHED = f"{TINY}\n[search.space]\nlearning_rate = [0.001, 0.1]\n"
CELL = ("--only", "gcn", "--datasets", "size")


def test_a_whole_search_needs_the_library_alone(tmp_path: Path) -> None:
    recipe, out = write(tmp_path, SEARCHED), tmp_path / "results"
    options = ["--search", "2", "--out", str(out), "--device", "cpu", "--jobs", "1"]
    process = start_alone(tmp_path, "torch_goat.tables.worker", str(recipe), *CELL, *options)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == f"The results are in {out / 'tiny.jsonl'}; 0 runs are missing."
    results = {folder: line["result"]["metrics"] for folder, line in read_lines(out / "tiny.jsonl").items()}
    trials = {f"search/size/gcn/{number}/0" for number in (0, 1)}
    assert results.keys() == trials | {"size/gcn/0", "size/gcn/1"}
    best = min(sorted(trials), key=lambda name: results[name]["val"]["mse"])
    assert results["size/gcn/0"] == results[best]  # of which the cell has the settings
    chosen = json.loads((out / "tiny" / best / "result.json").read_text())
    assert chosen["metrics"] == results[best]
    found = read_recipe(out / "tiny.toml")
    assert found.search.trials == 2
    # From the lines alone, elsewhere, nothing is missing.
    (out / "tiny").rename(tmp_path / "gone")
    for search in (0, 2):
        table = TableFolder(begun_recipe(recipe, out / "tiny", search), out / "tiny")
        assert table.missing({("gcn", "size")}) == []
        assert table.settled == found
        (out / "tiny.toml").unlink(missing_ok=True)
    with pytest.raises(SettingsError, match=r"tiny.jsonl has trials of a search, but .*tiny.toml is missing; repeat"):
        begun_recipe(recipe, out / "tiny", 0)


@pytest.mark.parametrize("count", [1, 2])
def test_a_stopped_search_keeps_what_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int) -> None:
    recipe, out = write(tmp_path, SEARCHED.replace("epochs = 3", "epochs = 3\npatience = 0")), tmp_path / "results"
    arguments = [str(recipe), *CELL, "--search", "2", "--out", str(out), "--device", "cpu"]

    def stopped(runs: Sequence[PlannedRun], *_: Any) -> list[Event]:
        for run in runs[:count]:
            train(run.experiment, run.folder, device="cpu")
        raise Interrupted("stopped.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_table, "run_logged", stopped)
        assert run_table.main(arguments) == 130
    assert capsys.readouterr().err == "worker: stopped.\n"
    lines = read_lines(out / "tiny.jsonl")
    assert {folder for folder in lines if folder.startswith("search/")} == {
        f"search/size/gcn/{number}/0" for number in range(count)
    }
    assert read_recipe(out / "tiny.toml").settled("gcn", "size") == (count == 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tabel2"], "did you mean 'table2'?"),
        (["tiny.toml", "--only", "gnc"], "did you mean 'gcn'?"),
        (["tiny.toml", "--search", "-1"], "--search must be at least 1, got -1"),
        (["tiny.toml", "--data-dir", "nowhere"], "nowhere"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    write(tmp_path, SEARCHED)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        run_table.main(arguments)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err
    assert not Path("results").exists()


def test_lines_of_other_settings_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(runs: Sequence[PlannedRun], *_: Any) -> list[Event]:
        for run in runs:
            train(run.experiment, run.folder, device="cpu")
        return []

    monkeypatch.setattr(run_table, "run_logged", here)
    recipe, out = write(tmp_path), tmp_path / "results"
    arguments = [str(recipe), *CELL, "--out", str(out), "--device", "cpu"]
    assert run_table.main(arguments) == 0
    capsys.readouterr()
    before = (out / "tiny.jsonl").read_text()
    recipe.write_text(TINY.replace("hidden_channels = 6", "hidden_channels = 5"))
    assert run_table.main(arguments) == 1
    assert "tiny.jsonl has another experiment for size/gcn/0 (model.hidden_channels" in capsys.readouterr().err
    assert (out / "tiny.jsonl").read_text() == before
