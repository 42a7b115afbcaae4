import logging
import sys
from types import ModuleType

import pytest
import torch

from torch_goat.experiments.training.fabric import make_fabric

GPUS = torch.cuda.device_count()


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [
        *((device, "32-true", "'auto', 'cpu', 'cuda' or 'cuda:1', got") for device in ("gpu", "cuda:x", "cpu:1", "")),
        (f"cuda:{GPUS}", "32-true", f"there is no device 'cuda:{GPUS}'"),
        ("cpu", "16-mixed", "'16-mixed' needs a GPU"),
    ],
)
def test_what_cannot_be_had_is_refused(device: str, precision: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_fabric(device, precision)


def test_auto_takes_a_gpu_if_there_is_one() -> None:
    assert make_fabric("auto", "32-true").device.type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_without_fabric_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning_fabric", "lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'torch-goat\[train\]'"):
        make_fabric("cpu", "32-true")


def test_fabric_may_come_from_the_larger_package(monkeypatch: pytest.MonkeyPatch) -> None:
    larger = ModuleType("lightning.fabric")
    larger.Fabric = lambda **options: options  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.fabric", larger)
    assert make_fabric("cpu", "32-true") == {"accelerator": "cpu", "devices": 1, "precision": "32-true"}


def test_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("lightning_fabric")
    logger.addHandler(caplog.handler)
    try:
        make_fabric("cpu", "bf16-mixed")
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.records == []
