import json
from pathlib import Path

import pytest

from torch_goat import settings
from torch_goat.experiments import Experiment, PlannedRun, TrainingOptions, read_plan, write_plan
from torch_goat.experiments.models import ModelOptions


def test_a_plan_moves_with_its_folders(tmp_path: Path) -> None:
    experiment = Experiment(
        "cora", seed=2, model=ModelOptions(name="gat", heads=4), training=TrainingOptions(epochs=9, stop_on="metric")
    )
    here, there = tmp_path / "here", tmp_path / "there"
    write_plan(here / "plan.json", [PlannedRun(here / "a", experiment), PlannedRun(tmp_path / "b", Experiment("top2"))])
    here.rename(there)
    first, second = read_plan(there / "plan.json")
    assert first == PlannedRun(there / "a", experiment)
    assert second.folder.resolve() == tmp_path / "b"
    assert second.experiment == Experiment("top2")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "not a JSON file"),
        ("[]", "a plan must be"),
        ('{"runs": [], "jobs": 3}', "a plan must be"),
        ('{"runs": [{"folder": "a"}]}', r"runs\[0\] must be"),
        ('{"runs": [{"folder": "a", "experiment": {}}]}', r"runs\[0\]: the key 'dataset' is missing"),
        ('{"runs": [{"folder": "a", "experiment": {"dataset": "x", "model": {"head": 2}}}]}', "did you mean 'heads'"),
        ('{"runs": [{"folder": "a", "experiment": {"dataset": "x", "training": {"epochs": 0}}}]}', "epochs = 0"),
    ],
)
def test_bad_plans_are_refused_by_file_and_place(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(settings.SettingsError, match=rf"{tmp_path}/plan.json.*{text}"):
        read_plan(tmp_path / "plan.json")


def test_a_plan_is_plain_json(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", [PlannedRun(tmp_path / "x/y", Experiment("top2", seed=1))])
    (run,) = json.loads((tmp_path / "plan.json").read_text())["runs"]
    assert run["folder"] == "x/y"
    assert (run["experiment"]["dataset"], run["experiment"]["seed"]) == ("top2", 1)
