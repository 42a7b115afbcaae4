import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import torch_goat

PACKAGE = Path(torch_goat.__file__).parent
# The data's way. A part imports from parts to its left, and from nowhere else in the package.
LINE = ["files", "settings", "ops", "nn", "data", "experiments", "app"]


MOVED = {"stores", "tables", "training"}  # entry points that keep their old address


def imported(file: Path) -> set[str]:
    """The parts of the package that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("torch_goat.")}


@pytest.mark.parametrize("part", LINE)
def test_imports_go_leftwards(part: str) -> None:
    files = sorted((PACKAGE / part).rglob("*.py")) or [PACKAGE / f"{part}.py"]
    for file in files:
        right = imported(file) & set(LINE[LINE.index(part) + 1 :])
        assert not right, f"{file.name} imports {right}, which come after {part}"


def test_every_part_stands_on_the_line() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__", "_version", "__pycache__"} - MOVED == set(LINE)


def test_import_stays_light() -> None:
    heavy = ["pandas", "typer", "rich", "optuna", "matplotlib", "numba"]
    code = (
        "import sys, torch_geometric.nn; before = set(sys.modules); import torch_goat, torch_goat.nn; "
        f"print([name for name in {heavy} if name in sys.modules and name not in before])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["torch_goat", "torch_goat.data"])
def test_names_that_are_imported_late_are_listed(name: str) -> None:
    module = import_module(name)
    assert set(module.__all__) <= set(dir(module))
    assert all(hasattr(module, exported) for exported in module.__all__)


def test_the_stores_are_an_example() -> None:
    with pytest.raises(ImportError, match="examples/postgres/postgres_store"):
        import_module("torch_goat.stores")
    assert (PACKAGE.parent / "examples/postgres/postgres_store/__init__.py").is_file()
