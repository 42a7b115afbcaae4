"""Processes that start at once, and such that can import nothing but the library's own needs."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
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
