"""Split protocols: which nodes train, which validate and which test."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import index_to_mask

from torch_goat.data.datasets.cache import Graph
from torch_goat.data.datasets.raw import RawFile

Parts = tuple[Tensor, Tensor, Tensor]
"""The nodes for training, validation and testing, by number."""


@dataclass(frozen=True)
class Split:
    """A split protocol of a dataset.

    Args:
        sizes: How many nodes are for training, validation and testing.
        count: How many splits, or generated graphs with their split, there are.
    """

    sizes: tuple[int, int, int]
    count: int = 1


Draw = Callable[[Graph, int, list[Path]], Parts]
"""Gives the parts, from the graph, the index of the split and the paths of the files that the protocol needs."""


@dataclass(frozen=True, kw_only=True)
class DrawnSplit(Split):
    """A split protocol of a dataset that has one graph, with what else the protocol fixes.

    Args:
        draw: Gives the parts.
        files: Raw files that this protocol alone needs.
        row_normalized: Whether the features of a node are divided by their sum.
    """

    draw: Draw
    files: tuple[RawFile, ...] = ()
    row_normalized: bool = False


def masks(parts: Parts, num_nodes: int) -> dict[str, Tensor]:
    """``train_mask``, ``val_mask`` and ``test_mask``, each ``[N]``."""
    names = ("train_mask", "val_mask", "test_mask")
    return {name: index_to_mask(part, num_nodes) for name, part in zip(names, parts, strict=True)}


def generated_parts(num_nodes: int, generator: torch.Generator) -> Parts:
    """60/20/20 percent of the nodes, at random: the split of the paper's generated graphs."""
    order = torch.randperm(num_nodes, generator=generator)
    train, val = int(0.6 * num_nodes), int(0.8 * num_nodes)
    return order[:train], order[train:val], order[val:]


def shuffled_parts(num_nodes: int, train: float, val: float, seed: int) -> Parts:
    """The paper's random split: what scikit-learn's ``ShuffleSplit`` gives, used twice.

    The first pass takes a share of ``train + val`` of the nodes and leaves the rest for testing, the second takes
    ``train / (train + val)`` of that share for training. Sizes are rounded down, from the sum as floating point has it
    (``0.7 + 0.1`` is a little less than ``0.8``).
    """
    test, rest = _shuffled(num_nodes, train + val, seed)
    for_val, for_train = _shuffled(len(rest), train / (train + val), seed)
    return rest[for_train], rest[for_val], test


def _shuffled(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.from_numpy(np.random.RandomState(seed).permutation(count))
    left = count - math.floor(share * count)
    return order[:left], order[left:]


def shuffled(train: float, val: float) -> Draw:
    """Random splits by :func:`shuffled_parts`; the index is the seed."""
    return lambda graph, index, files: shuffled_parts(len(graph["y"]), train, val, index)


def given(graph: Graph, index: int, files: list[Path]) -> Parts:
    """The split that the dataset itself comes with, or the one of that index where it comes with several."""
    train, val, test = (
        graph[key].view(len(graph["y"]), -1)[:, index] for key in ("train_mask", "val_mask", "test_mask")
    )
    return train.nonzero().view(-1), val.nonzero().view(-1), test.nonzero().view(-1)


def rows(train: range, val: range, test: range) -> Draw:
    """Nodes by their place in the raw file."""
    parts = torch.tensor(train), torch.tensor(val), torch.tensor(test)
    return lambda graph, index, files: parts


def per_class(graph: Graph, index: int, files: list[Path]) -> Parts:
    """20 random nodes of every class for training, 500 of the others for validation and 1000 for testing.

    The split of index 0 is the one that "Classic GNNs are strong baselines" has drawn, with that study's seed.
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
    """The split that a file of node numbers fixes."""
    with np.load(files[0], allow_pickle=False) as arrays:
        train, val, test = (torch.from_numpy(arrays[key]).long() for key in ("train", "valid", "test"))
    return train, val, test
