import csv
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from tests.experiments.search.cases import small_search
from torch_goat import settings
from torch_goat.experiments import Experiment, Interrupted, RunError
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.search.tune import tune
from torch_goat.experiments.search.worker import TrialEvent, run_trials
from torch_goat.settings import SettingsError


@pytest.mark.usefixtures("quick_processes")
def test_a_killed_process_costs_its_trial_alone(tmp_path: Path) -> None:
    events: list[TrialEvent] = []

    def watch(event: TrialEvent) -> None:
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
    assert events[-1].done == 5
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("quick_processes")
def test_ctrl_c_ends_the_trials_with_a_checkpoint(tmp_path: Path) -> None:
    def press(event: TrialEvent) -> None:
        if event.kind == "epoch" and event.number == 1:
            raise KeyboardInterrupt

    search = small_search(epochs=200)
    with pytest.raises(Interrupted, match=r"stopped; 1 of 3 trials are done, the same command goes on from there"):
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
    study = Study(search, tmp_path, "", 4)
    run_trials(study, device="cpu")
    outcome = tune(search, tmp_path, trials=4, device="cpu")  # nothing is left to do
    values = [trial.value for trial in study.trials()]
    assert outcome.value == min(values)
    assert outcome.number == values.index(min(values))
    assert settings.read(Experiment, tmp_path / "best.toml") == outcome.best
    assert settings.read(Experiment, tmp_path / f"trials/{outcome.number}/3/config.toml") == outcome.best
    with open(tmp_path / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
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
    model = ModelOptions("goat", hidden_channels=3, bidirectional=False)
    search = small_search({"bidirectional": (True,)}, model=model)
    run_trials(Study(search, tmp_path, "", 1), device="cpu")
    with pytest.raises(RunError, match=r"none of 1 trials has come to a value: .*hidden_channels=3 is odd"):
        tune(search, tmp_path, trials=1, device="cpu")


@pytest.mark.parametrize(
    ("options", "text"),
    [({"trials": 0}, "got 0 and 1"), ({"jobs": 0}, "got 100 and 0"), ({"device": "gpu"}, "the device must be")],
)
def test_impossible_options_are_refused_before_anything_is_written(tmp_path: Path, options: dict, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        tune(small_search(), tmp_path / "study", **options)
    assert not (tmp_path / "study").exists()
