"""Only ``experiments/run.py`` reads run folders."""

import ast
from pathlib import Path

import torch_goat

ROOT = Path(torch_goat.__file__).parent
FILES = ("config.toml", "result.json", "metrics.csv", "schema.json", "model.safetensors")
NAMES = {"CONFIG", "RESULT", "CURVES", "SCHEMA", "WEIGHTS", "ORDERINGS"}
WRITER = "experiments/training/train.py"


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    """The texts that stand alone, such as docstrings."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def test_the_files_of_a_run_are_named_once() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        free = _docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node not in free and str(node.value).endswith(FILES):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"experiments/run.py"}


def test_only_training_writes_them() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "torch_goat.experiments.run":
                names = NAMES & {name.name for name in node.names}
                found |= {path.relative_to(ROOT).as_posix()} if names else set()
    assert found == {WRITER}
