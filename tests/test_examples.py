"""The scripts in examples/ run, are short, and learn what they set out to learn."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch_geometric.data import Data

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = ("cora", "graph_classification", "hetero", "inspect_ordering", "mini_batches", "order_by_time")


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_is_tested_and_short() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SCRIPTS)
    for name in SCRIPTS:
        assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 60


def test_cora(monkeypatch: pytest.MonkeyPatch) -> None:
    """On communities in place of Cora."""
    data: Data = script("mini_batches").make_graph(nodes_per_class=60)
    data.val_mask = data.test_mask = ~data.train_mask
    monkeypatch.setattr("torch_geometric.datasets.Planetoid", lambda *_, **__: [data])
    assert script("cora").main("nowhere", epochs=40) > 0.6


def test_graph_classification() -> None:
    assert script("graph_classification").main(num_graphs=200, epochs=8) > 0.7


def test_hetero() -> None:
    assert script("hetero").main(num_users=200, epochs=25) > 0.8


def test_inspect_ordering(capsys: pytest.CaptureFixture[str]) -> None:
    learned, loaded = script("inspect_ordering").main(epochs=5)
    assert learned == loaded
    assert capsys.readouterr().out.count("test accuracy") == 2


def test_mini_batches() -> None:
    assert script("mini_batches").main(nodes_per_class=100, epochs=10) > 0.6


def test_order_by_time() -> None:
    given, learned = script("order_by_time").main(num_customers=600, epochs=40)
    assert given > 0.85
    assert learned < 0.6  # prices alone do not tell which purchase was the last


def test_the_notebook_runs_and_shows_its_output(tmp_path: Path) -> None:
    """In a fresh process, with fewer epochs."""
    shutil.copytree(EXAMPLES / "village", tmp_path / "village")
    text = (EXAMPLES / "tables.ipynb").read_text(encoding="utf-8")
    assert text.count(": 200}") == 1
    copied = tmp_path / "tables.ipynb"
    copied.write_text(text.replace(": 200}", ": 2}"), encoding="utf-8")
    command = [sys.executable, "-W", "error::FutureWarning", "-m", "tests.notebooks", copied]
    place = {"cwd": EXAMPLES.parent, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    subprocess.run(command, check=True, timeout=300, **place)  # type: ignore[call-overload]
    shown, ran = (
        [[one["output_type"] for one in cell.get("outputs", ())] for cell in json.loads(notebook)["cells"]]
        for notebook in (text, copied.read_text(encoding="utf-8"))
    )
    assert shown == ran
    assert sum(map(len, shown)) >= 10
    assert (tmp_path / "village.html").exists()
