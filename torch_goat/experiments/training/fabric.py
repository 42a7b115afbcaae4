"""Lightning Fabric, which moves a model and its optimiser to devices and a precision."""

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import torch

from torch_goat.experiments.training.processes import Processes, join, processes
from torch_goat.settings import SettingsError

_MODULES: Final = ("lightning_fabric", "lightning.fabric")  # the same code, in two packages


def make_fabric(device: str, precision: str) -> Any:
    """Makes a Fabric for one device, or for one device in each of the processes that ``torchrun`` started."""
    check_device(device)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind == "cpu" and precision == "16-mixed":
        raise SettingsError("precision '16-mixed' needs a GPU; on a CPU use 'bf16-mixed' or '32-true'.")
    devices: list[int] | int = [int(number)] if number else 1
    module, group = _fabric(), processes()
    with _quiet(logging.getLogger(module.__name__)):
        if group.world == 1:
            return module.Fabric(accelerator=kind, devices=devices, precision=precision)
        _check_group(group, kind, number)
        join("nccl" if kind == "cuda" else "gloo")
        fabric = module.Fabric(
            accelerator=kind, devices=group.here, num_nodes=group.machines, strategy="ddp", precision=precision
        )
        fabric.launch()
        return fabric


def _check_group(group: Processes, kind: str, number: str) -> None:
    """Raises an error for devices that several processes cannot share."""
    if number:
        raise SettingsError(f"the device 'cuda:{number}' is for one process, but there are {group.world}; use 'cuda'.")
    if kind == "cuda" and group.here > torch.cuda.device_count():
        raise SettingsError(
            f"there are {group.here} processes on this machine, but PyTorch sees {torch.cuda.device_count()} GPUs; "
            "start one process for each (--nproc-per-node), or use --device cpu."
        )


def check_device(device: str) -> None:
    """Raises an error for an unknown name of a device, or one that does not exist."""
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise SettingsError(f"the device must be 'auto', 'cpu', 'cuda' or 'cuda:1', got {device!r}.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise SettingsError(f"there is no device {device!r}: PyTorch sees {torch.cuda.device_count()} GPUs; use 'cpu'.")


def fabric_version() -> str:
    """The version of Lightning Fabric."""
    return str(_fabric().__version__)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Suppresses Fabric's remark about a precision that was asked for."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _fabric() -> ModuleType:
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ImportError("training needs Lightning Fabric; install it with: pip install 'torch-goat[train]'.")
