"""Small graphs are trained on one thread, whoever asks, and the caller's threads stay as they were."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import torch_goat
from tests.app.conftest import Goat
from tests.data.tables.files import write
from torch_goat.experiments.training import threads
from torch_goat.experiments.training.task import Task

TABLES = ("nodes.csv", "edges.csv")  # 10 edges, in both directions
COMMAND = ["train", *TABLES, "--target", "label", "--set", "epochs=2", "--device", "cpu"]
HOW = {"options": {"epochs": 2}, "device": "cpu"}
WAYS: dict[str, Callable[[Goat], object]] = {
    "goat train": lambda goat: goat(*COMMAND, "--repeats", "1", "--minutes", "0"),
    "goat train --model": lambda goat: goat(*COMMAND, "--model", "gcn"),
    "compare": lambda goat: torch_goat.compare(*TABLES, target="label", repeats=1, minutes=0, **HOW),
    "fit": lambda goat: torch_goat.NodeClassifier("gcn", **HOW).fit(*TABLES, target="label"),
}


@pytest.fixture
def used(goat: Goat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The numbers of threads with which epochs are measured, in trials and in runs; this process has two."""
    write(tmp_path)
    found: set[int] = set()
    measure, before = Task.measure, torch.get_num_threads()

    def watched(task: Task, out: torch.Tensor) -> torch.Tensor:
        found.add(torch.get_num_threads())
        return measure(task, out)

    monkeypatch.setattr(Task, "measure", watched)
    torch.set_num_threads(2)
    yield found
    torch.set_num_threads(before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("largest", "expected"), [(20, 1), (19, 2)])
def test_a_small_graph_is_trained_on_one_thread(
    goat: Goat, used: set[int], monkeypatch: pytest.MonkeyPatch, way: str, largest: int, expected: int
) -> None:
    monkeypatch.setattr(threads, "SMALL", largest)
    WAYS[way](goat)
    assert used == {expected}
    assert torch.get_num_threads() == 2


def test_the_threads_come_back_after_an_error(used: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(task: Task, out: torch.Tensor) -> torch.Tensor:
        used.add(torch.get_num_threads())
        raise ZeroDivisionError

    monkeypatch.setattr(Task, "measure", broken)
    for way in ("fit", "compare"):
        with pytest.raises(ZeroDivisionError):
            WAYS[way](None)  # type: ignore[arg-type]
        assert torch.get_num_threads() == 2
    assert used == {1}
