from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torch_goat.recipes import Run
from torch_goat.training import RunError, finished

CellName = tuple[str, str]  # of a row and a column


class Collected(NamedTuple):
    """What run folders hold.

    Args:
        scores: The metric of the test nodes for each repetition that is done, by row and column: accuracy, for
            regression the mean squared error.
        problems: Why a folder cannot be read, by row and column.
    """

    scores: dict[CellName, dict[int, float]]
    problems: dict[CellName, str]


def collect(runs: Iterable[Run], folder: Path) -> Collected:
    """The results of the runs that are done.

    Args:
        runs: The runs of a table.
        folder: The folder of the table.
    """
    scores: dict[CellName, dict[int, float]] = {}
    problems: dict[CellName, str] = {}
    for run in runs:
        cell = run.row, run.column
        try:
            result = finished(run.experiment, folder / run.folder)
        except RunError as error:  # another experiment, a damaged file
            problems.setdefault(cell, str(error))
            continue
        if result is not None:
            test = result.metrics["test"]
            scores.setdefault(cell, {})[run.repetition] = test.get("accuracy", test.get("mse", float("nan")))
    return Collected(scores, problems)
