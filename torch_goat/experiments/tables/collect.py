from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from torch_goat.experiments import RunError
from torch_goat.experiments.recipes import Run
from torch_goat.experiments.recipes.plan import CellName
from torch_goat.experiments.tables.ledger import Ledger


class Collected(NamedTuple):
    """What is there of a table.

    Args:
        scores: The metric of the test nodes for each repetition that is done, by row and column: accuracy, for
            regression the mean squared error.
        problems: Why a folder cannot be read, by row and column.
        devices: How many of the runs were done on which device.
    """

    scores: dict[CellName, dict[int, float]]
    problems: dict[CellName, str]
    devices: Counter[str]


def collect(runs: Iterable[Run], ledger: Ledger) -> Collected:
    """The results of the runs that are done.

    Args:
        runs: The runs of a table.
        ledger: Its results.
    """
    scores: dict[CellName, dict[int, float]] = {}
    problems: dict[CellName, str] = {}
    devices: Counter[str] = Counter()
    for run in runs:
        cell = run.row, run.column
        try:
            result = ledger.result(run)
        except RunError as error:  # another experiment, a damaged file
            problems.setdefault(cell, str(error))
            continue
        if result is not None:
            devices[result.device] += 1
            test = result.metrics["test"]
            scores.setdefault(cell, {})[run.repetition] = test.get("accuracy", test.get("mse", float("nan")))
    return Collected(scores, problems, devices)
