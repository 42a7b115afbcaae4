"""Several processes of one training run, as ``torchrun`` starts them."""

import atexit
import os
import time
import uuid
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


def join(backend: str, seconds: float = 600.0) -> None:
    """Joins the group of processes; each restart of ``torchrun`` makes another group.

    Args:
        backend: ``"nccl"`` or ``"gloo"``.
        seconds: How long to wait for the others.
    """
    if torch.distributed.is_initialized():
        return
    store, rank, world = next(torch.distributed.rendezvous("env://"))
    name = meet(store, rank, world, seconds)
    own = torch.distributed.PrefixStore(name, store)
    torch.distributed.init_process_group(backend, store=own, rank=rank, world_size=world)
    atexit.register(leave)


def leave() -> None:
    """Ends the group's threads before the interpreter does: one that outlives it aborts the process."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def meet(store: Any, rank: int, world: int, seconds: float) -> str:
    """A name for the group that these processes form, other than that of any group before.

    ``torchrun`` keeps its store over restarts, and with it the addresses of processes that are gone. So everyone says
    who it is until the first process has answered it by that name, and not one that was there before it.

    Args:
        store: What all processes write to and read from.
        rank: Which process this is.
        world: How many there are.
        seconds: How long to wait for the others.
    """
    end, me = time.monotonic() + seconds, uuid.uuid4().hex
    name = f"goat/group/{store.add('goat/groups', 1)}" if rank == 0 else ""
    missing = set(range(1, world)) if rank == 0 else {0}
    while missing:
        if time.monotonic() > end:
            raise RuntimeError(
                f"{len(missing)} of the {world} processes did not come within {seconds:.0f} s; see what they wrote."
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
