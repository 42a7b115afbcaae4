"""The README's example runs as printed, on Cora and on a small graph in its place."""

import os
import re
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from tests.pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
DATA = os.environ.get("TORCH_GOAT_DATA")


def run_example(capsys: pytest.CaptureFixture[str], epochs: int = 100) -> float:
    assert "range(100)" in EXAMPLE
    torch.manual_seed(0)
    exec(EXAMPLE.replace("range(100)", f"range({epochs})"), {})
    (accuracy,) = re.findall(r"^Test accuracy: ([01]\.\d{3})$", capsys.readouterr().out, re.MULTILINE)
    return float(accuracy)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert len(EXAMPLE.splitlines()) <= 20
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
    assert all(f"\nmake {command} " in README for command in ("demo", "test"))


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a ring of seven communities in place of Cora."""
    y = torch.arange(140) // 20
    nodes = torch.arange(140)
    other = (nodes[:, None] + torch.tensor([1, 2, 3])) % 20 + 20 * y[:, None]  # three neighbours of the same class
    edge_index = torch.stack([other.flatten(), nodes.repeat_interleave(3)])
    train_mask = nodes % 2 == 0
    x = torch.nn.functional.one_hot(y, 7) + 0.5 * torch.randn(140, 7)
    data = Data(x=x, edge_index=edge_index, y=y, train_mask=train_mask, test_mask=~train_mask)
    monkeypatch.setattr("torch_geometric.datasets.Planetoid", lambda *_, **__: [data])
    assert run_example(capsys) > 0.9


@pytest.mark.skipif(not (DATA and Path(DATA, "Planetoid/Cora/raw").is_dir()), reason="TORCH_GOAT_DATA has no Cora")
def test_the_example_runs_on_cora(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/Planetoid").symlink_to(Path(str(DATA), "Planetoid").resolve())
    monkeypatch.chdir(tmp_path)
    assert run_example(capsys, epochs=30) > 0.5
