import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import alone
from torch_goat import settings
from torch_goat.experiments import Experiment, PlannedRun, TrainingOptions, finished, plan, read_plan, train, write_plan
from torch_goat.experiments.models import ModelOptions
from torch_goat.files import locked


def write(folder: Path, epochs: dict[str, int]) -> list[PlannedRun]:
    """A plan with a run for every name."""
    runs = []
    for seed, (name, count) in enumerate(epochs.items()):
        training = TrainingOptions(epochs=count, patience=0)
        experiment = Experiment("betweenness-100", seed=seed, model=ModelOptions(name="gcn"), training=training)
        runs.append(PlannedRun(folder / name, experiment))
    write_plan(folder / "plan.json", runs)
    return runs


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The worker, in an environment where only the library's own needs can be imported."""
    return alone.start(folder, "torch_goat.training.worker", str(folder / "plan.json"), "--device", "cpu", *arguments)


def until(condition) -> None:
    """Waits for something that another process does."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_plan_survives_ctrl_c_and_runs_with_the_library_alone(tmp_path: Path) -> None:
    short, long = write(tmp_path, {"short": 5, "long": 400})
    process = start(tmp_path, "--jobs", "1")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert [line.split(": ")[1].split(" ")[0].strip() for line in lines] == ["started", "finished", "started"]
    assert "(1 of 2): mse " in lines[1]
    until(lambda: (long.folder / "config.toml").exists())
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert errors == "worker: stopped; 1 of 2 runs are done, run the same plan again to continue.\n"
    assert (long.folder / "checkpoint.safetensors").exists()

    process = start(tmp_path, "--jobs", "2")
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert errors == ""
    assert f"{short.folder}: skipped (1 of 2): mse" in output
    assert f"{long.folder}: finished (2 of 2): mse" in output
    result, expected = finished(long.experiment, long.folder), train(long.experiment, tmp_path / "whole", device="cpu")
    assert result is not None
    assert result.metrics == expected.metrics


def test_without_the_plans_process_a_run_ends_with_a_checkpoint(tmp_path: Path) -> None:
    (run,) = write(tmp_path, {"endless": 10**7})
    process = start(tmp_path)
    until((run.folder / "config.toml").exists)
    process.kill()
    process.communicate(timeout=300)
    with locked(run.folder, wait=True):  # the lock goes with the run's own process
        assert (run.folder / "checkpoint.safetensors").exists()


@pytest.mark.usefixtures("quick_processes")
def test_the_time_that_is_given_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in the background, where Ctrl-C is not heard."""
    write(tmp_path, {"endless": 10**7})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert plan.main([str(tmp_path / "plan.json"), "--device", "cpu", "--seconds", "1"]) == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "worker: stopped; 0 of 1 runs are done, run the same plan again to continue.\n"


@pytest.mark.usefixtures("quick_processes")
def test_a_failed_run_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = write(tmp_path, {"one": 2})
    run.folder.mkdir()
    (run.folder / "model.safetensors").write_text("precious")
    assert plan.main([str(tmp_path / "plan.json"), "--device", "cpu"]) == 1
    output = capsys.readouterr()
    assert "failed (1 of 1): " in output.out
    assert output.err == "worker: 1 of 1 runs failed; the lines above and error.txt in their folders say why.\n"


@pytest.mark.parametrize(
    ("content", "arguments", "text"),
    [
        ("{", [], "not a JSON file"),
        ('{"runs": []}', ["--device", "gpu"], "got 'gpu'"),
        ('{"runs": []}', ["--jobs", "-1"], "jobs must be"),
        (None, [], "No such file"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, arguments: list[str], text: str
) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(SystemExit) as caught:
        plan.main([str(tmp_path / "plan.json"), *arguments])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_a_plan_moves_with_its_folders(tmp_path: Path) -> None:
    experiment = Experiment(
        "cora", seed=2, model=ModelOptions(name="gat", heads=4), training=TrainingOptions(epochs=9, stop_on="metric")
    )
    here, there = tmp_path / "here", tmp_path / "there"
    write_plan(here / "plan.json", [PlannedRun(here / "a", experiment), PlannedRun(tmp_path / "b", Experiment("top2"))])
    run, _ = json.loads((here / "plan.json").read_text())["runs"]
    assert (run["folder"], run["experiment"]["dataset"], run["experiment"]["seed"]) == ("a", "cora", 2)
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
        ('{"runs": [{"folder": "a", "experiment": {"dataset": "x", "training": {"epochs": 0}}}]}', "epochs must be"),
    ],
)
def test_bad_plans_are_refused_by_file_and_place(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(settings.SettingsError, match=rf"{tmp_path}/plan.json.*{text}"):
        read_plan(tmp_path / "plan.json")
