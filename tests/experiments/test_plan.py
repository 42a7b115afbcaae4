import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from tests.processes import start_in, until
from torch_goat import settings
from torch_goat.experiments import Event, Experiment, PlannedRun, TrainingOptions, finished, plan, train
from torch_goat.experiments.models import ModelOptions
from torch_goat.files import is_locked


def planned(folder: Path, epochs: int = 3, **changes) -> PlannedRun:
    options = {"dataset": "betweenness-100", "training": TrainingOptions(epochs=epochs, patience=0)} | changes
    return PlannedRun(folder, Experiment(model=ModelOptions(name="gcn"), **options))


def write(folder: Path, epochs: dict[str, int]) -> list[PlannedRun]:
    """A plan with a run for every name."""
    runs = [planned(folder / name, count, seed=seed) for seed, (name, count) in enumerate(epochs.items())]
    plan.write_plan(folder / "plan.json", runs)
    return runs


@pytest.mark.usefixtures("quick_processes")
def test_a_plan_survives_ctrl_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, long = write(tmp_path, {"short": 5, "long": 400})
    arguments = [str(tmp_path / "plan.json"), "--device", "cpu"]
    process = start_in(tmp_path, plan.main, [*arguments, "--jobs", "1"])
    until((long.folder / "config.toml").exists)
    os.kill(process.pid or 0, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    lines = (tmp_path / "out").read_text().splitlines()
    assert [line.split(": ")[1].split(" ")[0] for line in lines[:3]] == ["started", "finished", "started"]
    assert "(1 of 2): mse " in lines[1]
    errors = (tmp_path / "err").read_text()
    assert errors == "worker: stopped; 1 of 2 runs are done, run the same plan again to continue.\n"
    assert (long.folder / "checkpoint.safetensors").exists()

    assert plan.main([*arguments, "--jobs", "2"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert f"{short.folder}: skipped (1 of 2): mse" in output.out
    assert f"{long.folder}: finished (2 of 2): mse" in output.out
    result, expected = finished(long.experiment, long.folder), train(long.experiment, tmp_path / "whole", device="cpu")
    assert result is not None
    assert result.metrics == expected.metrics


def test_without_the_plans_process_a_run_ends_with_a_checkpoint(tmp_path: Path) -> None:
    _, run = write(tmp_path, {"short": 1, "endless": 10**7})
    process = start_in(tmp_path, plan.main, [str(tmp_path / "plan.json"), "--device", "cpu", "--jobs", "1"], fork=False)
    until((run.folder / "config.toml").exists)
    process.kill()
    process.join()
    until(lambda: not is_locked(run.folder), seconds=2)  # the lock goes with the run's own process
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
        ('{"runs": []}', ["--jobs", "-1"], "jobs must be at least 0 and threads at least 1, got -1 and 1"),
        ('{"runs": []}', ["--threads", "0"], "got 0 and 0"),
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
    plan.write_plan(
        here / "plan.json", [PlannedRun(here / "a", experiment), PlannedRun(tmp_path / "b", Experiment("top2"))]
    )
    run, _ = json.loads((here / "plan.json").read_text())["runs"]
    assert (run["folder"], run["experiment"]["dataset"], run["experiment"]["seed"]) == ("a", "cora", 2)
    here.rename(there)
    first, second = plan.read_plan(there / "plan.json")
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
        plan.read_plan(tmp_path / "plan.json")


@pytest.mark.usefixtures("quick_processes")
def test_one_run_cannot_hold_up_the_others(tmp_path: Path) -> None:
    runs = [
        planned(tmp_path / "done"),
        planned(tmp_path / "killed", epochs=10**7),
        planned(tmp_path / "unknown", dataset="betweennes-100"),
        planned(tmp_path / "good", seed=1),
        planned(tmp_path / "done-with-another", seed=1),
    ]
    done = train(runs[0].experiment, runs[0].folder, device="cpu")
    train(runs[0].experiment, runs[4].folder, device="cpu")
    (tmp_path / "good").mkdir()
    (tmp_path / "good/error.txt").write_text("of an earlier try")
    seen: list[Event] = []

    def watch(event: Event) -> None:
        seen.append(event)
        if event.kind == "epoch" and event.number == 1:
            (child,) = multiprocessing.active_children()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)

    ends = plan.run_plan(runs, jobs=1, device="cpu", on_event=watch)
    assert [event.kind for event in ends] == ["skipped", "failed", "failed", "finished", "failed"]
    assert ends[0].result == done
    assert "was killed by SIGKILL (out of memory?)" in ends[1].message
    assert "did you mean 'betweenness-100'?" in ends[2].message
    assert ends[3].result == finished(runs[3].experiment, runs[3].folder)
    assert "another experiment" in ends[4].message
    for end in (ends[1], ends[2]):
        assert (runs[end.number].folder / "error.txt").read_text().splitlines()[0] == end.message
    assert not (tmp_path / "good/error.txt").exists()
    assert not (tmp_path / "done-with-another/error.txt").exists()
    assert [(event.kind, event.number) for event in seen if event.kind != "epoch"] == [
        ("skipped", 0), ("failed", 4), ("started", 1), ("failed", 1), ("started", 2), ("failed", 2), ("started", 3),
        ("finished", 3),
    ]  # fmt: skip
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("quick_processes")
def test_runs_that_an_event_adds_come_next(tmp_path: Path) -> None:
    runs = [planned(tmp_path / "a"), planned(tmp_path / "b", seed=1)]
    ended: list[str] = []

    def watch(event: Event) -> None:
        if event.kind in plan.ENDS:
            ended.append(runs[event.number].folder.name)
            if event.number == 0:
                runs.extend(planned(tmp_path / name, seed=2) for name in "cd")

    ends = plan.run_plan(runs, jobs=1, device="cpu", on_event=watch)
    assert ended == ["a", "c", "d", "b"]
    assert [end.result for end in ends] == [finished(run.experiment, run.folder) for run in runs]


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    runs = [planned(tmp_path / "a", seed=seed) for seed in (1, 2)]
    with pytest.raises(ValueError, match=f"2 runs for the folder {tmp_path}/a"):
        plan.run_plan(runs)
    assert plan.run_plan([]) == []


@pytest.mark.usefixtures("quick_processes")
def test_an_error_in_the_callback_ends_the_processes(tmp_path: Path) -> None:
    def broken(event: Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        plan.run_plan([planned(tmp_path / "a", epochs=10**7)], jobs=1, device="cpu", on_event=broken)
    assert multiprocessing.active_children() == []
