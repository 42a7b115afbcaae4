"""Split protocols: which nodes are for training, validation and testing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from torch_goat.data.datasets.cache import Graph
from torch_goat.data.datasets.raw import RawFile
from torch_goat.lazy import lazy_module

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_module("torch")
pyg_utils = lazy_module("torch_geometric.utils")

MASKS = ("train_mask", "val_mask", "test_mask")
Sizes = tuple[int, int, int]
Parts = tuple["Tensor", "Tensor", "Tensor"]
"""The nodes for training, validation and testing."""
Draw = Callable[[Graph, int, list[Path]], Parts]
"""Returns a split, given the graph, the index of the split and the paths of the protocol's own files."""


@dataclass(frozen=True)
class Split:
    """A split protocol of a dataset."""

    sizes: Sizes  # of the training, validation and test set; with several splits, of the first
    count: int = 1  # of splits, or of generated graphs with their splits
    draw: Draw | None = None  # None for generated graphs, which come with their split
    files: tuple[RawFile, ...] = ()  # raw files that only this protocol needs
    row_normalized: bool = False  # whether the features of each node are divided by their sum
    others: tuple[Sizes, ...] = ()  # the sizes of the second split, the third, ..., if they differ

    def sizes_of(self, index: int) -> Sizes:
        """The sizes of the split of an index."""
        return (self.sizes, *self.others)[index] if self.others else self.sizes


def masks(parts: Parts, num_nodes: int) -> dict[str, Tensor]:
    """``train_mask``, ``val_mask`` and ``test_mask``, each ``[N]``."""
    return {name: pyg_utils.index_to_mask(part, num_nodes) for name, part in zip(MASKS, parts, strict=True)}


def generated_parts(num_nodes: int, generator: torch.Generator) -> Parts:
    """A random split into 60/20/20 percent, as in the paper's synthetic graphs."""
    order = torch.randperm(num_nodes, generator=generator)
    train, val = int(0.6 * num_nodes), int(0.8 * num_nodes)
    return order[:train], order[train:val], order[val:]


def shuffled_parts(num_nodes: int, train: float, val: float, seed: int) -> Parts:
    """The paper's random split, equal to applying scikit-learn's ``ShuffleSplit`` twice.

    The first pass separates a share ``train + val`` of the nodes from the test nodes, the second takes
    ``train / (train + val)`` of that share for training. Sizes are rounded down from the floating-point sum
    (``0.7 + 0.1`` is slightly less than ``0.8``).
    """
    test, rest = _shuffled(num_nodes, train + val, seed)
    for_val, for_train = _shuffled(len(rest), train / (train + val), seed)
    return rest[for_train], rest[for_val], test


def _shuffled(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.from_numpy(np.random.RandomState(seed).permutation(count))
    left = count - math.floor(share * count)
    return order[:left], order[left:]


def shuffled(train: float, val: float) -> Draw:
    """Random splits by :func:`shuffled_parts`, seeded by the index."""
    return lambda graph, index, files: shuffled_parts(len(graph["y"]), train, val, index)


def given(graph: Graph, index: int, files: list[Path]) -> Parts:
    """The split that is part of the dataset, or the one of that index if there are several."""
    train, val, test = (graph[name].view(len(graph["y"]), -1)[:, index].nonzero().view(-1) for name in MASKS)
    return train, val, test


def rows(train: range, val: range, test: range) -> Draw:
    """Nodes by their position in the raw file."""
    return lambda graph, index, files: (torch.tensor(train), torch.tensor(val), torch.tensor(test))


def per_class(graph: Graph, index: int, files: list[Path]) -> Parts:
    """20 random nodes of every class for training, 500 of the others for validation and 1000 for testing.

    Index 0 reproduces the split of "Classic GNNs are strong baselines", with that study's seed.
    """
    generator = torch.Generator().manual_seed(123 + index)
    train, others = [], []
    for label in graph["y"].unique():
        nodes = (graph["y"] == label).nonzero().view(-1)
        nodes = nodes[torch.randperm(len(nodes), generator=generator)]
        train.append(nodes[:20])
        others.append(nodes[20:])
    rest = torch.cat(others)
    rest = rest[torch.randperm(len(rest), generator=generator)]
    return torch.cat(train), rest[:500], rest[500:1500]


def from_file(graph: Graph, index: int, files: list[Path]) -> Parts:
    """The split stored as node numbers in a file."""
    with np.load(files[0], allow_pickle=False) as arrays:
        train, val, test = (torch.from_numpy(arrays[key]).long() for key in ("train", "valid", "test"))
    return train, val, test
