import hashlib
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, SupportsIndex

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.data.datasets.cache import Graph, cache_folder, cached
from torch_goat.data.datasets.errors import DataError
from torch_goat.data.datasets.raw import RawFile, check_published, check_whole, data_folder, digest, find, obtain
from torch_goat.data.datasets.readers import Reader
from torch_goat.data.datasets.splits import DrawnSplit, Parts, Split, masks
from torch_goat.settings import SettingsError, nearest

FORMAT = 1  # of the cached graphs; another number makes all of them anew


@dataclass(frozen=True, kw_only=True)
class Dataset(ABC):
    """What is known of a dataset without loading it.

    Args:
        name: Its name in the registry.
        nodes: The number of nodes.
        edges: The number of edges as the data's authors count them; of a random graph, as expected.
        features: The number of features of a node.
        classes: The number of classes; 0 for regression.
        protocols: The split protocols by name; the first one is taken if none is named.
        edge_columns: The number of columns of ``edge_index``, if it is another: an undirected edge stands there twice.
        note: What a user should know.
        elsewhere: Protocols that are defined on another dataset, with the name of that one.
    """

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    protocols: Mapping[str, Split]
    edge_columns: int = 0
    note: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def task(self) -> Literal["classification", "regression"]:
        """What is predicted for a node: a class or a real number."""
        return "classification" if self.classes else "regression"

    @property
    def default_split(self) -> str:
        """The protocol that is taken if none is named."""
        return next(iter(self.protocols))

    @property
    def splits(self) -> dict[str, int]:
        """How many splits every protocol has."""
        return {name: split.count for name, split in self.protocols.items()}

    @property
    def files(self) -> tuple[str, ...]:
        """The raw files below the data folder; none where the data are generated."""
        return ()

    def available(self, data_dir: str | Path | None = None) -> bool:
        """Whether it loads without a download, with its default split."""
        return True

    def load(
        self, split: str = "", index: int = 0, data_dir: str | Path | None = None, *, normalized: bool = True
    ) -> Data:
        """The graph with the masks of one split; see :func:`torch_goat.data.datasets.load`."""
        self.check(split, index)
        data = self._load(split or self.default_split, index, data_dir, normalized)
        if self.task == "classification":
            data.num_classes = self.classes
        return data

    def check(self, split: str = "", index: int = 0) -> None:
        """Refuses a protocol that is not there, and one that has no split of that index."""
        split = split or self.default_split
        if split in self.elsewhere:
            raise SettingsError(f"{self.name} has no split {split!r}: it is defined on {self.elsewhere[split]!r}.")
        if split not in self.protocols:
            raise SettingsError(f"{self.name} has no split {split!r}{nearest(split, self.protocols)}")
        count = self.protocols[split].count
        if isinstance(index, bool) or not isinstance(index, SupportsIndex):
            raise SettingsError(f"index = {index!r} is no number of a graph or split; give a whole number from 0.")
        if not 0 <= index < count:
            known = f"indices 0 to {count - 1}" if count > 1 else "index 0"
            raise SettingsError(f"{self.name} has {known} under the split {split!r}, got {index}.")

    @abstractmethod
    def _load(self, split: str, index: int, data_dir: str | Path | None, normalized: bool) -> Data:
        """The graph with the masks of a split that is there."""


@dataclass(frozen=True, kw_only=True)
class Generated(Dataset):
    """A dataset that is drawn at random, the same for the same index everywhere.

    Args:
        make: Gives the graph of an index, with its masks.
    """

    make: Callable[[int], Data]

    def _load(self, split: str, index: int, data_dir: str | Path | None, normalized: bool) -> Data:
        return self.make(index)


