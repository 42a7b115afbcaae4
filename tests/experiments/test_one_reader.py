"""Only ``experiments/run.py`` reads run folders, and only ``experiments/pool.py`` starts processes."""

import ast
from pathlib import Path

import torch_goat

ROOT = Path(torch_goat.__file__).parent
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
FILES = ("config.toml", "result.json", "metrics.csv", "schema.json", "model.safetensors")
NAMES = ("CONFIG", "RESULT", "CURVES", "SCHEMA", "WEIGHTS", "ORDERINGS")
POOLS = ("multiprocessing.", "concurrent.", "joblib.", "torch.multiprocessing.")


def texts(tree: ast.AST) -> set[str]:
    """All string constants except docstrings."""
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in docstrings}


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_files_of_a_run_are_named_once_and_written_by_training_only() -> None:
    assert [name for name, tree in TREES.items() if any(text.endswith(FILES) for text in texts(tree))] == [
        "experiments/run.py"
    ]
    names = {f"torch_goat.experiments.run.{name}" for name in NAMES}
    assert [name for name, tree in TREES.items() if imports(tree) & names] == ["experiments/training/train.py"]


def test_there_is_one_process_pool() -> None:
    found = set()
    for path, tree in TREES.items():
        names = imports(tree) - {"concurrent.futures.ThreadPoolExecutor"}
        found |= {path} if any(f"{name}.".startswith(POOLS) for name in names) else set()
    assert found == {"experiments/pool.py"}
