"""Run folders: everything that :func:`~torch_goat.experiments.train` wrote, read back."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from safetensors import SafetensorError

from torch_goat import settings
from torch_goat.data import datasets
from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables import Schema, Tables, digest_tables, load_tables
from torch_goat.experiments import models
from torch_goat.experiments.named_graph import NamedGraph
from torch_goat.experiments.training.decisions import Decision
from torch_goat.experiments.training.options import Experiment, difference
from torch_goat.experiments.training.result import Result
from torch_goat.files import digest_of, is_locked, open_regular, replace_file
from torch_goat.lazy import lazy_module
from torch_goat.settings import check_known

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data

    from torch_goat.nn.ordering import Ordering
else:
    torch = lazy_module("torch")
loader = lazy_module("torch_goat.data.loader")

CONFIG: Final = "config.toml"  # the experiment
RESULT: Final = "result.json"  # written last: where it exists, the run is done
CURVES: Final = "metrics.csv"  # one line per epoch
WEIGHTS: Final = "model.safetensors"  # of the best epoch
CHECKPOINT: Final = "checkpoint.safetensors"  # while the run is not done
SCHEMA: Final = "schema.json"  # how the columns of user tables became features
ORDERINGS: Final = "orderings"  # a folder
DIGESTS: Final = "digests.json"  # the SHA-256 of each file above but the checkpoint, which has its own
ERROR: Final = "error.txt"  # why the last attempt failed
_RECORDED: Final = r"epoch-(\d+)-layer-(\d+)\.safetensors"
_MIB: Final = {CONFIG: 1, RESULT: 1, ERROR: 1, DIGESTS: 16, SCHEMA: 64, CURVES: 256}  # others: 64 GiB
NAMES: Final = "|".join([*map(re.escape, (*_MIB, WEIGHTS, CHECKPOINT)), _RECORDED])  # a pattern of all of them
UNREADABLE: Final = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, StopIteration,
    SafetensorError, csv.Error,
)  # fmt: skip


class RunError(RuntimeError):
    """A run folder that cannot be used."""


class Damaged(RunError):
    """A run folder with a file that cannot be read; ``what`` names the file and the problem."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"the run folder {folder} is damaged ({what}); train again in another folder.")
        self.folder, self.what = folder, what

    def __reduce__(self) -> tuple[type[Damaged], tuple[Path, str]]:
        return Damaged, (self.folder, self.what)


