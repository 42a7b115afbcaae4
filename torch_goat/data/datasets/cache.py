"""Parsed graphs, cached as safetensors files that concurrent processes can share."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch_goat.files import locked, write_atomic

if TYPE_CHECKING:
    from torch import Tensor

Graph = dict[str, "Tensor"]
"""``x``, ``y``, ``edge_index`` and, if the raw files contain a split, ``train_mask``, ``val_mask``, ``test_mask``."""


class DataError(RuntimeError):
    """A raw file that is missing, damaged or unexpected, or a cache that cannot be written."""


def cache_folder() -> Path:
    """``TORCH_GOAT_CACHE``, or ``torch-goat`` in the user's cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("TORCH_GOAT_CACHE") or Path(caches, "torch-goat")).expanduser()


@contextmanager
def cache_lock(name: str) -> Iterator[Path]:
    """Locks the cache folder of a dataset for this process."""
    folder = cache_folder() / name
    try:
        with locked(folder, wait=True, what="cache of a dataset"):
            yield folder
    except OSError as error:
        raise DataError(
            f"the cache {folder} cannot be written ({error.strerror or error}); set TORCH_GOAT_CACHE to a writable "
            f"folder with enough space."
        ) from error


def cached(name: str, key: str, prepare: Callable[[], Graph]) -> Graph:
    """Returns the cached graph of a key, a digest of everything it depends on, or lets one process prepare it."""
    from safetensors.torch import save

    file = cache_folder() / name / f"{key}.safetensors"
    graph = _read(file)
    if graph is None:
        with cache_lock(name):
            graph = _read(file)  # another process may have written it in the meantime
            if graph is None:
                graph = prepare()
                write_atomic(file, save(_pack(graph)))
    return graph


def _read(file: Path) -> Graph | None:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        graph = load_file(file)
        if "x" not in graph:
            graph["x"] = torch.zeros(graph.pop("x.shape").tolist())
            graph["x"].view(-1)[graph.pop("x.position")] = graph.pop("x.value")
        return graph
    except (FileNotFoundError, SafetensorError, KeyError, RuntimeError):  # damaged files are recreated
        return None


def _pack(graph: Graph) -> Graph:
    """Stores sparse features as positions and values (Physics: 14 MB instead of 1.2 GB)."""
    import torch

    packed = {key: value.contiguous() for key, value in graph.items()}
    x = packed["x"].view(-1)
    position = x.nonzero().squeeze(1)
    if 3 * position.numel() <= x.numel():
        packed |= {"x.position": position, "x.value": x[position], "x.shape": torch.tensor(packed.pop("x").shape)}
    return packed
