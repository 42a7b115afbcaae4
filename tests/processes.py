"""Processes that start at once or can import nothing but the library's own needs, and ways to stop or hinder them."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

from torch_goat.files import locked

BLOCKED = ("typer", "rich", "optuna", "pandas", "numba", "matplotlib", "tensorboard", "sklearn", "networkx")
IMPORTED = ("pytest", "lightning_fabric", "torch_goat.app.cli.app", "torch_goat.experiments.search.tune")
multiprocessing.set_forkserver_preload(IMPORTED)


def server() -> ForkServerContext:
    """The server that forks processes. It sees no GPU: in a fork of a process that has asked for one, CUDA fails."""
    with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):
        forkserver.ensure_running()
    return multiprocessing.get_context("forkserver")


def start(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """Starts a process in which everything is imported already."""
    process = server().Process(target=work, args=arguments)
    process.start()
    return process


def start_in(folder: Path, work: Callable[..., object], *arguments: object, fork: bool = True) -> BaseProcess:
    """Starts a process in a folder, with its output in the files ``out`` and ``err`` there.

    It leads a process group, as in a terminal, and exits with what ``work`` returns. The processes of its pools are
    forked, and then only learn from a signal that it is gone, or whole new interpreters.
    """
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # of this test: the server has that of an earlier one
    return start(_work_in, folder, work, arguments, fork, dict(environment))


def _work_in(
    folder: Path, work: Callable[..., object], arguments: Sequence[object], fork: bool, environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server may ignore it
    os.setsid()
    os.chdir(folder)
    for number, name in enumerate(("out", "err"), start=1):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    if fork:
        context = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda kind=None: context
    sys.exit(work(*arguments))


def stop_after(number: int) -> Callable[[Any], None]:
    """An observer of a training that presses Ctrl-C after an epoch."""

    def observe(epoch: Any) -> None:
        if epoch.number == number:
            raise KeyboardInterrupt

    return observe


def kill_around(function: str, number: int) -> None:
    """From now on, this process kills itself around its n-th call of a function of ``os``: before it if n is odd."""
    call, count = getattr(os, function), 0

    def counting(*arguments: object) -> None:
        nonlocal count
        count += 1
        if count == number and count % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        call(*arguments)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, function, counting)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Inside, this process can write no more than so many bytes to a file, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def succeed(*processes: BaseProcess) -> None:
    """Waits for processes, none of which may fail."""
    for process in processes:
        process.join()
        assert process.exitcode == 0


def until(condition: Callable[[], object], process: BaseProcess | None = None, seconds: float = 900) -> None:
    """Waits for something that another process does, which must not end before."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.is_alive(), f"exit code {process.exitcode}"
        assert time.monotonic() < end
        time.sleep(0.01)


def endless(task: object, device: str, report: object) -> bool:
    """The task of a pool's process that is in the middle of an epoch or of a compilation; imports nothing slow."""
    with locked(Path("busy"), wait=False):
        for _ in range(10**9):  # some minutes
            pass
    return False


def start_alone(folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts ``python -m MODULE`` as on a machine where nothing can be installed.

    Args:
        folder: A folder of the test's own.
        module: The module.
        arguments: Its arguments.
    """
    blocked = folder / "blocked"
    blocked.mkdir(exist_ok=True)
    for name in BLOCKED:
        (blocked / f"{name}.py").write_text(f"raise ModuleNotFoundError('blocked', name={name!r})\n")
    path = os.pathsep.join([str(blocked), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
