import json
from pathlib import Path
from statistics import fmean

import pytest
from optuna.trial import TrialState

import torch_goat.experiments.training.train
from tests.experiments.search.cases import small_search
from torch_goat.experiments import Interrupted, RunError
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.search import Search
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.search.worker import TrialEvent, run_trials


def search_in(folder: Path, search: Search, total: int, storage: str = "") -> Study:
    study = Study(search, folder, storage, total)
    run_trials(study, device="cpu")
    return study


def told(study: Study) -> list[tuple[object, ...]]:
    return [(trial.number, trial.state, trial.params, trial.value) for trial in study.trials()]


@pytest.mark.parametrize("method", ["tpe", "grid"])
def test_a_search_repeats_exactly_also_in_parts(tmp_path: Path, method: str) -> None:
    search = small_search(method=method)
    whole = search_in(tmp_path / "whole", search, 14)
    for total in (1, 6, 14):
        parts = search_in(tmp_path / "parts", search, total)
    assert told(parts) == told(whole)
    database = search_in(tmp_path / "database", search, 14, f"sqlite:///{tmp_path}/trials.db")
    assert told(database) == told(whole)


def test_a_value_is_the_mean_of_the_validation_metric_over_the_indices(tmp_path: Path) -> None:
    study = search_in(tmp_path, small_search(indices=(2, 0), metric="r2"), 2)
    for trial in study.trials():
        found = []
        for index in (2, 0):
            folder = tmp_path / "trials" / str(trial.number) / str(index)
            result = json.loads((folder / "result.json").read_text())
            assert f"index = {index}\n" in (folder / "config.toml").read_text()
            found.append(result["metrics"]["val"]["r2"])
        assert trial.value == fmean(found)


def test_events_tell_the_story(tmp_path: Path) -> None:
    events: list[TrialEvent] = []
    run_trials(Study(small_search(), tmp_path, "", 2), job=7, device="cpu", on_event=events.append)
    ends = [event for event in events if event.kind == "finished"]
    assert [(event.kind, event.number) for event in events if event.kind != "epoch"] == [
        ("started", 0), ("finished", 0), ("started", 1), ("finished", 1),
    ]  # fmt: skip
    assert {event.job for event in events} == {7}
    assert [event.done for event in ends] == [1, 2]
    assert ends[1].best == min(event.value for event in ends if event.value is not None)
    assert {event.number for event in events if event.epoch is not None} == {0, 1}


def test_a_trial_that_cannot_be_trained_fails_and_the_others_go_on(tmp_path: Path) -> None:
    """An odd width is impossible in both directions, and possible in one."""
    model = ModelOptions("goat", bidirectional=False, backend="torch")
    space = {"hidden_channels": (3, 4), "bidirectional": (False, True)}
    events: list[TrialEvent] = []
    study = Study(small_search(space, model=model, method="grid"), tmp_path, "", 4)
    run_trials(study, device="cpu", on_event=events.append)
    states = [trial.state for trial in study.trials()]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE, TrialState.COMPLETE]
    (failed,) = [event for event in events if event.kind == "failed"]
    assert "hidden_channels=3 is odd" in failed.message
    assert study.reason(study.trials()[1]) == failed.message
    assert "Traceback" in (tmp_path / "trials/1/0/error.txt").read_text()


def test_a_metric_that_is_not_a_number_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_goat.experiments.search.worker.fmean", lambda values: float("nan"))
    study = search_in(tmp_path, small_search(), 1)
    assert study.trials()[0].state == TrialState.FAIL
    assert study.reason(study.trials()[0]) == "the validation mse is nan."


def test_a_folder_that_cannot_be_used_ends_the_search_not_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    study = Study(small_search(), tmp_path, "", 1)
    with monkeypatch.context() as patch:
        patch.setattr(torch_goat.experiments.training.train, "save_weights", full)
        with pytest.raises(RunError, match="no space left"):
            run_trials(study, device="cpu")
    assert study.finished() == []
    run_trials(study, device="cpu")
    assert [trial.state for trial in study.trials()] == [TrialState.COMPLETE]


def test_stopping_keeps_the_trial_for_later(tmp_path: Path) -> None:
    study = Study(small_search(epochs=50), tmp_path, "", 2)
    with pytest.raises(Interrupted):
        run_trials(study, device="cpu", stop=lambda: True)
    assert (tmp_path / "trials/0/0/checkpoint.safetensors").exists()
    run_trials(study, device="cpu")
    assert told(study) == told(search_in(tmp_path / "whole", small_search(epochs=50), 2))


def test_bad_trials_are_pruned(tmp_path: Path) -> None:
    """A learning rate of almost nothing leaves the error where it was, which is worse than the median."""
    space = {"learning_rate": (0.01, 0.011, 0.012, 0.013, 0.014, 0.015, 1e-9)}
    study = search_in(tmp_path, small_search(space, epochs=40, prune=True, method="grid"), 7)
    states = [trial.state for trial in study.trials()]
    assert states[:5] == [TrialState.COMPLETE] * 5
    assert states[6] == TrialState.PRUNED
    assert not (tmp_path / "trials/6/0/result.json").exists()
    assert max(study.trials()[6].intermediate_values) >= 10  # not in the first quarter
    best = study.best()
    assert best is not None
    assert best.number < 6
