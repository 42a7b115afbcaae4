"""Several processes of one training run, as ``torchrun`` starts them."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch

from torch_goat.settings import SettingsError

T = TypeVar("T")


class Processes(NamedTuple):
    """The processes of a run, and which of them this is."""

    rank: int = 0
    world: int = 1  # how many there are
    here: int = 1  # on this machine
    machines: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0


def processes() -> Processes:
    """What ``torchrun`` says of this process; alone if another way started it."""
    if not (torch.distributed.is_available() and torch.distributed.is_torchelastic_launched()):
        return Processes()
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
    found = Processes(*(int(os.environ[name]) for name in names))
    if found.here * found.machines != found.world:
        raise SettingsError(
            f"there are {found.world} processes on {found.machines} machines, {found.here} of them here; start as many "
            "on each machine (--nproc-per-node)."
        )
    return found


def led(fabric: Any, work: Callable[[], T]) -> T:
    """What the process that leads gets from some work that it does alone; an error of its is everybody's."""
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


def any_of(fabric: Any, wish: bool) -> bool:
    """Whether any process has a wish."""
    if fabric.world_size == 1:
        return wish
    return bool(fabric.all_reduce(torch.tensor(float(wish), device=fabric.device), reduce_op="sum") > 0)
