"""The wheel works without the clone: built, installed into a new environment, and used on tables there."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from torch_goat.experiments.own_graph import MODELS

ROOT = Path(__file__).parents[1]


class Environment:
    """A virtual environment that holds the wheel alone and borrows third-party packages from the test environment."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder, self.python = folder, folder / "bin/python"
        self.packages = Path(
            self.run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        )
        # torch-goat itself must come from the wheel. Without numba, which is optional, nothing is compiled: that saves
        # most of the time.
        for path in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
            for item in path.iterdir():
                if not any(name in item.name for name in ("torch_goat", ".pth", "numba", "llvmlite")):
                    (self.packages / item.name).symlink_to(item)
        pip = [sys.executable, "-m", "pip", "--python", self.python]
        self.run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)

    def run(self, *command: str | Path) -> str:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            command, cwd=self.folder, env={**variables, "COLUMNS": "160"}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def goat(self, *arguments: str) -> str:
        return self.run(self.folder / "bin/goat", *arguments)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("torch_goat", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    options = ["--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", *options, "--wheel-dir", dist, source], check=True, timeout=300)
    (wheel,) = dist.glob("torch_goat-*.whl")
    return Environment(tmp_path_factory.mktemp("environment"), wheel)


def test_the_wheel_holds_every_file_of_the_package(installed: Environment) -> None:
    def files(folder: Path) -> set[str]:
        found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(folder).as_posix() for path in found}

    imported = installed.run(installed.python, "-c", "import torch_goat; print(torch_goat.__file__)")
    package = Path(imported.strip()).parent
    assert package == installed.packages / "torch_goat"
    assert files(package) == files(ROOT / "torch_goat")
    assert {"py.typed", "app/report/page.html", "experiments/recipes/table1.toml"} <= files(package)


def test_the_demo_runs(installed: Environment) -> None:
    out = installed.goat("demo", "--epochs", "2")
    assert all(name in out for name in ("GOAT", "GAT", "GraphSAGE-LSTM"))


def test_tables_are_trained_on(installed: Environment) -> None:
    shutil.copytree(ROOT / "examples/village", installed.folder / "village")
    few = ("--minutes", "0", "--repeats", "1", "--set", "epochs=2", "--set", "patience=0")
    out = installed.goat("train", "village/nodes.csv", "village/edges.csv", "--target", "joins", "--out", "runs", *few)
    assert "goat predict" in out
    results = {path.parent.name: json.loads(path.read_text()) for path in installed.folder.glob("runs/*/result.json")}
    assert results.keys() == {f"{model}-0" for model in MODELS}
    assert all(0 <= result["metrics"]["test"]["accuracy"] <= 1 for result in results.values())
