"""A run that is killed at any moment and called again comes to the same result, bit by bit."""

import csv
import json
import random
import signal
import time
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from tests.experiments.training.graphs import tiny_steps
from tests.processes import kill_around, start, succeed
from torch_goat.experiments import Experiment, TrainingOptions, train
from torch_goat.experiments.models import ModelOptions

EPOCHS = 24
EXPERIMENTS = {
    # Draws: dropout, the random orders of sage-lstm; state: batch norm, and what early stopping waits for.
    "sage-lstm": Experiment(
        "tiny",
        model=ModelOptions(name="sage-lstm", hidden_channels=4, norm="batch", backend="torch"),
        training=TrainingOptions(
            epochs=EPOCHS,
            patience=18,
            clip_norm=1.0,
            learning_rate=0.02,
            warmup=9,
            schedule="cosine",
            averaging=0.8,
            decay_recurrent=False,
        ),
    ),
    # Several trainings in one: its first gives the orderings that the second holds to.
    "goat-fixed": Experiment(
        "tiny",
        seed=5,
        model=ModelOptions(name="goat", hidden_channels=4, backend="torch"),
        training=TrainingOptions(epochs=EPOCHS // 2, patience=0, fixed_ordering=10, record_orderings=(0, 7)),
    ),
}


def work(name: str, folder: Path, kill_at: int = 0) -> None:
    """The life of a process that is to be killed, from outside or by itself around its n-th finished file."""
    torch.set_num_threads(1)
    kill_around("replace", kill_at)
    with tiny_steps():
        train(EXPERIMENTS[name], folder, device="cpu")


def outcome(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, but for its times."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == "metrics.csv":
            found[name] = [{**row, "seconds": ""} for row in csv.DictReader(path.read_text().splitlines())]
        elif path.name == "result.json":
            result = json.loads(path.read_text())
            found[name] = [result[key] for key in ("metrics", "best_epoch", "epochs", "stopped")]
        elif path.name == "digests.json":
            digests = json.loads(path.read_text()).items()
            found[name] = {file: sha256((path.parent / file).read_bytes()).hexdigest() == one for file, one in digests}
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    torch.set_num_threads(1)
    folders = {name: tmp_path_factory.mktemp("undisturbed") / name for name in EXPERIMENTS}
    with tiny_steps():
        for name, folder in folders.items():
            train(EXPERIMENTS[name], folder, device="cpu")
    return {name: outcome(folder) for name, folder in folders.items()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_killed_at_random_moments(tmp_path: Path, name: str, undisturbed: dict[str, dict[str, object]]) -> None:
    moments, kills = random.Random(name), 0
    while kills < 8:
        process = start(work, name, tmp_path)
        while process.is_alive() and not (tmp_path / ".lock").exists():
            time.sleep(0.001)
        process.join(moments.uniform(0, 0.25))
        process.kill()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
    assert kills > 1
    succeed(start(work, name, tmp_path))
    assert outcome(tmp_path) == undisturbed[name]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_killed_around_every_file(tmp_path: Path, name: str, undisturbed: dict[str, dict[str, object]]) -> None:
    # Files are written in threes at most, so that every kind of file is once the one that is cut off.
    starts, code = 0, None
    while code != 0:
        process = start(work, name, tmp_path, 1 + starts % 7)
        process.join()
        code, starts = process.exitcode, starts + 1
        assert code in (0, -signal.SIGKILL)
        assert starts < 200
    assert starts > 5
    succeed(start(work, name, tmp_path))  # finds the result and has nothing to do
    assert outcome(tmp_path) == undisturbed[name]
