from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch.testing import assert_close as assert_equal

from torch_goat.data.datasets import DataError
from torch_goat.data.datasets.cache import Graph, cache_folder, cached


def graph(x: torch.Tensor) -> Graph:
    return {"x": x, "y": torch.arange(7), "edge_index": torch.tensor([[0, 1], [1, 2]]).t(), "train_mask": x[:, 0] > 0}


@pytest.mark.parametrize("x", [torch.randn(7, 5), -2.5 * torch.eye(1000)])
def test_what_is_kept_comes_back_equal_and_zeros_take_little_space(cache: Path, x: torch.Tensor) -> None:
    made = graph(x)
    cached("some", "key", lambda: made)
    assert_equal(cached("some", "key", pytest.fail), made, rtol=0, atol=0)
    assert (cache / "some/key.safetensors").stat().st_size < 40_000


def test_a_damaged_file_is_made_anew(cache: Path) -> None:
    made = graph(torch.randn(7, 5))
    cached("some", "key", lambda: made)
    file = cache / "some/key.safetensors"
    content = file.read_bytes()
    for damaged in (content[: len(content) // 2], save({"other": torch.ones(2)})):
        file.write_bytes(damaged)
        assert torch.equal(cached("some", "key", lambda: made)["x"], made["x"])
        assert file.read_bytes() == content


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_GOAT_CACHE", str(tmp_path / "file/below"))
    with pytest.raises(DataError, match=r"file/below/some cannot be written .* set TORCH_GOAT_CACHE"):
        cached("some", "key", lambda: graph(torch.randn(7, 5)))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_GOAT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/torch-goat")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/torch-goat")
    monkeypatch.setenv("TORCH_GOAT_CACHE", "/mine")
    assert cache_folder() == Path("/mine")
