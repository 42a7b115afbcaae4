import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.experiments.recipes.recipes import TINY

RECIPE = TINY.replace("repetitions = 2", "repetitions = 3").replace("epochs = 3", "epochs = 100\npatience = 0")
RUNS = 6


def start(folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    (folder / "tiny.toml").write_text(RECIPE)
    cells = ["--only", "gcn,gat", "--datasets", "size"]
    options = ["--jobs", "1", "--device", "cpu", "--format", "csv"]
    return subprocess.Popen(
        [sys.executable, "-m", "torch_goat", "reproduce", "tiny.toml", *cells, *options],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def results(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """When each result was written, and what it says."""
    files = folder.glob("results/tiny/*/*/*/result.json")
    return {file.relative_to(folder): (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def wait_for(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Waits until so many runs are done and the next one is under way."""
    end = time.monotonic() + 900
    while len(results(folder)) < count or len(list(folder.glob("results/tiny/*/*/*/config.toml"))) <= count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.01)


def finish(folder: Path) -> tuple[str, str]:
    process = start(folder)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return out, err


def test_killed_or_stopped_at_any_moment_it_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    folder, moments = tmp_path / "disturbed", random.Random(4)
    for count, sign in ((1, signal.SIGKILL), (2, signal.SIGINT), (3, signal.SIGKILL)):
        process = start(folder)
        wait_for(process, folder, count)
        time.sleep(moments.uniform(0, 0.1))
        os.killpg(process.pid, sign)  # as a terminal does, to all processes
        out, err = process.communicate(timeout=900)
        if sign == signal.SIGINT:
            assert process.returncode == 130
            assert out == ""
            assert "Traceback" not in err
            assert err.splitlines()[-1].startswith("goat: stopped; ")
            assert "effective-size-100" in (folder / "results/tiny.csv").read_text()
        before = results(folder)
        assert count <= len(before) < RUNS
    out, err = finish(folder)
    after = results(folder)
    assert len(after) == RUNS
    assert {file: after[file] for file in before} == before  # nothing that was done ran again
    assert err.count(" epochs, ") == RUNS - len(before)  # a line for each run of the last time
    assert not list(folder.rglob(".*.part"))
    undisturbed, _ = finish(tmp_path / "undisturbed")
    assert out == undisturbed
    whole, expected = (path / "results/tiny.csv" for path in (folder, tmp_path / "undisturbed"))
    assert whole.read_text() == expected.read_text()
