"""Successive halving: which trials enter each rung, with how many epochs, and what decides."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.recipes.recipes import TINY, write
from tests.experiments.recipes.test_cell_runs import result
from torch_goat.experiments import Event, PlannedRun, train
from torch_goat.experiments.recipes import Recipe, Rung, finals, read_recipe, settle, trials
from torch_goat.experiments.tables import Ledger
from torch_goat.experiments.tables.run_table import TableFolder
from torch_goat.settings import SettingsError

SPACE = "[search.space]\nlearning_rate = [0.001, 0.002, 0.004]\ndropout = [0.0, 0.2, 0.4, 0.6]\nheads = [1, 2]\n"
RUNGS = "[{ epochs = 10 }, { trials = 3, epochs = 20, repetitions = 2 }, { trials = 2, repetitions = 3 }]"


def searched(tmp_path: Path, column: str = "", trials: int = 8) -> Recipe:
    """The tiny recipe with three rungs in the column of effective sizes, which trains for 40 epochs."""
    dataset = 'dataset = "effective-size-100"'
    column = column or f"training = {{ epochs = 40 }}, rungs = {RUNGS}"
    recipe = read_recipe(write(tmp_path, f"{TINY.replace(dataset, f'{dataset}, {column}')}\n{SPACE}"))
    return replace(recipe, search=replace(recipe.search, trials=trials))


def test_the_best_of_a_rung_enter_the_next_with_more_epochs_and_the_last_decides(tmp_path: Path) -> None:
    recipe = searched(tmp_path)
    tried = trials(recipe, ["gcn"], ["size"])
    assert [(trial.number, trial.repetition) for trial in tried] == [(number, 0) for number in range(8)]
    assert {trial.experiment.training.epochs for trial in tried} == {10}
    assert str(tried[5].folder) == "search/size/gcn/5/10-epochs/0"

    # The errors of trials in each rung: 7 leads the first, 6 the second, 5 the third; 0 would lead the last two.
    errors = {10: {7: 0.1, 6: 0.2, 5: 0.3}, 20: {7: 0.3, 6: 0.1, 5: 0.2, 0: 0.0}, 40: {6: 0.2, 5: 0.1, 7: 0.0, 0: 0.0}}

    def done(runs: Sequence) -> dict:
        by_epochs = ((run, errors[run.experiment.training.epochs]) for run in runs)
        return {run.folder: result(mse=known.get(run.number, 0.9)) for run, known in by_epochs}

    results = done(tried)
    second = finals(recipe, tried, results)
    assert [(run.number, run.repetition, run.experiment.training.epochs) for run in second] == [
        (7, 0, 20), (6, 0, 20), (5, 0, 20), (7, 1, 20), (6, 1, 20), (5, 1, 20)
    ]  # fmt: skip
    assert finals(recipe, tried, results | done(second[:-1])) == second
    results |= done(second)
    last = [run for run in finals(recipe, tried, results) if run not in second]
    assert [(run.number, run.repetition) for run in last] == [(6, 0), (5, 0), (6, 1), (5, 1), (6, 2), (5, 2)]
    assert {run.experiment.training.epochs for run in last} == {40}
    assert str(last[0].folder) == "search/size/gcn/6/0"
    assert not settle(recipe, tried, results | done(last[1:])).settled("gcn", "size")
    settled = settle(recipe, tried, results | done(last))
    chosen = next(run.experiment for run in last if run.number == 5)
    assert settled.options("gcn", "size") == (chosen.model, chosen.training)
    path = tmp_path / "settled.toml"
    path.write_text(settled.to_toml())
    assert read_recipe(path) == settled


def test_finals_are_a_second_rung_with_the_same_epochs(tmp_path: Path) -> None:
    recipe = searched(tmp_path, "finals = 4, finalists = 2")
    assert recipe.rungs("size") == (Rung(), Rung(2, 4))
    assert recipe.rungs("pooling") == (Rung(),)


def test_settings_that_a_column_tries_first_are_given_to_every_row(tmp_path: Path) -> None:
    point = "{ hidden_channels = 32, heads = 2, dropout = 0.1, learning_rate = 0.05 }"
    recipe = searched(tmp_path, f"tried_first = [{point}, {point}, {{ hidden_channels = 24 }}]")
    for row in recipe.rows:
        first, second, third, *others = (trial.experiment for trial in trials(recipe, [row], ["size"]))
        assert (first.model, first.training) == recipe.options(row, "size")
        assert (second.model.hidden_channels, second.model.dropout, second.training.learning_rate) == (32, 0.1, 0.05)
        assert second.model.heads == (1 if row == "gcn" else 2)  # whose layers do not read it
        assert third.model.hidden_channels == 24
        assert len({first, second, third, *others}) == 8
        assert second.model.activation == recipe.options(row, "size")[0].activation  # which makes gat-relu


def test_all_rungs_are_run_and_the_settings_found_follow(tmp_path: Path) -> None:
    recipe = searched(
        tmp_path, "repetitions = 3, training = { epochs = 4 }, rungs = [{ epochs = 1 }, { trials = 2 }]", 3
    )
    epochs: list[int] = []

    def run(planned: Sequence[PlannedRun], on_event: Callable[[Event], None]) -> list[str]:
        for number, (folder, experiment) in enumerate(planned):
            epochs.append(train(experiment, folder, device="cpu").epochs)
            on_event(Event("finished", number))
        return []

    table = TableFolder(recipe, tmp_path / "out")
    assert table.run({("gcn", "size")}, run) == []
    assert epochs == [1] * 3 + [4] * 2 + [4] * 2  # of the best settings, the first run is a trial's
    assert table.settled.settled("gcn", "size")
    table.keep()
    again = TableFolder(recipe, tmp_path / "out")
    assert not again.missing({("gcn", "size")})
    assert len(Ledger(tmp_path / "out").results(again.trials)) == 5


def test_a_damaged_trial_and_an_event_twice_hold_up_no_other_cell(tmp_path: Path) -> None:
    recipe = searched(
        tmp_path, "repetitions = 1, training = { epochs = 2 }, rungs = [{ epochs = 1 }, { trials = 2 }]", 3
    )
    cells = {("gcn", "size"), ("gat", "size")}
    table = TableFolder(recipe, tmp_path / "out")
    damaged = table.folder / next(run.folder for run in table.trials if run.row == "gat")

    def run(planned: Sequence[PlannedRun], on_event: Callable[[Event], None]) -> list[str]:
        for number, (folder, experiment) in enumerate(planned):
            train(experiment, folder, device="cpu")
            if folder == damaged:
                (folder / "result.json").write_text("{")
            on_event(Event("finished", number))
            on_event(Event("failed", number))  # its process died while it said so
        return []

    assert table.run(cells, run) == []
    assert table.settled.settled("gcn", "size")
    assert table.problems().keys() == {("gat", "size")}
    assert f"{damaged}/result.json is damaged" in table.problems()["gat", "size"]
    again = TableFolder(recipe, tmp_path / "out")
    assert not again.missing(cells)


def test_a_slow_cell_does_not_hold_up_another(tmp_path: Path) -> None:
    recipe = searched(
        tmp_path, "repetitions = 2, training = { epochs = 2 }, rungs = [{ epochs = 1 }, { trials = 2 }]", 3
    )
    table = TableFolder(recipe, tmp_path / "out")

    def run(planned: Sequence[PlannedRun], on_event: Callable[[Event], None]) -> list[str]:
        for number, (folder, experiment) in enumerate(planned):  # none of gat's ends
            if "gcn" in folder.parts:
                train(experiment, folder, device="cpu")
                on_event(Event("finished", number))
        return []

    assert table.run({("gcn", "size"), ("gat", "size")}, run) == []
    assert not table.missing({("gcn", "size")})
    assert [run.folder.parts[-2:] for run in table.missing({("gat", "size")})] == [("1-epochs", "0")] * 3
    # A search that was stopped continues with the cell that it had begun.
    second = next(run for run in table.trials if run.row == "gcn" and not run.whole)
    (table.folder / second.folder / "result.json").unlink()
    missing = TableFolder(recipe, tmp_path / "out").missing({("gcn", "size"), ("gat", "size")})
    assert missing[0].folder == table.folder / second.folder


def test_a_failed_trial_holds_up_its_own_cell_alone(tmp_path: Path) -> None:
    recipe = searched(
        tmp_path, "repetitions = 1, training = { epochs = 2 }, rungs = [{ epochs = 1 }, { trials = 2 }]", 3
    )
    table = TableFolder(recipe, tmp_path / "out")
    asked: list[str] = []

    def run(planned: Sequence[PlannedRun], on_event: Callable[[Event], None]) -> list[str]:
        failed = []
        for number, (folder, experiment) in enumerate(planned):
            asked.append(str(folder.relative_to(table.folder)))
            if asked[-1] == "search/size/gat/1/1-epochs/0":
                failed.append("out of memory")
            else:
                train(experiment, folder, device="cpu")
            on_event(Event("finished", number))
        return failed

    cells = {("gcn", "size"), ("gat", "size")}
    assert table.run(cells, run) == ["out of memory"]
    assert len(set(asked)) == len(asked) == 3 + 2 + 3  # gcn's rungs, of which one run is the result, and gat's first
    assert table.settled.settled("gcn", "size")
    assert not table.settled.settled("gat", "size")
    assert [str(run.folder.relative_to(table.folder)) for run in table.missing(cells)] == [
        "search/size/gat/1/1-epochs/0"
    ]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("rungs = [{ trials = 4 }]", r"rungs\[0\].trials must be 0 \(all trials\), got 4"),
        ("rungs = [{}, { repetitions = 2 }]", r"rungs\[1\].trials must be at least 1, got 0"),
        ("rungs = [{ repetitions = 0 }]", "repetitions of a rung must be at least 1, got 0"),
        ("finals = 3, rungs = [{}]", "rungs cannot be combined with finals"),
        ("tried_first = [{ width = 3 }]", r"\[columns.size.tried_first\]: unknown key 'width'"),
        ("training = { epoch = 3 }", r"\[columns.size.training\]: unknown key 'epoch'; did you mean 'epochs'"),
    ],
)
def test_rungs_that_cannot_be_are_refused(tmp_path: Path, column: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        searched(tmp_path, column)
