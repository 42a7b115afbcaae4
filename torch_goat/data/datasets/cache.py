"""Graphs that were read once, kept in safetensors; any number of processes may ask for the same one at once."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from torch_goat.data.datasets.errors import DataError
from torch_goat.files import locked, write_atomic

Graph = dict[str, Tensor]
"""``x``, ``y`` and ``edge_index``, and where the raw files give a split ``train_mask``, ``val_mask``, ``test_mask``."""


def cache_folder() -> Path:
    """``TORCH_GOAT_CACHE``, or ``torch-goat`` in the user's cache folder."""
    named = os.environ.get("TORCH_GOAT_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(named) if named else Path(caches, "torch-goat")).expanduser()


@contextmanager
def cache_lock(name: str) -> Iterator[Path]:
    """The part of the cache that belongs to a dataset, held for this process."""
    folder = cache_folder() / name
    try:
        with locked(folder, wait=True, what="cache of a dataset"):
            yield folder
    except OSError as error:
        raise DataError(
            f"the cache {folder} cannot be written ({error.strerror or error}); "
            f"set TORCH_GOAT_CACHE to a folder with space that can."
        ) from error


def cached(name: str, key: str, prepare: Callable[[], Graph]) -> Graph:
    """The graph that was kept under a key, or else the one that ``prepare`` gives, which is kept.

    Args:
        name: The dataset.
        key: Stands for everything that the graph depends on.
        prepare: Makes the graph; called by one process at a time.
    """
    file = cache_folder() / name / f"{key}.safetensors"
    graph = _read(file)
    if graph is None:
        with cache_lock(name):
            graph = _read(file)  # another process may have made it meanwhile
            if graph is None:
                graph = prepare()
                write_atomic(file, save(_pack(graph)))
    return graph


def _read(file: Path) -> Graph | None:
    try:
        return _unpack(load_file(file))
    except (FileNotFoundError, SafetensorError, KeyError, RuntimeError):  # a damaged file is made anew
        return None


def _pack(graph: Graph) -> Graph:
    """With the positions and values of the features alone, where most are zero (Physics: 14 MB, not 1.2 GB)."""
    x = graph["x"]
    position = x.flatten().nonzero().squeeze(1)
    if 3 * position.numel() > x.numel():
        return {key: value.contiguous() for key, value in graph.items()}
    rest = {key: value.contiguous() for key, value in graph.items() if key != "x"}
    return rest | {"x.position": position, "x.value": x.flatten()[position], "x.shape": torch.tensor(x.shape)}


def _unpack(packed: Graph) -> Graph:
    if "x" in packed:
        return packed
    x = torch.zeros(packed.pop("x.shape").tolist())
    x.view(-1)[packed.pop("x.position")] = packed.pop("x.value")
    return packed | {"x": x}
