"""A search whose processes are killed at any moment loses nothing that is finished and runs nothing twice."""

import random
import signal
from pathlib import Path

import pytest
import torch

from tests.experiments.search.cases import events, run_logged, small_search, told
from tests.processes import kill_around, start, succeed, until
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.search.tune import run_trials
from torch_goat.experiments.training import train as run_module

TRIALS = 8
SEARCHES = {"tpe": small_search(epochs=2, indices=(0, 1)), "grid": small_search(epochs=40, method="grid")}


def work(name: str, folder: Path, kill_at: int = 0) -> None:
    """The life of a process that is to be killed, from outside or by itself around its n-th writing to the disk."""
    if name == "tpe":
        run_module.CHECKPOINT_SECONDS = 0.0  # after every epoch
    kill_around("fsync", kill_at)
    run_logged(Study(SEARCHES[name], folder, "", TRIALS))


def results(folder: Path) -> dict[Path, tuple[int, int]]:
    """Which runs are done, and by which writing."""
    found = {path: path.stat() for path in folder.glob("trials/*/*/result.json")}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[object, ...]]]:
    torch.set_num_threads(1)
    found = {}
    for name, search in SEARCHES.items():
        study = Study(search, tmp_path_factory.mktemp(name), "", TRIALS)
        run_trials(study, device="cpu")
        found[name] = told(study)
    return found


@pytest.mark.parametrize("name", SEARCHES)
def test_killed_around_its_writings(
    tmp_path: Path, name: str, undisturbed: dict[str, list[tuple[object, ...]]]
) -> None:
    moments, code, starts = random.Random(name), None, 0
    done: dict[Path, tuple[int, int]] = {}
    while code != 0:
        process = start(work, name, tmp_path, moments.randrange(3, 20))
        process.join()
        code, starts = process.exitcode, starts + 1
        assert code in (0, -signal.SIGKILL)
        assert done.items() <= results(tmp_path).items()
        done = results(tmp_path)
        assert starts < 100
    assert starts > 3
    assert told(Study(SEARCHES[name], tmp_path, "", TRIALS)) == undisturbed[name]


def test_two_processes_share_a_search_and_survive_each_other(
    tmp_path: Path, undisturbed: dict[str, list[tuple[object, ...]]]
) -> None:
    """All points of a grid are trained, each once, however many processes there are and however they end."""
    moments = random.Random(1)
    processes, killed = [start(work, "grid", tmp_path) for _ in range(2)], 0
    until(lambda: results(tmp_path))
    for _ in range(6):
        processes[0].join(moments.uniform(0, 0.2))
        processes[0].kill()
        processes[0].join()
        killed += processes[0].exitcode == -signal.SIGKILL
        processes = [processes[1], start(work, "grid", tmp_path)]
    assert killed > 1
    succeed(*processes)
    assert told(Study(SEARCHES["grid"], tmp_path, "", TRIALS)) == undisturbed["grid"]
    assert {count for name, count in events(tmp_path).items() if "finished" in name} == {1}
    assert len(list(tmp_path.glob("trials/*"))) == TRIALS


def test_two_processes_at_once_train_every_trial_once(tmp_path: Path) -> None:
    succeed(*[start(work, "tpe", tmp_path) for _ in range(2)])
    found = told(Study(SEARCHES["tpe"], tmp_path, "", TRIALS))
    assert [(number, state) for number, state, *_ in found] == [(number, "COMPLETE") for number in range(TRIALS)]
    assert len({str(point) for _, _, point, _ in found}) == TRIALS
    started = {name: count for name, count in events(tmp_path).items() if "started" in name}
    assert started == {f"started {number}": 1 for number in range(TRIALS)}
