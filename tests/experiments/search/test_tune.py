import csv
import json
import multiprocessing
import os
import signal
from pathlib import Path
from statistics import fmean

import pytest
from optuna.trial import TrialState

import torch_goat.experiments.training.train
from tests.experiments.search.cases import small_search, told
from torch_goat import settings
from torch_goat.experiments import Event, Experiment, Interrupted, RunError
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.search import Search
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.search.tune import run_trials, tune
from torch_goat.settings import SettingsError


@pytest.mark.usefixtures("quick_processes")
def test_a_killed_process_costs_its_trial_alone(tmp_path: Path) -> None:
    events: list[Event] = []

    def watch(event: Event) -> None:
        if event.kind == "epoch" and not any(event.kind == "epoch" for event in events):
            (child, *_) = multiprocessing.active_children()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
        events.append(event)

    outcome = tune(small_search(epochs=200), tmp_path, trials=5, jobs=2, device="cpu", on_event=watch)
    (failed,) = [event for event in events if event.kind == "failed"]
    assert failed.message == "its process was killed by SIGKILL (out of memory?)."
    assert (outcome.finished, outcome.failed, outcome.elsewhere) == (5, 1, 0)
    assert sorted(event.number for event in events if event.kind == "finished") == sorted({*range(5)} - {failed.number})
    assert {event.job for event in events} == {0, 1}
    assert max(event.done for event in events) == 5  # the last two processes may report in either order
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("quick_processes")
def test_ctrl_c_ends_the_trials_with_a_checkpoint(tmp_path: Path) -> None:
    def press(event: Event) -> None:
        if event.kind == "epoch" and event.number == 1:
            raise KeyboardInterrupt

    search = small_search(epochs=200)
    with pytest.raises(Interrupted, match=r"stopped; 1 of 3 trials are done, run the same command again to continue"):
        tune(search, tmp_path, trials=3, device="cpu", on_event=press)
    assert (tmp_path / "trials/1/0/checkpoint.safetensors").exists()
    assert settings.read(Experiment, tmp_path / "best.toml").dataset == "betweenness-100"  # of what there is
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("quick_processes")
def test_a_folder_that_cannot_be_used_ends_the_search(tmp_path: Path) -> None:
    (tmp_path / "trials/0").mkdir(parents=True)
    (tmp_path / "trials/0/0").touch()
    with pytest.raises(RunError, match=r"the run folder .*trials/0/0 cannot be used: "):
        tune(small_search(), tmp_path, trials=1, device="cpu")
    assert multiprocessing.active_children() == []


def test_the_best_experiment_and_all_trials_are_written(tmp_path: Path) -> None:
    space = {"scalers": (("identity",), ("identity", "linear")), "dropout": (0.0, 0.5)}
    search = small_search(space, model=ModelOptions("pna", hidden_channels=4), indices=(3,), method="grid")
    study = search_in(tmp_path, search, 4)
    outcome = tune(search, tmp_path, trials=4, device="cpu")  # nothing is left to do
    values = [trial.value for trial in study.trials()]
    assert outcome.value == min(values)
    assert outcome.number == values.index(min(values))
    assert settings.read(Experiment, tmp_path / "best.toml") == outcome.best
    assert settings.read(Experiment, tmp_path / f"trials/{outcome.number}/3/config.toml") == outcome.best
    rows = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert [float(row["val_mse"]) for row in rows] == values
    written = [(tmp_path / name).read_text() for name in ("best.toml", "trials.csv")]
    assert tune(search, tmp_path, trials=1, device="cpu") == outcome  # a shorter search loses nothing
    assert [(tmp_path / name).read_text() for name in ("best.toml", "trials.csv")] == written
    assert [(row["trial"], row["state"], row["scalers"], row["dropout"]) for row in rows] == [
        ("0", "complete", "identity", "0.0"),
        ("1", "complete", "identity", "0.5"),
        ("2", "complete", "identity linear", "0.0"),
        ("3", "complete", "identity linear", "0.5"),
    ]


def test_a_search_without_any_value_says_why(tmp_path: Path) -> None:
    search = small_search({"neighbor_selection": ("top",)}, model=ModelOptions("goat"))
    search_in(tmp_path, search, 1)
    with pytest.raises(RunError, match=r"none of 1 trials has a value: .*neighbor_selection='top' needs max_neighbors"):
        tune(search, tmp_path, trials=1, device="cpu")


@pytest.mark.parametrize(
    ("options", "text"),
    [({"trials": 0}, "got 0 and 1"), ({"jobs": 0}, "got 100 and 0"), ({"device": "gpu"}, "the device must be")],
)
def test_impossible_options_are_refused_before_anything_is_written(tmp_path: Path, options: dict, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        tune(small_search(), tmp_path / "study", **options)
    assert not (tmp_path / "study").exists()


def search_in(folder: Path, search: Search, total: int, storage: str = "") -> Study:
    study = Study(search, folder, storage, total)
    run_trials(study, device="cpu")
    return study


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
    events: list[Event] = []
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
    """The highest scores can be selected only if their number is known."""
    model = ModelOptions("goat", backend="torch")
    space = {"max_neighbors": (0, 2), "neighbor_selection": ("random", "top")}
    events: list[Event] = []
    study = Study(small_search(space, model=model, method="grid"), tmp_path, "", 4)
    run_trials(study, device="cpu", on_event=events.append)
    states = [trial.state for trial in study.trials()]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE, TrialState.COMPLETE]
    (failed,) = [event for event in events if event.kind == "failed"]
    assert "neighbor_selection='top' needs max_neighbors" in failed.message
    assert study.reason(study.trials()[1]) == failed.message
    assert "Traceback" in (tmp_path / "trials/1/0/error.txt").read_text()


def test_a_metric_that_is_not_a_number_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_goat.experiments.search.tune.trial_value", lambda *_: float("nan"))
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
        patch.setattr(torch_goat.experiments.training.train, "pack_weights", full)
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
    assert study.best().number < 6
