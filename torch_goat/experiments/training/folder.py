"""A run is a folder: what is in it, and who may write to it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError

from torch_goat import settings
from torch_goat.experiments.training.options import Experiment
from torch_goat.experiments.training.result import Result
from torch_goat.files import locked

CONFIG: Final = "config.toml"
CHECKPOINT: Final = "checkpoint.safetensors"
CURVES: Final = "metrics.csv"
WEIGHTS: Final = "model.safetensors"
RESULT: Final = "result.json"
SCHEMA: Final = "schema.json"  # of a graph of one's own: what the columns of its tables are
ORDERINGS: Final = "orderings"  # a folder
ERROR: Final = "error.txt"  # why the last try failed
_DIGESTS: Final = {"tables.digest": "the tables", "graph_digest": "the arrays"}
_UNREADABLE: Final = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, StopIteration, SafetensorError
)  # fmt: skip


class RunError(RuntimeError):
    """A run folder that cannot be used."""


class Damaged(RunError):
    """A run folder of which a file cannot be understood.

    Args:
        folder: The folder.
        what: The file and what is wrong with it.
    """

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"the run folder {folder} is damaged ({what}); train it anew in another folder.")
        self.folder, self.what = folder, what


def finished(experiment: Experiment, folder: Path) -> Result | None:
    """The result of a run that is done, else ``None``; a folder that holds anything else is refused."""
    with usable(folder):
        if (folder / CONFIG).exists():
            _check_same(experiment, folder)
            return _read(folder / RESULT) if (folder / RESULT).exists() else None
        for name in (RESULT, WEIGHTS, CURVES, CHECKPOINT):
            if (folder / name).exists():
                raise RunError(f"{folder} has a {name} but no {CONFIG}, so it is no run folder; choose another.")
    return None


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Holds the folder for this process alone and removes what a failed or killed one left behind."""
    with ExitStack() as stack:
        with usable(folder):
            stack.enter_context(locked(folder, wait=False, what="run folder"))
            for path in [folder / ERROR, *folder.glob(".*.part"), *(folder / ORDERINGS).glob(".*.part")]:
                path.unlink(missing_ok=True)
        yield


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Says of a failure to read or write which folder it happened in."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"the run folder {folder} cannot be used: {reason}; make room or choose another.") from error


@contextmanager
def reading(folder: Path, file: str | Path) -> Iterator[Path]:
    """Gives the path of a file of a run, and says of a failure to understand it which file it was."""
    path = folder / file
    try:
        yield path
    except _UNREADABLE as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = " ".join(text.split()).removeprefix(f"{path}: ").rstrip(".") or type(error).__name__
        raise Damaged(folder, f"{file}: {reason}") from error


def ordering_file(folder: Path, epoch: int, layer: int) -> Path:
    """Where the ordering of a GOAT layer (from 1) after an epoch is recorded."""
    return folder / ORDERINGS / f"epoch-{epoch}-layer-{layer}.safetensors"


def _read(path: Path) -> Result:
    try:
        return Result.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path} is damaged or of another version; remove it to run this again.") from None


def find_runs(folder: Path) -> Iterator[Path]:
    """The run folders below a folder, in the order of their names; what is within one belongs to it."""
    for place, below, files in os.walk(folder):
        below.sort(key=_natural)
        if CONFIG in files:
            below.clear()
            yield Path(place)


def _natural(name: str) -> tuple[int, str]:
    """Numbers by their size, before names."""
    return (int(name), "") if name.isdecimal() else (1 << 62, name)


def _check_same(experiment: Experiment, folder: Path) -> None:
    """Refuses a folder with another experiment, and names a difference."""
    try:
        there = settings.read(Experiment, folder / CONFIG)
    except settings.SettingsError as error:
        raise RunError(f"{folder} holds a run of another version; choose another folder ({error})") from None
    if there != experiment:
        raise RunError(f"{folder} holds another experiment ({difference(there, experiment)}); choose another folder.")


def difference(there: Experiment, here: Experiment) -> str:
    """``"training.epochs = 3 there, 4 here"``, of two experiments that are not equal; other data come first."""
    old, new = (dict(_leaves(settings.to_table(one), "")) for one in (there, here))
    keys = [key for key in [*new, *old] if new.get(key) != old.get(key)]
    key = min(keys, key=lambda key: not key.startswith(("dataset", "tables.", "graph")))  # from which others may follow
    if key in _DIGESTS:
        return f"{_DIGESTS[key]} have changed since"
    return f"{key} = {old.get(key)!r} there, {new.get(key)!r} here"


def _leaves(table: dict[str, Any], section: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{section}{key}.")
        else:
            yield f"{section}{key}", value
