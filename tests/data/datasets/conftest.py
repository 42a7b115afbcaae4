from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and no data folder, whatever the machine has."""
    monkeypatch.delenv("TORCH_GOAT_DATA", raising=False)
    monkeypatch.setenv("TORCH_GOAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
