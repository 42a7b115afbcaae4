import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import write
from torch_goat.experiments import RunError, train
from torch_goat.experiments.recipes import CellRun, plan, read_recipe
from torch_goat.experiments.tables import Ledger
from torch_goat.experiments.tables.ledger import read_lines

OLD_LINES = Path(__file__).with_name("old_lines.jsonl")  # written before values were shared between lines


@pytest.fixture
def runs(tmp_path: Path) -> list[CellRun]:
    found = plan(read_recipe(write(tmp_path)), rows=["gcn"], columns=["size"])
    train(found[0].experiment, tmp_path / "table" / found[0].folder, device="cpu")
    return found


@pytest.fixture
def path(tmp_path: Path, runs: list[CellRun]) -> Path:
    """A file with the line of the first run."""
    Ledger(tmp_path / "table").write(runs)
    return tmp_path / "table.jsonl"


def test_a_line_stands_for_a_run_whose_folder_is_elsewhere(tmp_path: Path, runs: list[CellRun]) -> None:
    ledger = Ledger(tmp_path / "table")
    result = ledger.result(runs[0])
    ledger.write(runs)
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    again = Ledger(tmp_path / "table")
    assert result is not None
    assert again.results(runs) == {runs[0].folder: result}
    assert [again.is_missing(run) for run in runs] == [False, True]


def test_a_line_of_other_settings_is_told_and_left_alone(tmp_path: Path, path: Path, runs: list[CellRun]) -> None:
    before = path.read_text()
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    other = runs[0]._replace(experiment=replace(runs[0].experiment, seed=99))
    ledger = Ledger(tmp_path / "table")
    with pytest.raises(RunError, match=r"has another experiment for size/gcn/0 \(seed = 0 there, 99 here\); choose"):
        ledger.result(other)
    assert ledger.results([other]) == {}
    assert not ledger.is_missing(other)
    ledger.write([other])
    assert path.read_text() == before


def test_a_line_from_before_an_option_came_stays_as_it_is(tmp_path: Path, path: Path, runs: list[CellRun]) -> None:
    entry = json.loads(path.read_text())
    assert entry["experiment"]["model"].pop("residual") is False  # as it is by default
    path.write_text(f"{json.dumps(entry)}\n")
    ledger = Ledger(tmp_path / "table")
    assert not ledger.is_missing(runs[0])
    ledger.write(runs)
    assert json.loads(path.read_text()) == entry


def test_runs_of_the_same_experiment_share_a_result(tmp_path: Path, runs: list[CellRun]) -> None:
    first, second = runs
    same = first._replace(row="twin")
    ledger = Ledger(tmp_path / "table")
    ledger.share([same, second], [first])
    assert ledger.result(same) == ledger.result(first)
    assert ledger.is_missing(second)
    ledger.write([same])
    assert read_lines(tmp_path / "table.jsonl").keys() == {"size/gcn/0", "size/twin/0"}
    ledger.share([same], [second])  # which is not done
    assert Ledger(tmp_path / "table").result(same) == ledger.result(first)


def test_old_lines_are_kept_when_values_are_shared(tmp_path: Path, runs: list[CellRun]) -> None:
    old = [json.loads(line) for line in OLD_LINES.read_text().splitlines()]
    assert {"add_self_loops" in entry["experiment"]["model"] for entry in old} == {True, False}
    path = tmp_path / "table.jsonl"
    path.write_bytes(OLD_LINES.read_bytes())
    Ledger(tmp_path / "table").write(runs)
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert first.keys() == {"shared"}
    assert [line["run"] for line in lines] == [*(entry["folder"] for entry in old), "size/gcn/0"]
    assert len(path.read_text()) < len(OLD_LINES.read_text())
    found = read_lines(path)
    for entry in old:  # by their texts, in which 1, 1.0 and True differ, and the order of metrics counts
        there = found[entry["folder"]]
        for key in ("experiment", "result"):
            assert json.dumps(there[key], sort_keys=True) == json.dumps(entry[key], sort_keys=True)
        assert json.dumps(there["result"]["metrics"]) == json.dumps(entry["result"]["metrics"])
    path.write_bytes(path.read_bytes() + OLD_LINES.read_bytes())  # joined with another file
    assert read_lines(path) == found


