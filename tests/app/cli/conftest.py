from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from torch_goat.app.cli.app import run


class Ended(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Goat = Callable[..., Ended]


@pytest.fixture
def goat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Goat:
    """Runs ``goat`` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_GOAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCH_GOAT_DATA", raising=False)

    def call(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run(arguments)
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Ended(code or 0, *capsys.readouterr())

    return call
