"""The runs of a folder beside each other, with intervals."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import stats

from torch_goat import settings
from torch_goat.app.explain.steadiness import settled
from torch_goat.app.report.measures import Z95, wilson
from torch_goat.experiments import Experiment, Result, RunError
from torch_goat.experiments.run import Damaged, find_runs
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER, decisive

DIFFERENCES: Final = 4  # settings that a label tells


@dataclass(frozen=True)
class Finished:
    """A run that is done.

    Args:
        folder: Its folder.
        experiment: What was run.
        result: What it came to.
    """

    folder: Path
    experiment: Experiment
    result: Result

    @property
    def first_metric(self) -> str:
        """The metric that all runs of its task have."""
        return next(iter(self.result.metrics["val"]))

    def score(self, split: str, metric: str) -> float:
        """A metric of a part of the nodes; not a number if it has none."""
        return self.result.metrics.get(split, {}).get(metric, math.nan)


@dataclass(frozen=True)
class Row:
    """Runs that differ in seed and split alone.

    Args:
        label: How they are called beside the others.
        runs: The runs.
        mean: The mean of the test metric.
        low: The lower end of its 95 % interval.
        high: The upper end.
        basis: What the interval is about.
        validation: The mean of the validation metric.
        metric: What they are judged by.
    """

    label: str
    runs: tuple[Finished, ...]
    mean: float
    low: float
    high: float
    basis: str
    validation: float
    metric: str

    @property
    def best(self) -> Finished:
        """The run of the best validation."""
        return min(self.runs, key=lambda run: _rank(run.score("val", self.metric), self.metric))


def gather(place: Path) -> tuple[list[Finished], list[str]]:
    """The runs that are done, and why others are left out.

    Args:
        place: A run folder, or a folder that holds some at any depth.
    """
    if not place.is_dir():
        raise RunError(f"there is no folder {place}; name a run or a folder of runs.")
    found, left_out = [], []
    for run in find_runs(place):
        if run.state != "done":
            left_out.append(f"{_below(run.folder, place)} is not done")
            continue
        try:
            found.append(Finished(run.folder, run.experiment, run.result))
        except Damaged as error:
            left_out.append(damage(error, place))
    if not found:
        reason = f" ({left_out[0]})" if left_out else ""
        raise RunError(f"there is no run that is done in {place}{reason}; name a folder that goat train has filled.")
    return found, left_out


def damage(error: Damaged, place: Path) -> str:
    """Why a run below a folder is left out."""
    return f"{_below(error.folder, place)} is damaged ({error.what})"


def _below(folder: Path, place: Path) -> str:
    return "it" if folder == place else str(folder.relative_to(place))


def on_one_dataset(runs: Sequence[Finished]) -> tuple[list[Finished], list[str]]:
    """The runs on the data, the target and the split protocol that most of them are on, and the names of the others."""
    counts = Counter(_question(run) for run in runs)
    chosen = max(counts, key=lambda question: counts[question])  # the first of equals
    others = dict.fromkeys(_named(run) for run in runs if _question(run) != chosen)
    return [run for run in runs if _question(run) == chosen], list(others)


def compare(runs: Iterable[Finished], test_nodes: int, errors: Callable[[Finished], np.ndarray]) -> list[Row]:
    """Runs on one dataset by their settings, the best validation first.

    Args:
        runs: The runs.
        test_nodes: How many test nodes there are.
        errors: Gives the squared errors of the test nodes of a run, for the interval of a single one; none if they are
            not to be had.
    """
    groups: dict[str, list[Finished]] = {}
    for run in runs:
        groups.setdefault(settings.dumps(settled(run.experiment)), []).append(run)
    labels = _labels([settled(group[0].experiment) for group in groups.values()])
    metric = _metric([run for group in groups.values() for run in group])
    rows = [
        _row(label, group, metric, test_nodes, errors) for label, group in zip(labels, groups.values(), strict=True)
    ]
    return sorted(rows, key=lambda row: _rank(row.validation, metric))


def _metric(runs: Sequence[Finished]) -> str:
    """What all of them are judged by, if one has class weights as that one is."""
    return decisive(runs[0].first_metric, any(run.experiment.training.class_weights for run in runs))


def _rank(value: float, metric: str) -> float:
    """Smaller is better, and what is not a number comes last."""
    sign = 1 if metric in LOWER_IS_BETTER else -1
    return sign * value if math.isfinite(value) else math.inf


def _row(
    label: str, runs: Sequence[Finished], metric: str, test_nodes: int, errors: Callable[[Finished], np.ndarray]
) -> Row:
    scores = np.array([run.score("test", metric) for run in runs])
    mean = float(scores.mean())
    low, high, basis = math.nan, math.nan, ""
    if len(runs) > 1:
        half = stats.t.ppf(0.975, len(runs) - 1) * scores.std(ddof=1) / math.sqrt(len(runs))
        low, high, basis = mean - half, mean + half, f"mean of {len(runs)} runs"
    elif test_nodes and metric == "accuracy" and math.isfinite(mean):
        low, high = wilson(mean * test_nodes, test_nodes)
        basis = f"one run, {test_nodes:,} test nodes"
    elif test_nodes > 1 and metric == "mse" and math.isfinite(mean) and len(squares := errors(runs[0])) > 1:
        half = Z95 * float(squares.std(ddof=1)) / math.sqrt(len(squares))
        low, high, basis = mean - half, mean + half, f"one run, {test_nodes:,} test nodes"
    if math.isfinite(low):  # a normal interval knows no ends
        low, high = max(low, 0.0), high if metric in LOWER_IS_BETTER else min(high, 1.0)
    validation = float(np.mean([run.score("val", metric) for run in runs]))
    return Row(label, tuple(runs), mean, low, high, basis, validation, metric)


def _question(run: Finished) -> tuple[Any, ...]:
    """What is asked of which nodes; answers to different questions cannot be compared."""
    one, own = run.experiment, run.experiment.tables
    files = () if own is None else (own.digest or (own.nodes, own.edges), own.target)
    parts = () if own is None else (own.split_column, own.time_column, own.train, own.val)
    return one.dataset, one.split, one.graph, files, parts, run.first_metric


def _named(run: Finished) -> str:
    one = run.experiment
    name = f"{one.dataset} {one.split}".strip()
    return name if one.tables is None else f"{name} ({one.tables.target})"


def _labels(experiments: Sequence[Experiment]) -> list[str]:
    """The models' names, with the settings in which those of the same name differ: a few, or all if these leave two
    of them alike."""
    tables = [dict(_leaves(settings.to_table(one))) for one in experiments]
    told = []
    for number, experiment in enumerate(experiments):
        alike = [tables[other] for other, one in enumerate(experiments) if one.model.name == experiment.model.name]
        keys = [key for key in tables[number] if any(table.get(key) != tables[number][key] for table in alike)]
        told.append([experiment.model.name, *(f"{key}={tables[number][key]}" for key in keys)])
    most = DIFFERENCES + 1
    short = [", ".join([*one[:most], *(["..."] if len(one) > most else [])]) for one in told]
    counts = Counter(short)
    return [label if counts[label] == 1 else ", ".join(one) for label, one in zip(short, told, strict=True)]


def _leaves(table: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield key, value
