"""The committed tables are those of the committed runs."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from standing import RESULTS, recipe_of

from torch_goat.app.cli import reproduce
from torch_goat.app.cli.app import run
from torch_goat.experiments.recipes import RECIPES
from torch_goat.experiments.tables.run_table import TableFolder, begun_recipe

TABLES = sorted(path.stem for path in RESULTS.glob("*.jsonl"))


def test_there_are_tables() -> None:
    known = {"table1", "table2", "tuned", "fixed-orderings", "gatv2", "janossy", "heads", "heterophilous", "disease"}
    assert known <= set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_the_command_prints_the_table_and_trains_nothing(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Mock(side_effect=OSError("nothing is trained or fetched"))
    for path in RESULTS.glob(f"{table}.*"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(reproduce, "run_plan", refused)
    monkeypatch.setattr("urllib.request.urlopen", refused)
    with pytest.raises(SystemExit) as ended:
        run(["reproduce", table, "--out", str(tmp_path), "--format", "markdown"])
    assert not ended.value.code
    assert capsys.readouterr().out == (RESULTS / f"{table}.md").read_text(encoding="utf-8")
    assert (tmp_path / f"{table}.jsonl").read_bytes() == (RESULTS / f"{table}.jsonl").read_bytes()


@pytest.mark.parametrize("table", [name for name in TABLES if (RESULTS / f"{name}.toml").exists()])
def test_the_search_comes_to_the_same_choice(table: str) -> None:
    recipe = begun_recipe(RECIPES[table], RESULTS / table, 0)
    assert recipe.search.trials >= 20
    assert TableFolder(recipe, RESULTS / table).settled.to_toml() == recipe_of(table).to_toml()