@pytest.mark.parametrize("common", [0, {}, {"a": {"b": 1}}])
def test_shared_values_are_exact(tmp_path: Path, path: Path, runs: list[CellRun], common: object) -> None:
    entry = json.loads(path.read_text())
    odd = [0, 0.0, False, None, {}, "", [], 0.1 + 0.2, 1e-300, float("inf"), {"a": {"b": 1}}, {"a": {"b": None}}, "é"]
    lines = []
    for number, value in enumerate([*[common] * 6, *odd, "absent"]):
        one = json.loads(json.dumps(entry)) | {"folder": str(number)}
        one["experiment"]["odd"] = value
        if value == "absent":
            del one["experiment"]["odd"]
        lines.append(one)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    Ledger(tmp_path / "table").write(runs)
    assert '{"run": "1", ' in path.read_text()
    found = read_lines(path)
    for one in lines:
        there = {"folder": one["folder"], **found[one["folder"]]}
        assert json.dumps(there, sort_keys=True) == json.dumps(one, sort_keys=True)


@pytest.mark.parametrize(
    "damage",
    [
        b"{", b'{"folder": "a"}', b"[]", b'"text"', b"\xff",
        lambda result: result.clear(),
        lambda result: result.pop("commit"),
        lambda result: result["metrics"].pop("test"),
        lambda result: result["metrics"]["test"].update(mse=None),
        lambda result: result.update(metrics="x"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named(tmp_path: Path, path: Path, damage: bytes | Callable[[dict], object]) -> None:
    if callable(damage):
        entry = json.loads(path.read_text())
        damage(entry["result"])
        damage = json.dumps(entry).encode()
    path.write_bytes(damage + b"\n")
    with pytest.raises(RunError, match=r"table\.jsonl, line 1: not a result; remove the line to run it again"):
        Ledger(tmp_path / "table")


def test_two_results_of_one_run_are_refused(tmp_path: Path, path: Path, runs: list[CellRun]) -> None:
    """As after two files were joined; the order of the lines must not decide which of them counts."""
    line = path.read_text()
    entry = json.loads(line)
    path.write_text(line + line)
    assert Ledger(tmp_path / "table").result(runs[0]) is not None
    entry["result"]["metrics"]["test"]["mse"] += 1
    path.write_text(line + json.dumps(entry) + "\n")
    with pytest.raises(RunError, match=r"table\.jsonl, line 2: another line has another result for size/gcn/0"):
        Ledger(tmp_path / "table")


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"val": {"mse": 0.5}}, "the result in {0.parent} lacks metrics .* to run this again"),
        ({"val": {"mse": 0.5}, "test": {}}, "the result in {0.parent} lacks metrics .* to run this again"),
        ({}, "{0} is damaged or from another version; remove it to train again"),
        ({"val": {"mse": 0.5}, "test": {"mse": "x"}}, "{0} is damaged or from another version; remove it to train"),
    ],
)
def test_a_folder_whose_result_a_table_cannot_use_is_named(
    tmp_path: Path, runs: list[CellRun], metrics: dict, message: str
) -> None:
    path = tmp_path / "table" / runs[0].folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"metrics": metrics}))
    (path.parent / "digests.json").unlink()  # as in a folder of an earlier version
    with pytest.raises(RunError, match=message.format(path)):
        Ledger(tmp_path / "table").result(runs[0])
    assert Ledger(tmp_path / "table").collect(runs)[1].keys() == {("gcn", "size")}


def test_results_come_from_the_folders_of_the_same_experiment(tmp_path: Path) -> None:
    runs = plan(read_recipe(write(tmp_path)), rows=["gcn", "gat"])
    by_folder = {str(run.folder): run for run in runs}
    done = [by_folder[name] for name in ("size/gcn/0", "size/gcn/1", "pooling/gcn/1")]
    for run in done:
        train(run.experiment, tmp_path / "table" / run.folder, device="cpu")
    other, folder = by_folder["size/gcn/0"], tmp_path / "table/size/gat/0"
    train(other.experiment, folder, device="cpu")  # in the place of another
    damaged = tmp_path / "table/pooling/gcn/0"
    train(by_folder["pooling/gcn/0"].experiment, damaged, device="cpu")
    (damaged / "result.json").write_text('{"metrics"')
    found, problems = Ledger(tmp_path / "table").collect(runs)
    assert {one.run for one in found} == set(done)
    for one in found:
        path = tmp_path / "table" / one.run.folder / "result.json"
        assert one.result.metrics == json.loads(path.read_text())["metrics"]
    assert problems.keys() == {("gat", "size"), ("gcn", "pooling")}
    assert "model.name = 'gcn' there, 'gat' here" in problems["gat", "size"]
    assert problems["gcn", "pooling"].startswith(f"{damaged / 'result.json'} is damaged")
