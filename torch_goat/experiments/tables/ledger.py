import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from torch_goat import settings
from torch_goat.experiments import Experiment, Result, RunError, finished
from torch_goat.experiments.recipes import Run
from torch_goat.experiments.recipes.plan import CellName
from torch_goat.experiments.run import RESULT
from torch_goat.experiments.training.options import difference
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

_NO_RESULT = (ValueError, KeyError, TypeError, AttributeError)


class Planned(Protocol):
    """A run of a table: a repetition of a cell, or a trial of its search."""

    @property
    def experiment(self) -> Experiment: ...

    @property
    def folder(self) -> PurePosixPath: ...


class RecordedRun(NamedTuple):
    """A finished run of a table."""

    run: Run
    result: Result

    @property
    def experiment(self) -> Experiment:
        """Its experiment."""
        return self.run.experiment


class Ledger:
    """The results of a table: those in run folders, and those in a file of JSON lines that stands for the rest.

    Run folders hold weights and checkpoints and stay where they were made. The file, ``table1.jsonl`` beside the folder
    ``table1``, has a line for every run that is done, with its folder, its experiment and its result: enough to print
    the table, and to know what need not be run again.

    Args:
        folder: The folder of the table.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder.with_name(folder.name + ".jsonl")
        self._lines: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        if self.path.exists():
            for number, line in enumerate(self.path.read_bytes().splitlines(), 1):
                try:
                    entry = json.loads(line)
                    _check(Result(**entry["result"]))
                    found = dict(entry["experiment"]), entry["result"]
                    known = self._lines.setdefault(entry["folder"], found)
                except _NO_RESULT:
                    raise RunError(
                        f"{self.path}, line {number}: not a result; remove the line to run it again."
                    ) from None
                if known != found:
                    raise RunError(
                        f"{self.path}, line {number}: another line has another result for {entry['folder']}; "
                        "remove one of the two."
                    )
        self._written = dict(self._lines)
        self._read: dict[str, Experiment | None] = {}  # experiments of lines, read when they are asked for

    def result(self, run: Planned) -> Result | None:
        """The result of a run that is done, else ``None``; another experiment and missing metrics are refused."""
        if (name := str(run.folder)) in self._lines:
            experiment, result = self._lines[name]
            if name not in self._read:
                self._read[name] = _experiment(experiment)
            there = self._read[name]
            if there == run.experiment:
                return Result(**result)
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
            except _NO_RESULT:
                raise RunError(
                    f"{folder / RESULT} lacks metrics that the table needs; remove it to run this again."
                ) from None
        return found

    def is_missing(self, run: Planned) -> bool:
        """Whether a run is still to be done; one whose folder is of no use is not."""
        try:
            return self.result(run) is None
        except RunError:
            return False

    def results(self, runs: Iterable[Planned]) -> dict[PurePosixPath, Result]:
        """The results of those that are done, by their folders; one that holds another experiment is refused."""
        return {run.folder: result for run in runs if (result := self.result(run)) is not None}

    def collect(self, runs: Iterable[Run]) -> tuple[list[RecordedRun], dict[CellName, str]]:
        """The finished ones of some runs, and by row and column why a folder cannot be used."""
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

    def share(self, runs: Iterable[Planned], done: Iterable[Planned]) -> None:
        """Gives runs that are missing the results of others that have done the same experiment.

        A cell whose settings a search has tried on several graphs or splits needs no second training on these.

        Args:
            runs: The runs.
            done: Others that may be done.
        """
        by_experiment = {run.experiment: result for run in done if (result := self.result(run)) is not None}
        for run in filter(self.is_missing, runs):
            if run.experiment in by_experiment:
                result = by_experiment[run.experiment]
                self._lines[str(run.folder)] = settings.to_table(run.experiment), settings.to_table(result)
                self._read[str(run.folder)] = run.experiment

    def write(self, runs: Iterable[Planned]) -> None:
        """Writes the results of these runs into the file, as far as there are any; other lines stay."""
        found = dict(self._lines)
        for run in runs:
            try:
                result = self.result(run)
            except RunError:
                continue
            if result is not None and self._read.get(str(run.folder)) != run.experiment:  # has no line
                found[str(run.folder)] = settings.to_table(run.experiment), settings.to_table(result)
                self._read[str(run.folder)] = run.experiment
        if found == self._written:
            return
        self._lines, self._written = found, dict(found)
        lines = (
            json.dumps({"folder": folder, "experiment": experiment, "result": result}, ensure_ascii=False)
            for folder, (experiment, result) in found.items()
        )
        write_atomic(self.path, "".join(f"{line}\n" for line in lines))


def _check(result: Result) -> None:
    """Refuses what is not the result of a run on validation and test nodes."""
    for metrics in (result.metrics["val"], result.metrics["test"]):
        if not metrics.keys() & {"accuracy", "mse"}:
            raise ValueError("there is no metric to judge by")
        if not all(isinstance(value, float | int) for value in metrics.values()):
            raise ValueError("a metric is no number")


def _experiment(table: dict[str, Any]) -> Experiment | None:
    try:
        return settings.parse(Experiment, table, "")
    except SettingsError:  # of another version
        return None
