import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from torch_goat import settings
from torch_goat.experiments import Experiment, Result, RunError, finished
from torch_goat.experiments.recipes import CellName, CellRun
from torch_goat.experiments.training.options import difference
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

_INVALID = (ValueError, KeyError, TypeError, AttributeError)
_METRICS = ("result", "metrics")  # differ in every line, and the order of their keys matters: the first one decides
_Tables = dict[str, dict[str, Any]]  # those of the experiment and of the result


class RecordedRun(NamedTuple):
    """A finished run of a table."""

    run: CellRun
    result: Result

    @property
    def experiment(self) -> Experiment:
        return self.run.experiment


class Ledger:
    """The results of a table, from run folders and from a file of result lines.

    Run folders hold weights and checkpoints and stay on the machine that made them. The file, ``table1.jsonl`` beside
    the folder ``table1``, has a line with the folder, experiment and result of every finished run: enough to print the
    table and to know what need not be run again. Values that most lines share are stored once, in a first line
    ``{"shared": ...}``; the lines below it hold only what differs, ``null`` for a key that they lack. Lines of earlier
    versions, with ``"folder"`` instead of ``"run"``, are complete.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder.with_name(folder.name + ".jsonl")
        self._lines = read_lines(self.path) if self.path.exists() else {}
        self._written = dict(self._lines)
        self._experiments: dict[str, Experiment | None] = {}  # of lines, parsed on first use

    def result(self, run: CellRun) -> Result | None:
        """The result of a finished run, else ``None``; raises an error for another experiment or missing metrics."""
        if (name := str(run.folder)) in self._lines:
            line = self._lines[name]
            if name not in self._experiments:
                self._experiments[name] = None
                with suppress(SettingsError):  # of another version
                    self._experiments[name] = settings.parse(Experiment, line["experiment"], "")
            there = self._experiments[name]
            if there == run.experiment:
                return Result(**line["result"])
            if there is not None:
                what = difference(there, run.experiment)
                raise RunError(
                    f"{self.path} has another experiment for {name} ({what}); choose another folder, or remove its "
                    "line to run it again."
                )
        folder = self.folder / run.folder
        found = finished(run.experiment, folder)
        if found is not None:
            try:
                _check(found)
            except _INVALID:
                raise RunError(
                    f"the result in {folder} lacks metrics that the table needs; remove the folder to run this again."
                ) from None
            self._record(run, found)  # a folder is read once
        return found

    def is_missing(self, run: CellRun) -> bool:
        """Whether a run is still to be done; a run whose folder cannot be used is not."""
        try:
            return self.result(run) is None
        except RunError:
            return False

    def results(self, runs: Iterable[CellRun]) -> dict[PurePosixPath, Result]:
        """The results of the finished runs whose folders can be used, by folder."""
        return {run.folder: result for run, result in self.collect(runs)[0]}

    def collect(self, runs: Iterable[CellRun]) -> tuple[list[RecordedRun], dict[CellName, str]]:
        """The finished ones of some runs, and for each cell with an unusable folder the reason."""
        found: list[RecordedRun] = []
        problems: dict[CellName, str] = {}
        for run in runs:
            try:
                result = self.result(run)
            except RunError as error:  # another experiment, a damaged file
                problems.setdefault((run.row, run.column), str(error))
                continue
            if result is not None:
                found.append(RecordedRun(run, result))
        return found, problems

    def share(self, runs: Iterable[CellRun], done: Iterable[CellRun]) -> None:
        """Gives missing runs the results of others with the same experiment.

        The settings that a search chose need not be trained again on the graphs or splits of its trials.
        """
        by_experiment = {run.experiment: result for run, result in self.collect(done)[0]}
        for run in filter(self.is_missing, runs):
            if run.experiment in by_experiment:
                self._record(run, by_experiment[run.experiment])

    def write(self, runs: Iterable[CellRun]) -> None:
        """Adds lines for the finished ones of these runs, and of those that were read before, to the file."""
        self.collect(runs)
        if self._lines != self._written:
            write_atomic(self.path, "".join(f"{line}\n" for line in _dump(self._lines)))
            self._written = dict(self._lines)

    def _record(self, run: CellRun, result: Result) -> None:
        tables = {"experiment": settings.to_table(run.experiment), "result": settings.to_table(result)}
        self._lines[str(run.folder)] = tables
        self._experiments[str(run.folder)] = run.experiment


def read_lines(path: Path) -> dict[str, _Tables]:
    """Reads result lines: by folder, the tables of the experiment and of the result."""
    lines: dict[str, _Tables] = {}
    shared: dict[str, Any] = {}
    for number, text in enumerate(path.read_bytes().splitlines(), 1):
        try:
            entry = json.loads(text)
            if "shared" in entry:
                shared = entry["shared"]
                continue
            folder = entry["run"] if "run" in entry else entry["folder"]
            tables = {key: dict(entry.get(key, {})) for key in ("experiment", "result")}
            tables = _merged(shared, tables) if "run" in entry else tables
            _check(Result(**tables["result"]))
            known = lines.setdefault(folder, tables)
        except _INVALID:
            raise RunError(f"{path}, line {number}: not a result; remove the line to run it again.") from None
        if known != tables:
            raise RunError(
                f"{path}, line {number}: another line has another result for {folder}; remove one of the two."
            )
    return lines


def _dump(lines: Mapping[str, _Tables]) -> Iterator[str]:
    """The text of result lines, with the most common value of every key in a line of its own."""
    texts = {folder: {key: json.dumps(value) for key, value in _leaves(line)} for folder, line in lines.items()}
    common = {}
    for key in dict.fromkeys(key for entry in texts.values() for key in entry):
        text, count = Counter(entry.get(key) for entry in texts.values()).most_common(1)[0]
        if text is not None and count > 1 and key != _METRICS:
            common[key] = text
    shared = _nested({key: json.loads(text) for key, text in common.items()})
    if shared:
        yield json.dumps({"shared": shared}, ensure_ascii=False)
    for folder, line in lines.items():
        changes: dict[tuple[str, ...], Any] = {key: None for key in common if key not in texts[folder]}
        changes |= {key: value for key, value in _leaves(line) if common.get(key) != texts[folder][key]}
        entry = {"run": folder, **_nested(changes)}
        if not shared or _merged(shared, _nested(changes)) != line:  # null, or empty tables
            entry = {"folder": folder, **line}
        yield json.dumps(entry, ensure_ascii=False)


def _leaves(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value and (*path, key) != _METRICS:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _nested(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for (*path, last), value in leaves.items():
        place = table
        for key in path:
            if not isinstance(place.get(key), dict):  # in other lines this is no table, or an empty one
                place[key] = {}
            place = place[key]
        place[last] = value
    return table


def _merged(shared: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Shared values with the changes of a line; ``None`` removes a key."""
    merged = {**shared, **changes}
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(shared.get(key), dict):
            merged[key] = _merged(shared[key], value)
        if value is None or merged[key] == {}:
            del merged[key]
    return merged


def _check(result: Result) -> None:
    """Raises an error unless the result has metrics of the validation and test nodes."""
    for metrics in (result.metrics["val"], result.metrics["test"]):
        if not metrics.keys() & {"accuracy", "mse"}:
            raise ValueError("there is no metric to judge by")
        if not all(isinstance(value, float | int) for value in metrics.values()):
            raise ValueError("a metric is not a number")
