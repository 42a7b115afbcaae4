"""The layout of the package, and the names and entry points that must stay."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import torch_goat
from tests.experiments.test_one_reader import imports

PACKAGE = Path(torch_goat.__file__).parent
LAYERS = ["files", "lazy", "settings", "ops", "nn", "data", "experiments", "app"]  # each imports only from earlier ones
OLD_ADDRESSES = {"stores", "tables", "training"}


def imported(file: Path) -> set[str]:
    """The parts of the package that a file imports."""
    return {name.split(".")[1] for name in imports(ast.parse(file.read_text())) if name.startswith("torch_goat.")}


@pytest.mark.parametrize("part", LAYERS)
def test_imports_go_downwards(part: str) -> None:
    files = sorted((PACKAGE / part).rglob("*.py")) or [PACKAGE / f"{part}.py"]
    for file in files:
        above = imported(file) & set(LAYERS[LAYERS.index(part) + 1 :])
        assert not above, f"{file.name} imports {above}, which are above {part}"


def test_every_part_has_a_layer() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__", "_version", "__pycache__"} - OLD_ADDRESSES == set(LAYERS)
    assert not [path for path in PACKAGE.rglob("*.py") if path.stem in ("utils", "helpers", "misc")]


def test_every_package_has_a_docstring_of_one_sentence() -> None:
    for file in PACKAGE.rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
        sentence = docstring.split("\n\n")[0]
        assert sentence.endswith("."), f"{file} needs a docstring"
        assert ". " not in sentence.replace("Eq. ", ""), f"the docstring of {file} has more than one sentence"


def test_import_stays_light() -> None:
    kernels = [f"torch_goat.ops.ragged_rnn.{name}" for name in ("cpu.simd", "triton.launch")]
    heavy = ["pandas", "sklearn", "typer", "rich", "optuna", "matplotlib", "numba", *kernels]
    code = (
        "import sys, torch_goat.experiments.pool; print('torch' in sys.modules); "  # its processes watch their parent
        "import torch_geometric.nn; before = set(sys.modules); import torch_goat, torch_goat.nn; "
        f"print([name for name in {heavy} if name in sys.modules and name not in before])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout.split() == ["False", "[]"]


@pytest.mark.parametrize("name", ["torch_goat", "torch_goat.data", "torch_goat.experiments"])
def test_names_that_are_imported_late_are_listed(name: str) -> None:
    module = import_module(name)
    assert set(module.__all__) <= set(dir(module))
    assert all(hasattr(module, exported) for exported in module.__all__)


@pytest.mark.parametrize(("package", "home"), [("training", "plan"), ("tables", "tables.run_table")])
def test_the_workers_have_their_old_addresses(package: str, home: str) -> None:
    worker = import_module(f"torch_goat.{package}.worker")
    assert worker.main is import_module(f"torch_goat.experiments.{home}").main


def test_the_stores_name_their_new_place() -> None:
    with pytest.raises(ImportError, match="examples/postgres/postgres_store"):
        import_module("torch_goat.stores")
    assert (PACKAGE.parent / "examples/postgres/postgres_store/__init__.py").is_file()