@dataclass(frozen=True, kw_only=True)
class Real(Dataset):
    """A dataset that is read from raw files, once; later it comes from the cache.

    Args:
        raw: The raw files.
        read: Gives the graph from a folder with these files.
    """

    protocols: Mapping[str, DrawnSplit]
    raw: tuple[RawFile, ...]
    read: Reader

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.raw)

    def available(self, data_dir: str | Path | None = None) -> bool:
        folder = data_folder(data_dir)
        needed = (*self.raw, *self.protocols[self.default_split].files)
        return all(find(file, folder) is not None for file in needed)

    def _load(self, split: str, index: int, data_dir: str | Path | None, normalized: bool) -> Data:
        protocol, folder = self.protocols[split], data_folder(data_dir)
        files = obtain(self.name, protocol.files, folder)
        for file, path in zip(protocol.files, files, strict=True):
            check_published(file, digest(path), path)
            check_whole(file, path, path)
        graph = self._graph(folder)
        parts = protocol.draw(graph, index, files)
        if not self._fits(parts, protocol.sizes):
            raise DataError(
                f"the split {split!r} of {self.name} does not give {protocol.sizes} different nodes; "
                f"replace {_listed(files or obtain(self.name, self.raw, folder))}."
            )
        if protocol.row_normalized and normalized:
            normalize_rows_(graph["x"])
        return Data(x=graph["x"], edge_index=graph["edge_index"], y=graph["y"], **masks(parts, self.nodes))

    def _fits(self, parts: Parts, sizes: tuple[int, int, int]) -> bool:
        nodes = torch.cat(parts).unique()
        inside = bool((nodes >= 0).all() and (nodes < self.nodes).all())
        return tuple(map(len, parts)) == sizes and len(nodes) == sum(sizes) and inside

    def _graph(self, folder: Path | None) -> Graph:
        paths = obtain(self.name, self.raw, folder)
        digests = [digest(path) for path in paths]
        key = hashlib.sha256(f"{FORMAT}".encode())
        for file, path, found in zip(self.raw, paths, digests, strict=True):
            check_published(file, found, path)
            key.update(f"{file.path} {path.stat().st_size} {found}\n".encode())
        return cached(self.name, key.hexdigest()[:32], lambda: self._prepare(paths, digests))

    def _prepare(self, paths: list[Path], digests: list[str]) -> Graph:
        """Reads a private copy of the files: what was checked is what is read, and nobody's folder is written to."""
        with tempfile.TemporaryDirectory(dir=cache_folder() / self.name, prefix=".part-") as temporary:
            for file, path, found in zip(self.raw, paths, digests, strict=True):
                copy = Path(temporary) / file.path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                if digest(copy) != found:
                    raise DataError(f"{path} changed while it was read; try again when nothing writes to it.")
                check_whole(file, copy, path)
            try:
                graph = self.read(Path(temporary))
            except ModuleNotFoundError as error:
                raise DataError(f"reading {self.name} needs {error.name}; install torch-goat[train].") from error
            except Exception as error:
                raise DataError(
                    f"{self.name} cannot be read from {_listed(paths)} ({error!r}); replace them."
                ) from error
        self._check(graph, paths)
        return graph

    def _check(self, graph: Graph, paths: list[Path]) -> None:
        x, y, edge_index = graph["x"], graph["y"], graph["edge_index"]
        expected = {
            "rows of features": (self.nodes, x.size(0)),
            "labels": (self.nodes, y.size(0)),
            "edges": (self.edge_columns or self.edges, edge_index.size(1)),
            "features": (self.features, x.size(1)),
            "classes": (self.classes, int(y.max()) + 1),
        }
        for what, (wanted, found) in expected.items():
            if wanted != found:
                raise DataError(f"{_listed(paths)} hold {found} {what}, but {self.name} has {wanted}; replace them.")
        if int(edge_index.min()) < 0 or int(edge_index.max()) >= self.nodes:
            raise DataError(f"{_listed(paths)} have edges between nodes that {self.name} does not have; replace them.")


def normalize_rows_(x: Tensor) -> None:
    """Divides the features of every node by their sum, in place; a node whose sum is zero keeps them."""
    total = x.sum(dim=1, keepdim=True)
    x.div_(torch.where(total == 0, 1.0, total))


def _listed(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more files"
