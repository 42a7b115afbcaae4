"""When an epoch is recorded and when not, with a device that only notes what it is told; test_gpu.py has a real one."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torch_goat.experiments.training.epoch_graph import EpochGraph


class Device:
    """Notes when work runs, when it is recorded, and when a recording is launched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.mode: Any = 0
        self.broken = False
        self.generator = SimpleNamespace(clone_state=lambda: "state", graphsafe_set_state=self.seen.append)
        stream = SimpleNamespace(wait_stream=lambda other: None)
        for name, value in {
            "Stream": lambda device: stream,
            "current_stream": lambda device: stream,
            "stream": lambda stream: nullcontext(),
            "current_device": lambda: 0,
            "default_generators": [self.generator],
            "get_sync_debug_mode": lambda: self.mode,
            "set_sync_debug_mode": lambda mode: setattr(self, "mode", mode),
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: self.seen.append("launched")),
            "graph": self.recording,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    @contextmanager
    def recording(self, graph: object, stream: object) -> Iterator[None]:
        self.seen.append("recording")
        yield
        if self.broken:
            raise RuntimeError("operation not permitted when stream is capturing")

    def work(self, waits: bool) -> torch.Tensor:
        self.seen.append(f"ran {self.mode}")
        if waits and self.mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        return torch.ones(1)


@pytest.mark.parametrize(
    ("waits", "broken", "seen"),
    [
        (False, False, ["ran 0", "ran warn", "recording", "ran 0", "launched", "launched"]),
        (True, False, ["ran 0", "ran warn", "ran 0", "ran 0"]),  # is run as it is
        (False, True, ["ran 0", "ran warn", "recording", "ran 0", "state", "ran 0", "ran 0"]),  # is not tried again
    ],
)
def test_the_third_call_is_recorded_and_launched_from_then_on(
    monkeypatch: pytest.MonkeyPatch, waits: bool, broken: bool, seen: list[str]
) -> None:
    device, optimizer = Device(monkeypatch), torch.optim.Adam([torch.ones(1)])
    device.broken, epochs = broken, EpochGraph(optimizer, torch.device("cuda"))
    for _ in range(4):
        assert epochs(lambda: device.work(waits)).item() == 1
    assert device.seen == seen
    assert epochs.recorded == ("launched" in seen)
    assert optimizer.param_groups[0]["capturable"] == (not waits)


def test_work_with_another_number_is_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch)
    epochs = EpochGraph(torch.optim.Adam([torch.ones(1)]), torch.device("cuda"))
    for number in range(7):
        if number in (1, 4):
            epochs.forget()
        epochs(lambda: device.work(waits=False))
    recorded = ["recording", "ran 0", "launched", "launched"]
    assert device.seen == ["ran 0", "ran warn", *recorded, *recorded, "launched"]


def test_an_error_of_the_work_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch)
    epochs = EpochGraph(torch.optim.Adam([torch.ones(1)]), torch.device("cuda"))
    with pytest.raises(ValueError, match="of its own"):
        epochs(lambda: (_ for _ in ()).throw(ValueError("of its own")))
    assert device.mode == 0
