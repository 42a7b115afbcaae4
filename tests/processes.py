"""Processes that start at once, and such that can import nothing but the library's own needs."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

BLOCKED = ("typer", "rich", "optuna", "pandas", "numba", "matplotlib", "tensorboard", "sklearn", "networkx")
IMPORTED = ("pytest", "lightning_fabric", "torch_goat.app.cli.app", "torch_goat.experiments.search.tune")
multiprocessing.set_forkserver_preload(IMPORTED)


def start(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """Starts a process in which everything is imported already."""
    process = multiprocessing.get_context("forkserver").Process(target=work, args=arguments)
    process.start()
    return process


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
