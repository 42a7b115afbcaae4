import logging
import sys
from types import ModuleType

import pytest
import torch

from torch_goat.experiments.training.fabric import make_fabric


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:1", "auto:0", ""])
def test_unknown_devices_are_refused(device: str) -> None:
    with pytest.raises(ValueError, match="'auto', 'cpu', 'cuda' or 'cuda:1', got"):
        make_fabric(device, "32-true")


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=f"there is no device 'cuda:{torch.cuda.device_count()}'"):
        make_fabric(f"cuda:{torch.cuda.device_count()}", "32-true")


def test_half_precision_needs_a_gpu() -> None:
    with pytest.raises(ValueError, match="'16-mixed' needs a GPU"):
        make_fabric("cpu", "16-mixed")


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
