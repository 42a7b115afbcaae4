"""The processes of a training run, started by ``torchrun``, and the Lightning Fabric that puts each on its device."""

import atexit
import importlib
import logging
import os
import time
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from torch_goat.lazy import lazy_module
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_module("torch")

T = TypeVar("T")


class Processes(NamedTuple):
    """The processes of a training run."""

    rank: int = 0  # of this process
    world: int = 1  # the number of processes
    here: int = 1  # the number of processes on this machine
    machines: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0


def started_by_torchrun() -> bool:
    """Whether ``torchrun`` started this process, as ``torch.distributed.is_torchelastic_launched`` says."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def processes() -> Processes:
    """The processes that ``torchrun`` started, or this one alone."""
    if not started_by_torchrun():
        return Processes()
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
    found = Processes(*(int(os.environ[name]) for name in names))
    if found.here * found.machines != found.world:
        raise SettingsError(
            f"there are {found.world} processes on {found.machines} machines, {found.here} of them here; start the "
            "same number on each machine (--nproc-per-node)."
        )
    return found


def join(backend: str, seconds: float = 600.0) -> None:
    """Joins the group of processes, which may take some seconds; each restart of ``torchrun`` makes a new group."""
    if torch.distributed.is_initialized():
        return
    store, rank, world = next(torch.distributed.rendezvous("env://"))
    name = meet(store, rank, world, seconds)
    own = torch.distributed.PrefixStore(name, store)
    torch.distributed.init_process_group(backend, store=own, rank=rank, world_size=world)
    atexit.register(leave)


def leave() -> None:
    """Ends the group's threads before the interpreter exits: a thread that outlives it aborts the process."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def meet(store: Any, rank: int, world: int, seconds: float) -> str:
    """Agrees with the other processes on a name for their group that no earlier group has.

    ``torchrun`` keeps its store over restarts, and with it the addresses of processes that are gone. So each process
    announces a random identity until the first process answers exactly that one.
    """
    end, me = time.monotonic() + seconds, uuid.uuid4().hex
    name = f"goat/group/{store.add('goat/groups', 1)}" if rank == 0 else ""
    missing = set(range(1, world)) if rank == 0 else {0}
    while missing:
        if time.monotonic() > end:
            raise RuntimeError(
                f"{len(missing)} of the {world} processes did not come within {seconds:.0f} s; see their output."
            )
        if rank == 0:
            for other in [other for other in missing if store.check([f"goat/here/{other}"])]:
                store.set(f"goat/answer/{store.get(f'goat/here/{other}').decode()}", name)
            missing = {other for other in missing if not store.check([f"{name}/{other}"])}
        else:
            store.set(f"goat/here/{rank}", me)
            if store.check([f"goat/answer/{me}"]):
                name = store.get(f"goat/answer/{me}").decode()
                store.set(f"{name}/{rank}", "joined")
                return name
        time.sleep(0.02)
    return name


def led(fabric: Any, work: Callable[[], T]) -> T:
    """Runs a function in the first process only and returns its result, or raises its error, in all."""
    if fabric.world_size == 1:
        return work()
    result, error = None, None
    if fabric.global_rank == 0:
        try:
            result = work()
        except Exception as reason:
            error = reason
    result, error = fabric.broadcast((result, error))
    if error is not None:
        raise error
    return result


def any_of(fabric: Any, flag: bool) -> bool:
    """Whether the flag is set in any process."""
    if fabric.world_size == 1:
        return flag
    return bool(fabric.all_reduce(torch.tensor(float(flag), device=fabric.device), reduce_op="sum") > 0)


def check_device(device: str) -> str:
    """Returns the name of a device; raises an error for an unknown one, or one that does not exist."""
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise SettingsError(f"the device must be 'auto', 'cpu', 'cuda' or 'cuda:1', got {device!r}.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise SettingsError(f"there is no device {device!r}: PyTorch sees {torch.cuda.device_count()} GPUs; use 'cpu'.")
    return device


def make_fabric(device: str, precision: str) -> Any:
    """Makes a Fabric for one device, or for one device in each of the processes that ``torchrun`` started."""
    check_device(device)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind == "cpu" and precision == "16-mixed":
        raise SettingsError("precision '16-mixed' needs a GPU; on a CPU use 'bf16-mixed' or '32-true'.")
    module, group = _fabric(), processes()
    options: dict[str, Any] = {"accelerator": kind, "devices": [int(number)] if number else 1, "precision": precision}
    if group.world > 1:
        if number:
            raise SettingsError(f"the device {device!r} is for one process, but there are {group.world}; use 'cuda'.")
        if kind == "cuda" and group.here > torch.cuda.device_count():
            raise SettingsError(
                f"there are {group.here} processes on this machine, but PyTorch sees {torch.cuda.device_count()} GPUs; "
                "start one process for each (--nproc-per-node), or use --device cpu."
            )
        join("nccl" if kind == "cuda" else "gloo")
        options |= {"devices": group.here, "num_nodes": group.machines, "strategy": "ddp"}
    # Fabric remarks on a precision that was asked for, in the name of PyTorch Lightning once that is imported.
    loggers = [logging.getLogger(name) for name in (module.__name__, "pytorch_lightning.utilities.rank_zero")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        fabric = module.Fabric(**options)
        if group.world > 1:
            fabric.launch()
        return fabric
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def fabric_version() -> str:
    """The version of Lightning Fabric."""
    return str(_fabric().__version__)


def _fabric() -> ModuleType:
    for name in ("lightning_fabric", "lightning.fabric"):  # the same code, in two packages
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ImportError("training needs Lightning Fabric; install it with: pip install 'torch-goat[train]'.")
