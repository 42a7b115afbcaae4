import os
import random
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.app.conftest import Goat
from tests.experiments.recipes.recipes import TINY, write
from tests.processes import endless, start_in, until
from torch_goat.app.cli import app
from torch_goat.files import is_locked

RECIPE = TINY.replace("repetitions = 2", "repetitions = 3").replace("epochs = 3", "epochs = 100\npatience = 0")
RUNS = 6
CELLS = ["--only", "gcn,gat", "--datasets", "size"]
ARGUMENTS = ["reproduce", "tiny.toml", *CELLS, "--jobs", "1", "--device", "cpu", "--format", "csv"]


def begin(folder: Path) -> BaseProcess:
    folder.mkdir(exist_ok=True)
    write(folder, RECIPE)
    return start_in(folder, app.run, ARGUMENTS)


def results(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """When each result was written, and what it says."""
    files = folder.glob("results/tiny/*/*/*/result.json")
    return {file.relative_to(folder): (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def wait_for(process: BaseProcess, folder: Path, count: int) -> None:
    """Waits until so many runs are done and the next one is under way."""
    begun = "results/tiny/*/*/*/config.toml"
    until(lambda: len(results(folder)) >= count and len(list(folder.glob(begun))) > count, process)


def test_killed_or_stopped_at_any_moment_it_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    folder, moments = tmp_path / "disturbed", random.Random(4)
    for count, sign in ((1, signal.SIGKILL), (2, signal.SIGINT), (3, signal.SIGKILL)):
        process = begin(folder)
        wait_for(process, folder, count)
        time.sleep(moments.uniform(0, 0.1))
        os.killpg(process.pid or 0, sign)  # as a terminal does, to all processes
        process.join()
        if sign == signal.SIGINT:
            assert process.exitcode == 130
            assert (folder / "out").read_text() == ""
            err = (folder / "err").read_text()
            assert "Traceback" not in err
            assert err.splitlines()[-1].startswith("goat: stopped; ")
            assert "effective-size-100" in (folder / "results/tiny.csv").read_text()
        before = results(folder)
        assert count <= len(before) < RUNS
    process = begin(folder)
    process.join()
    assert process.exitcode == 0, (folder / "err").read_text()
    after = results(folder)
    assert len(after) == RUNS
    assert {file: after[file] for file in before} == before  # nothing that was done ran again
    # A line for each run of the last time.
    assert (folder / "err").read_text().count(" epochs, ") == RUNS - len(before)
    assert not list(folder.rglob(".*.part"))
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    write(undisturbed, RECIPE)
    command = [sys.executable, "-m", "torch_goat", *ARGUMENTS]
    out = subprocess.run(command, cwd=undisturbed, capture_output=True, text=True, timeout=900, check=True).stdout
    assert (folder / "out").read_text() == out
    whole, expected = (path / "results/tiny.csv" for path in (folder, undisturbed))
    assert whole.read_text() == expected.read_text()


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path, goat: Goat, quick_processes: None) -> None:
    """The worker ends as well, with a checkpoint."""
    arguments = ["tune", "betweenness-100", "--model", "mlp", "--trials", "2", "--set", "epochs=400"]
    process = start_in(tmp_path, app.run, [*arguments, "--out", "cut"], fork=False)
    until(Path("cut/trials/1/0/config.toml").exists, process)
    process.kill()
    process.join()
    until(lambda: not is_locked(Path("cut/trials/1")), seconds=2)
    assert Path("cut/trials/1/0/checkpoint.safetensors").exists()
    for folder in ("cut", "whole"):
        goat(*arguments, "--out", folder)
    assert Path("cut/trials.csv").read_text() == Path("whole/trials.csv").read_text()


def run_endless(arguments: list[str]) -> None:
    from torch_goat.experiments import plan
    from torch_goat.experiments.search import tune

    plan._run = tune._work = endless
    app.run(arguments)


@pytest.mark.parametrize("command", ["tune betweenness-100 --model gcn --trials 1", "reproduce tiny.toml --jobs 1"])
def test_without_their_parent_busy_workers_end_within_two_seconds(tmp_path: Path, command: str) -> None:
    write(tmp_path)
    process = start_in(tmp_path, run_endless, command.split(), fork=False)
    until(lambda: is_locked(tmp_path / "busy"), process)
    process.kill()
    process.join()
    until(lambda: not is_locked(tmp_path / "busy"), seconds=2)
