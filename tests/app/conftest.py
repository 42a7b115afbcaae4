from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.small_runs import run, small_graphs
from torch_goat.app.cli import app


class Ended(NamedTuple):
    """What a command printed."""

    out: str
    err: str


Goat = Callable[..., Ended]


@pytest.fixture
def goat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Goat:
    """Runs ``goat`` in this process, in an empty folder, and checks its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_GOAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCH_GOAT_DATA", raising=False)

    def call(*arguments: str, code: int = 0) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app.run(arguments)
        said = Ended(*capsys.readouterr())
        assert (ended.value.code or 0) == code, said.err
        return said

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with small_graphs():
        run(folder / "compared/goat/0", "deep", record_orderings=(0, 4))
        run(folder / "compared/goat/1", "deep", seed=1)
        run(folder / "compared/gcn", "gcn")
        run(folder / "number", "apart", "betweenness-100")
    return folder


@pytest.fixture(scope="module")
def runs(trained: Path) -> Iterator[Path]:
    """GOAT with two seeds and GCN, both in ``compared``, and a regression without self loops as ``number``."""
    with small_graphs():
        yield trained
