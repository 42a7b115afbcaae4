from __future__ import annotations

import hashlib
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, SupportsIndex

from torch_goat.data.datasets.cache import DataError, Graph, cache_folder, cached
from torch_goat.data.datasets.raw import RawFile, check_whole, data_folder, find, obtain, published_digest
from torch_goat.data.datasets.readers import Reader
from torch_goat.data.datasets.splits import Split, masks
from torch_goat.lazy import lazy_module
from torch_goat.settings import SettingsError, nearest

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data
else:
    torch = lazy_module("torch")
pyg_data = lazy_module("torch_geometric.data")

FORMAT = 1  # of cached graphs; increase it to invalidate all caches


@dataclass(frozen=True)
class Dataset(ABC):
    """The metadata of a dataset."""

    name: str
    nodes: int
    edges: int  # as the authors count them; the expected number for random graphs
    features: int
    classes: int  # 0 for regression
    _: KW_ONLY
    protocols: Mapping[str, Split]  # by name; the first is the default
    edge_columns: int = 0  # of edge_index if different from edges, e.g. because it holds both directions
    note: str = ""  # what a user should know
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # protocols of another dataset, with its name
    raw: tuple[RawFile, ...] = ()  # the files that it is read from; none for generated data
    judged_by: str = ""  # the metric that decides which model is better; "" for accuracy or MSE

    @property
    def task(self) -> Literal["classification", "regression"]:
        """What is predicted for a node: a class or a real number."""
        return "classification" if self.classes else "regression"

    @property
    def metric(self) -> str:
        """The metric that decides which model is better."""
        return self.judged_by or ("accuracy" if self.classes else "mse")

    @property
    def default_split(self) -> str:
        """The protocol that is used if none is given."""
        return next(iter(self.protocols))

    @property
    def splits(self) -> dict[str, int]:
        """The number of splits of each protocol."""
        return {name: split.count for name, split in self.protocols.items()}

    def available(self, data_dir: str | Path | None = None) -> bool:
        """Whether the dataset can be loaded with its default split without a download."""
        return True

    def load(
        self, split: str = "", index: int = 0, data_dir: str | Path | None = None, *, normalized: bool = True
    ) -> Data:
        """Loads the graph with the masks of a split; see :func:`torch_goat.data.datasets.load`."""
        self.check(split, index)
        data = self._load(split or self.default_split, index, data_dir, normalized)
        if self.task == "classification":
            data.num_classes = self.classes
        return data

    def check(self, split: str = "", index: int = 0) -> None:
        """Raises an error if the split protocol does not exist or has no split of that index."""
        split = split or self.default_split
        if split in self.elsewhere:
            raise SettingsError(f"{self.name} has no split {split!r}: it is defined on {self.elsewhere[split]!r}.")
        if split not in self.protocols:
            raise SettingsError(f"{self.name} has no split {split!r}{nearest(split, self.protocols)}")
        count = self.protocols[split].count
        if isinstance(index, bool) or not isinstance(index, SupportsIndex) or not 0 <= index < count:
            known = f"between 0 and {count - 1}" if count > 1 else "0"
            raise SettingsError(f"index must be {known} for the split {split!r} of {self.name}, got {index!r}.")

    @abstractmethod
    def _load(self, split: str, index: int, data_dir: str | Path | None, normalized: bool) -> Data: ...


@dataclass(frozen=True, kw_only=True)
class Generated(Dataset):
    """A randomly generated dataset, determined by the index."""

    make: Callable[[int], Data]  # returns the graph of an index, with its masks

    def _load(self, split: str, index: int, data_dir: str | Path | None, normalized: bool) -> Data:
        return self.make(index)


@dataclass(frozen=True, kw_only=True)
class Real(Dataset):
    """A dataset that is parsed from raw files once, then read from the cache."""

    read: Reader  # parses a folder with the raw files

    def available(self, data_dir: str | Path | None = None) -> bool:
        folder = data_folder(data_dir)
        needed = (*self.raw, *self.protocols[self.default_split].files)
        return all(find(file, folder) is not None for file in needed)

    def _load(self, split: str, index: int, data_dir: str | Path | None, normalized: bool) -> Data:
        protocol, folder = self.protocols[split], data_folder(data_dir)
        assert protocol.draw is not None
        files = obtain(self.name, protocol.files, folder)
        for file, path in zip(protocol.files, files, strict=True):
            published_digest(file, path, path)
            check_whole(file, path, path)
        graph = self._graph(folder)
        parts = protocol.draw(graph, index, files)
        nodes = torch.cat(parts).unique()
        sizes = protocol.sizes_of(index)
        distinct = len(nodes) == sum(sizes) and int(nodes[0]) >= 0 and int(nodes[-1]) < self.nodes
        if not distinct or tuple(map(len, parts)) != sizes:
            raise DataError(
                f"the split {split!r} of {self.name} does not consist of {sizes} distinct nodes; "
                f"replace {_listed(files or obtain(self.name, self.raw, folder))}."
            )
        if protocol.row_normalized and normalized:
            total = graph["x"].sum(dim=1, keepdim=True)
            graph["x"].div_(torch.where(total == 0, 1.0, total))
        return pyg_data.Data(x=graph["x"], edge_index=graph["edge_index"], y=graph["y"], **masks(parts, self.nodes))

    def _graph(self, folder: Path | None) -> Graph:
        paths = obtain(self.name, self.raw, folder)
        digests = [published_digest(file, path, path) for file, path in zip(self.raw, paths, strict=True)]
        key = hashlib.sha256(f"{FORMAT}".encode())
        for file, path, found in zip(self.raw, paths, digests, strict=True):
            key.update(f"{file.path} {path.stat().st_size} {found}\n".encode())
        return cached(self.name, key.hexdigest()[:32], lambda: self._parse(paths, digests))

    def _parse(self, paths: list[Path], digests: list[str]) -> Graph:
        """Parses a private copy of the files, so that exactly the checked bytes are read."""
        with tempfile.TemporaryDirectory(dir=cache_folder() / self.name, prefix=".part-") as temporary:
            for file, path, found in zip(self.raw, paths, digests, strict=True):
                copy = Path(temporary) / file.path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                if published_digest(file, copy, path) != found:
                    raise DataError(f"{path} changed while it was being read; try again.")
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
                raise DataError(f"{_listed(paths)} contain {found} {what}, but {self.name} has {wanted}; replace them.")
        if int(edge_index.min()) < 0 or int(edge_index.max()) >= self.nodes:
            raise DataError(f"{_listed(paths)} contain edges of nodes that {self.name} does not have; replace them.")


def _listed(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more files"
