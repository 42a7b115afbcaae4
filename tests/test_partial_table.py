"""The command and the summary when only some cells of a table have been run."""

import csv
import json
import random
from pathlib import Path
from statistics import fmean, stdev
from unittest.mock import Mock

import pytest
import standing
from scipy import stats

from tests.small_runs import result
from torch_goat import settings
from torch_goat.app.cli import reproduce
from torch_goat.app.cli.app import run
from torch_goat.experiments.recipes import RECIPES, read_recipe
from torch_goat.experiments.tables.ledger import read_lines
from torch_goat.experiments.tables.run_table import TableFolder, begun_recipe

AREAS = {"gcn": 0.7, "gat": 0.8, "goat-lstm": 0.75, "goat-mingru": 0.9, "goat-sep": 0.99}
RUN = {  # the cells that are not on demand
    "minesweeper": ("gcn", "gat", "goat-lstm", "goat-mingru"),
    "tolokers": ("gcn", "gat"),
    "squirrel": ("goat-mingru",),
    "chameleon": (),
}
SEARCHED = ("goat-sep", "minesweeper")  # without runs beyond those of the search


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe ``platonov.toml`` and the lines of some of its cells in ``results``; nothing was trained."""
    root = tmp_path_factory.mktemp("partial")
    text, lines, source = RECIPES["platonov"].read_text(), [], random.Random(0)
    for column, rows in RUN.items():
        others = [row for row in read_recipe("platonov").rows if row not in rows]
        text += f'\n[[on_demand]]\nrows = {json.dumps(others)}\ncolumns = ["{column}"]\n'
    (root / "platonov.toml").write_text(text)
    (root / "results").mkdir()
    folder = root / "results/platonov"
    recipe = begun_recipe(root / "platonov.toml", folder, 4)
    cells = {(row, column) for column, rows in RUN.items() for row in rows} | {SEARCHED}
    table = TableFolder(recipe, folder)
    while planned := [run for run in table.missing(cells) if run.folder.parent != folder.joinpath(*SEARCHED[::-1])]:
        for place, experiment in planned:
            name = place.relative_to(folder)
            row = name.parts[2 if name.parts[0] == "search" else 1]
            areas = {split: AREAS[row] + 0.005 * source.random() for split in ("val", "test")}
            found = result({split: {"accuracy": 1 - area, "roc_auc": area} for split, area in areas.items()})
            tables = {"experiment": settings.to_table(experiment), "result": settings.to_table(found)}
            lines.append(json.dumps({"folder": name.as_posix(), **tables}) + "\n")
        folder.with_suffix(".jsonl").write_text("".join(lines))
        table = TableFolder(recipe, folder)
    table.keep()
    return root


def values(root: Path, row: str, column: str, metric: str) -> list[float]:
    lines = read_lines(root / "results/platonov.jsonl")
    return [100 * lines[f"{column}/{row}/{number}"]["result"]["metrics"]["test"][metric] for number in range(10)]


def test_cells_that_were_not_run_are_empty_and_nothing_is_trained(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused = Mock(side_effect=AssertionError("nothing is trained or fetched"))
    monkeypatch.setattr(reproduce, "run_plan", refused)
    monkeypatch.setattr("urllib.request.urlopen", refused)
    monkeypatch.setenv("TORCH_GOAT_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCH_GOAT_DATA", raising=False)
    before = (root / "results/platonov.jsonl").read_bytes()
    command = ["reproduce", str(root / "platonov.toml"), "--out", str(root / "results")]
    with pytest.raises(SystemExit) as ended:
        run([*command, "--format", "csv"])
    assert not ended.value.code
    records = csv.DictReader(capsys.readouterr().out.splitlines())
    runs = {(one["row"], one["column"]): int(one["runs"]) for one in records if one["runs"] != "0"}
    complete = {(row, column) for column, rows in RUN.items() for row in rows}
    assert runs == {**dict.fromkeys(complete, 10), SEARCHED: 3}
    assert (root / "results/platonov.jsonl").read_bytes() == before
    shown = (root / "results/platonov.md").read_text(encoding="utf-8")
    assert "(3 of 10 runs)" in shown
    assert "Run when --only names their rows: Minesweeper: sage-mean, gat-sep, pna, " in shown
    assert "(Minesweeper: 4 on 1 for 300 epochs, 4 on 1 for 1000 epochs, 3 on 3; Tolokers: " in shown
    assert "want of data" not in shown

    asked = ["--only", SEARCHED[0], "--datasets", SEARCHED[1], "--plan-only", str(tmp_path / "PLAN.json")]
    with pytest.raises(SystemExit):
        run([*command, *asked])
    assert capsys.readouterr().out.startswith("Wrote 7 runs")


def test_a_search_of_three_rounds_comes_to_the_same_choice(root: Path) -> None:
    recipe = begun_recipe(root / "platonov.toml", root / "results/platonov", 0)
    again = TableFolder(recipe, root / "results/platonov").settled
    assert again.to_toml() == (root / "results/platonov.toml").read_text(encoding="utf-8")
    assert again.settled(*SEARCHED)


def test_the_summary_compares_complete_cells_alone(root: Path, tmp_path: Path) -> None:
    def number(row: str, column: str, metric: str) -> str:
        found = values(root, row, column, metric)
        return f"{fmean(found):.2f} ± {stdev(found):.2f}"

    ours, theirs = (values(root, row, "minesweeper", "roc_auc") for row in ("goat-mingru", "gat"))
    p = f"{stats.wilcoxon(ours, theirs).pvalue:.3f}"
    mines = [f"GOAT(mingru) {number('goat-mingru', 'minesweeper', 'roc_auc')}", "-", "-"]
    squirrels = f"GOAT(mingru) {number('goat-mingru', 'squirrel', 'accuracy')}"
    expected = [
        ["Minesweeper, ROC AUC %", *mines, f"GAT {number('gat', 'minesweeper', 'roc_auc')}", p, p],
        ["Tolokers, ROC AUC %", "not run", "-", "-", "-", "-", "-"],
        ["Squirrel (filtered), %", squirrels, "-", "-", "not run", "-", "-"],
        ["Chameleon (filtered), %", "not run", "-", "-", "-", "-", "-"],
    ]
    found = standing.markdown(root / "results").splitlines()[-4:]
    assert found == [f"| {' | '.join(cells)} |" for cells in expected]
    assert [cell.column for cell in standing.standings(root / "results")] == ["minesweeper"]
    standing.figure(tmp_path / "figure.png", root / "results")
