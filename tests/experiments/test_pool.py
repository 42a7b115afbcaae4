import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from torch_goat.experiments import Event, Experiment, PlannedRun, TrainingOptions, finished, run_plan, train
from torch_goat.experiments.models import ModelOptions

GCN = ModelOptions(name="gcn")


def planned(folder: Path, epochs: int = 3, **changes) -> PlannedRun:
    training = TrainingOptions(epochs=epochs, patience=0)
    return PlannedRun(
        folder, Experiment(**{"dataset": "betweenness-100", "model": GCN, "training": training} | changes)
    )


@pytest.mark.usefixtures("quick_processes")
def test_one_run_cannot_hold_up_the_others(tmp_path: Path) -> None:
    plan = [
        planned(tmp_path / "done"),
        planned(tmp_path / "killed", epochs=10**7),
        planned(tmp_path / "unknown", dataset="betweennes-100"),
        planned(tmp_path / "good", seed=1),
        planned(tmp_path / "done-with-another", seed=1),
    ]
    done = train(plan[0].experiment, plan[0].folder, device="cpu")
    train(plan[0].experiment, plan[4].folder, device="cpu")
    (tmp_path / "good").mkdir()
    (tmp_path / "good/error.txt").write_text("of an earlier try")
    seen: list[Event] = []

    def watch(event: Event) -> None:
        seen.append(event)
        if event.kind == "epoch" and event.number == 1:
            (child,) = multiprocessing.active_children()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)

    ends = run_plan(plan, jobs=1, device="cpu", on_event=watch)
    assert [event.kind for event in ends] == ["skipped", "failed", "failed", "finished", "failed"]
    assert ends[0].result == done
    assert "was killed by SIGKILL (out of memory?)" in ends[1].message
    assert "did you mean 'betweenness-100'?" in ends[2].message
    assert ends[3].result == finished(plan[3].experiment, plan[3].folder)
    assert "another experiment" in ends[4].message
    for end in (ends[1], ends[2]):
        assert (plan[end.number].folder / "error.txt").read_text().splitlines()[0] == end.message
    assert not (tmp_path / "good/error.txt").exists()
    assert not (tmp_path / "done-with-another/error.txt").exists()
    assert [(event.kind, event.number) for event in seen if event.kind != "epoch"] == [
        ("skipped", 0), ("failed", 4), ("started", 1), ("failed", 1), ("started", 2), ("failed", 2), ("started", 3),
        ("finished", 3),
    ]  # fmt: skip
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("options", "text"), [({"jobs": -1}, "got -1 and 1"), ({"threads": 0}, "got 0 and 0")])
def test_impossible_numbers_are_refused(options: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run_plan([], **options)


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    plan = [planned(tmp_path / "a", seed=seed) for seed in (1, 2)]
    with pytest.raises(ValueError, match=f"2 runs for the folder {tmp_path}/a"):
        run_plan(plan)
    assert run_plan([]) == []


@pytest.mark.usefixtures("quick_processes")
def test_an_error_in_the_callback_ends_the_processes(tmp_path: Path) -> None:
    def broken(event: Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_plan([planned(tmp_path / "a", epochs=10**7)], jobs=1, device="cpu", on_event=broken)
    assert multiprocessing.active_children() == []