class Run:
    """A run folder. Each property reads its file on first access; nothing in the folder is executed.

    A folder without an experiment and a run that is not done where a finished one is needed raise :class:`RunError`; a
    file that cannot be read, or that is not the one that training wrote, raises :class:`Damaged`.

    Args:
        folder: A folder that :func:`~torch_goat.experiments.train` has written to.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._verified: set[str] = set()  # names of files

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def state(self) -> Literal["done", "running", "failed", "stopped"]:
        """Whether the run is done, in progress, or can be resumed after an error or an interruption."""
        if self._has(RESULT):
            return "done"
        if is_locked(self.folder):
            return "running"
        return "failed" if self._has(ERROR) else "stopped"

    @property
    def error(self) -> str:
        """Why the last attempt failed, in one line; empty if it did not fail."""
        if not self._has(ERROR):
            return ""
        with self._reading(ERROR) as path:
            return path.read_text(encoding="utf-8").strip().partition("\n")[0][:1000]

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment."""
        self._check_folder()
        with self._reading(CONFIG) as path:
            return settings.read(Experiment, path)

    @cached_property
    def result(self) -> Result:
        """The result of a finished run."""
        self._check_done()
        with self._reading(RESULT) as path:
            return Result.from_json(path.read_text(encoding="utf-8"))

    @cached_property
    def curves(self) -> dict[str, np.ndarray]:
        """Losses and metrics after each epoch, by column; of an unfinished run up to its last checkpoint."""
        expected = self.result.epochs if self.state == "done" else None
        if expected is None and not self._has(CURVES):
            return {}
        with self._reading(CURVES) as path, open(path, newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            lines = list(table)
            if expected is not None and len(lines) != expected:
                raise ValueError(f"it has {len(lines)} epochs, but {expected} were trained")
            return {key: np.array([float(line[key]) for line in lines]) for key in table.fieldnames or ()}

    @property
    def epochs(self) -> int:
        """The number of epochs in :attr:`result`, or of an unfinished run in :attr:`curves`."""
        return self.result.epochs if self.state == "done" else len(self.curves.get("epoch", ()))

    @cached_property
    def schema(self) -> Schema | None:
        """How the columns of user tables became features; ``None`` for other data."""
        if self.experiment.tables is None:
            return None
        with self._reading(SCHEMA) as path:
            return Schema.from_json(path.read_text(encoding="utf-8"), str(path))

    @cached_property
    def tables(self) -> Tables | None:
        """The tables of your graph: those next to the run folder if they have the same contents, as in a saved folder
        that was moved, or if those of the experiment are gone; ``None`` for other data."""
        tables = self.experiment.tables
        if tables is None:
            return None
        files = [str(self.folder.parent / Path(file).name) if file else "" for file in (tables.nodes, tables.edges)]
        near = replace(tables, nodes=files[0], edges=files[1])
        if not all(Path(file).is_file() for file in files if file):
            return tables
        return near if not Path(tables.nodes).exists() or digest_tables(*files) == tables.digest else tables

    @cached_property
    def network(self) -> models.Network:
        """The trained network with the weights of the best epoch, in evaluation mode, on the CPU."""
        from safetensors.torch import load_file

        experiment, schema = self.experiment, self.schema
        self._check_done()
        arrays = loader.open_graph(experiment.graph) if experiment.graph else None
        with self._reading(CONFIG):
            *widths, edge_dim = _widths(experiment.dataset, schema, arrays)
            degree = torch.tensor([0, 1])  # the degrees that pna layers scale by are stored with the weights
            network = models.Network(experiment.model, *widths, degree=degree, edge_dim=edge_dim)
        try:
            with self._reading(WEIGHTS) as path:
                network.load_state_dict(load_file(path))
        except Damaged:
            if arrays is not None:  # the arrays may have been replaced by others of another width
                loader.open_graph(experiment.graph, unchanged=experiment.graph_digest)
            raise
        return network.eval()

    @property
    def checkpoint(self) -> bytes | None:
        """The checkpoint of a run that is not done, if there is one."""
        if not self._has(CHECKPOINT):
            return None
        with self._reading(CHECKPOINT) as path:
            return path.read_bytes()

    @property
    def orderings(self) -> Iterator[tuple[int, int, Ordering]]:
        """The recorded orderings, read one at a time: epoch, GOAT layer (from 1) and ordering."""
        from torch_goat.nn.ordering import Ordering

        for epoch, layer in self._recorded():
            with self._reading(ordering_file(epoch, layer)) as path:
                ordering = Ordering.load(path)
            yield epoch, layer, ordering

    def graph(self, data_dir: str | Path | None = None) -> NamedGraph:
        """Loads the graph that the network was trained on, with the masks of its split; datasets from ``data_dir``."""
        one, schema, tables = self.experiment, self.schema, self.tables
        decision = self.result.decision if self.state == "done" else Decision()
        if tables is not None and schema is not None:
            own, units = load_tables(tables, one.index, schema), (schema.target_mean, schema.target_scale)
            return NamedGraph(own.data, own.ids, schema.classes, schema.target, *units, decision)
        if one.graph:
            from torch_geometric.data import Data

            from torch_goat.data.loader.csc import edges_of

            data = loader.open_graph(one.graph, unchanged=one.graph_digest)
            data = Data(**data.to_dict() | {"edge_index": edges_of(data)})
            classes = 0 if data.y.is_floating_point() else self.network.out_channels
        else:
            data = datasets.load(one.dataset, split=one.split, index=one.index, data_dir=data_dir)
            classes = DATASETS[one.dataset].classes
        ids, names = (tuple(map(str, range(count))) for count in (data.num_nodes, classes))
        return NamedGraph(data, ids, names, decision=decision)

    def accept(self) -> tuple[list[str], list[str]]:
        """Records new digests after a deliberate edit; returns the names of all files and of those that changed."""
        self._check_done()
        try:
            before = self._digests or {}
        except Damaged:
            before = {}
        names = [name for name in (CONFIG, SCHEMA, WEIGHTS, CURVES, RESULT) if self._has(name)]
        names += [ordering_file(*one) for one in self._recorded()]
        self._digests = now = {name: self._digest(name) for name in names}
        _ = self.experiment, self.result  # not if they cannot be read
        with usable(self.folder):
            replace_file(self.folder / DIGESTS, dump_digests(now))
        return names, sorted(name for name in before.keys() | now if before.get(name) != now.get(name))

    def _has(self, name: str) -> bool:
        return os.path.lexists(self.folder / name)  # also where it is something that cannot be read

    def _recorded(self) -> list[tuple[int, int]]:
        found = (re.fullmatch(_RECORDED, path.name) for path in (self.folder / ORDERINGS).glob("*"))
        return sorted((int(name[1]), int(name[2])) for name in found if name)

    def _check_folder(self) -> None:
        if not self._has(CONFIG):
            raise RunError(f"{self.folder} is not a run folder: it has no {CONFIG}; choose one that goat runs lists.")

    def _check_done(self) -> None:
        self._check_folder()
        if self.state != "done":
            raise RunError(f"the run in {self.folder} is not done: it has no {RESULT}; train it to the end first.")

    def _digest(self, name: str) -> str:
        with self._naming(name):
            return digest_of(self.folder / name, _most(name))

    @cached_property
    def _digests(self) -> dict[str, str] | None:
        """The digests of the files of a finished run; ``None`` if it has none."""
        if not self._has(DIGESTS):
            _note_unverified()
            return None
        with self._naming(DIGESTS), open_regular(self.folder / DIGESTS, most=_most(DIGESTS)) as file:
            return dict(json.load(file))

    @contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        """Checks that a file is the one that training wrote, and names it in the error if reading it fails."""
        with self._naming(name):
            open_regular(self.folder / name, most=_most(name)).close()  # raises for a pipe or an endless file
            if name not in (*self._verified, ERROR) and self.state == "done" and self._digests is not None:
                if self._digests.get(name) != self._digest(name):
                    raise ValueError(f"it differs from {DIGESTS}; goat runs --accept {self.folder} accepts an edit")
                self._verified.add(name)
            yield self.folder / name

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        path = self.folder / name
        try:
            yield
        except Damaged:
            raise
        except UNREADABLE as error:
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            reason = " ".join(text[:300].split()).removeprefix(f"{path}: ").rstrip(".") or type(error).__name__
            raise Damaged(self.folder, f"{name}: {reason}") from error


def find_runs(folder: str | Path) -> Iterator[Run]:
    """Finds the run folders below a folder at any depth, in the order of their names, numbers by value.

    Folders within a run folder belong to that run.
    """
    for place, below, files in os.walk(folder):
        below.sort(key=lambda name: (int(name), "") if name.isdecimal() else (1 << 62, name))
        if CONFIG in files:
            below.clear()
            yield Run(place)


def check_outside_runs(folder: Path) -> None:
    """Raises for a run folder, in which :func:`find_runs` finds no other runs."""
    with usable(folder):
        if (folder / CONFIG).exists():
            raise RunError(f"{folder} is a run, which hides runs in folders below; choose another folder.")


def finished(experiment: Experiment, folder: str | Path) -> Result | None:
    """Returns the result of an experiment if its run is done, else ``None``.

    A folder with another experiment raises :class:`RunError`, as does one with files of a run but no experiment, or
    with runs in folders below.
    """
    run = Run(folder)
    with usable(run.folder):
        if not (run.folder / CONFIG).exists():
            for name in (RESULT, WEIGHTS, CURVES, CHECKPOINT):
                if (run.folder / name).exists():
                    raise RunError(f"{folder} has a {name} but no {CONFIG}, so it is not a run folder; choose another.")
            for other in find_runs(folder):
                raise RunError(f"{folder} holds the run {other.folder}, which a run in it would hide; choose another.")
            return None
        try:
            there = run.experiment
        except Damaged as error:
            raise RunError(
                f"{folder} holds a damaged run or one of another version ({error.what}); choose another folder."
            ) from None
        if there != experiment:
            what = difference(there, experiment)
            raise RunError(f"{folder} holds another experiment ({what}); choose another folder.")
        if run.state != "done":
            return None
        try:
            return run.result
        except Damaged:
            path = run.folder / RESULT
            raise RunError(f"{path} is damaged or from another version; remove it to train again.") from None


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Names the run folder in the error if reading or writing it fails."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"the run folder {folder} cannot be used: {reason}; make room or choose another.") from error


def write_error(folder: Path, text: str) -> None:
    """Writes why a run failed."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / ERROR, text.strip() + "\n")


def ordering_file(epoch: int, layer: int) -> str:
    """Returns the name of the file with the ordering of a GOAT layer (from 1) after an epoch."""
    return f"{ORDERINGS}/epoch-{epoch}-layer-{layer}.safetensors"


def _most(name: str) -> int:
    """The largest size of a file that is read, in bytes."""
    return _MIB.get(name, 1 << 16) << 20


def dump_digests(digests: Mapping[str, str]) -> str:
    """The text of ``digests.json``."""
    return json.dumps(digests, indent=1) + "\n"


@cache  # once per process
def _note_unverified() -> None:
    logging.getLogger(__name__).warning(
        f"Note: some runs have no {DIGESTS}, which earlier versions did not write, so damage to their files may go "
        "unnoticed; goat runs --accept FOLDER records digests."
    )


def _widths(dataset: str, schema: Schema | None, arrays: Data | None) -> tuple[int, int, int]:
    """The numbers of features, outputs and edge features of a run's network."""
    if schema is not None:
        return schema.in_channels, schema.out_channels, schema.edge_dim
    if arrays is not None:
        from torch_goat.experiments.training.task import Task

        return arrays.num_features, Task(arrays, torch.device("cpu")).channels, arrays.num_edge_features
    check_known("dataset", dataset, DATASETS)
    known = DATASETS[dataset]
    return known.features, known.classes or 1, 0
