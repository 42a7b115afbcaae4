"""A process that has the library's own needs alone, as a machine where nothing can be installed."""

import os
import subprocess
import sys
from pathlib import Path

BLOCKED = ("typer", "rich", "optuna", "pandas", "numba", "matplotlib", "tensorboard", "sklearn", "networkx")


def start(folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts ``python -m MODULE`` where nothing else can be imported.

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
