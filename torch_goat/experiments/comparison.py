"""Comparison of models over repeated runs: means, intervals, ranking and significance tests."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from torch_goat import settings
from torch_goat.experiments.intervals import exact_decimals, mean_interval, varies
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER, decisive
from torch_goat.experiments.training.options import Experiment, of_result, without_repetition
from torch_goat.experiments.training.result import Result
from torch_goat.experiments.verdict import Difference, Verdict, judge, paired_difference, shown, simplicity

REPEATS: Final = 3  # runs of each model
EXACT_PAIRS: Final = 13  # up to this number of pairs, the signed-rank test enumerates all assignments of signs
LABEL_SETTINGS: Final = 4  # settings that a label lists


class FinishedRun(Protocol):
    """A finished run: an opened run folder or a recorded result line."""

    @property
    def experiment(self) -> Experiment: ...

    @property
    def result(self) -> Result: ...


R = TypeVar("R", bound=FinishedRun)


def _split_and_seed(run: FinishedRun) -> tuple[int, int]:
    return run.experiment.index, run.experiment.seed


class Summary(NamedTuple):
    """Mean and sample standard deviation."""

    mean: float
    std: float | None  # with n - 1; None for a single value
    n: int


@dataclass(frozen=True)
class Comparison:
    """A group compared with the best baseline, or with the best other group."""

    other: str  # label of the other group
    difference: float  # mean of this group minus the mean of the other
    ahead: int  # number of common repetitions in which this group is better
    common: int  # number of repetitions that both groups have
    paired: bool  # whether the p-value is that of the paired test
    ours: Sequence[float]  # scores, with a paired test in the order of theirs
    theirs: Sequence[float]

    @cached_property
    def p_value(self) -> float | None:
        """Two-sided p-value of :func:`paired_p_value` or :func:`unpaired_p_value`; ``None`` for too few runs."""
        return (paired_p_value if self.paired else unpaired_p_value)(self.ours, self.theirs)


@dataclass(frozen=True)
class RunGroup(Generic[R]):
    """The runs of one model."""

    label: str
    runs: tuple[R, ...]
    repetitions: tuple[Hashable, ...]  # identify each run within the group, by default its split and seed
    scores: tuple[float, ...]  # the metric of each run
    rank_scores: tuple[float, ...]  # what decides the ranking, usually the metric of the validation nodes
    interval: tuple[float, float]  # 95 % confidence interval of the mean; NaN where it is unknown
    metric: str
    place: int = 0  # dense rank from 1; 0 for a group that is incomplete or has no finite mean
    comparison: Comparison | None = None  # with the best baseline or, without baselines, the best other group

    @property
    def values(self) -> dict[Any, float]:
        """The metric by repetition."""
        return dict(zip(self.repetitions, self.scores, strict=True))

    @property
    def name(self) -> str:
        """The name of the model for users."""
        return shown(self.label, self.metric)

    @property
    def seconds(self) -> float:
        """The mean training time."""
        return fmean(run.result.seconds for run in self.runs)

    @property
    def mean(self) -> float:
        return summarize(self.scores).mean

    @property
    def std(self) -> float | None:
        return summarize(self.scores).std

    @property
    def varies(self) -> bool:
        """Whether its runs have different scores; if not, the interval is that of a single one."""
        return varies(self.scores)

    @property
    def rank_mean(self) -> float:
        return summarize(self.rank_scores).mean

    @property
    def best(self) -> R:
        """The run with the best ranking score; of equal ones that on the first split, with the smallest seed."""
        keys = [rank_key(value, self.metric) for value in self.rank_scores]
        order = list(zip(keys, map(_split_and_seed, self.runs), strict=True))
        return self.runs[order.index(min(order))]

    def summary(self, split: str, metric: str) -> Summary:
        """Mean and standard deviation of any metric on any split."""
        return summarize([score(run, split, metric) for run in self.runs])


@dataclass(frozen=True)
class Ranking(Generic[R]):
    """Groups of runs, the best first; those without a place come last."""

    metric: str
    groups: tuple[RunGroup[R], ...]
    split: str = "test"  # the nodes whose metric is reported
    rank_by: str = "val"  # the nodes whose metric decides the ranking
    overlap: float = 0.0  # number of test nodes over that of training nodes, for splits of the same nodes
    test_nodes: int = 0  # 0 if unknown

    def __getitem__(self, label: str) -> RunGroup[R]:
        if found := [group for group in self.groups if group.label == label]:
            return found[0]
        labels = ", ".join(group.label for group in self.groups)
        raise settings.SettingsError(f"there is no model {label!r} in this comparison; choose from {labels}.")

    @cached_property
    def verdict(self) -> Verdict | None:
        """Which model to use and how sure that is; ``None`` for fewer than two groups with a place."""
        return judge([group for group in self.groups if group.place], self._compare)

    @property
    def recommended(self) -> RunGroup[R]:
        """The group that the verdict recommends, or the first if there is no verdict."""
        return self.groups[0] if self.verdict is None else self[self.verdict.recommended]

    def difference(self, first: str, second: str) -> Difference:
        """The paired difference of two groups, with its interval, in the metric's own unit."""
        return self._compare(self[first], self[second], False)

    def _compare(self, first: RunGroup[R], second: RunGroup[R], ranking: bool) -> Difference:
        split = self.rank_by if ranking else self.split
        return paired_difference(
            _by_repetition(first, split),
            _by_repetition(second, split),
            first=first.label,
            second=second.label,
            metric=self.metric,
            lower_is_better=self.metric in LOWER_IS_BETTER,
            ratio=self.overlap,
            test_nodes=self.test_nodes,
        )


def compare_runs(
    runs: Iterable[R],
    *,
    label: Callable[[R], str] | None = None,
    repetition: Callable[[R], Hashable] = _split_and_seed,
    metric: str = "",
    split: str = "test",
    rank_by: str = "val",
    baselines: Collection[str] | None = None,
    paired: bool | None = None,
    planned: Mapping[str, int] | None = None,
    scale: float = 1.0,
    decimals: int | None = None,
    test_nodes: int = 0,
    errors: Callable[[R], np.ndarray] | None = None,
) -> Ranking[R]:
    """Groups runs by model, summarises, ranks and tests the groups.

    Runs of the same experiment, for example in a folder and its copy, count once.

    Args:
        runs: Finished runs on the same data: anything with an ``experiment`` and a ``result``.
        label: Gives the group of a run. By default runs that differ only in seed and split form a group, named after
            its model and the settings in which groups of the same model differ.
        repetition: Identifies a run within its group; runs of two groups with the same identifier form a pair.
        metric: The metric to compare; by default the one that decides, see :func:`deciding_metric`.
        split: The nodes whose metric is reported and tested: ``"train"``, ``"val"`` or ``"test"``.
        rank_by: The nodes whose metric decides the ranking.
        baselines: Groups that the others are compared with. By default each group is compared with the best other one.
        paired: Whether to use the paired test. By default it is used if both groups have the same repetitions and
            these differ in their graph or split; runs that differ only in their seed have nothing in common.
        planned: Number of runs of each complete group. Incomplete groups are neither ranked nor compared.
        scale: Factor of all scores, 100 for percentages.
        decimals: Decimals of the means that decide the ranking; groups with equal rounded means share a place.
        test_nodes: Number of test nodes, for the interval of a single run's accuracy; by default the recorded one.
        errors: Squared errors of a run's test nodes, for the interval of a single run's MSE or RMSE.
    """
    runs = list(runs)
    metric = metric or deciding_metric(runs)
    labels = _labels(runs) if label is None else [label(run) for run in runs]
    members: dict[str, dict[Experiment, R]] = {}
    for name, run in zip(labels, runs, strict=True):
        members.setdefault(name, {}).setdefault(of_result(run.experiment), run)
    test_nodes = test_nodes or next((run.result.nodes["test"] for run in runs if run.result.nodes.get("test")), 0)

    groups = []
    for name, distinct in members.items():
        together = tuple(distinct.values())
        scores = [score(run, split, metric) for run in together]
        squares = None if errors is None else partial(errors, together[0])
        low, high = mean_interval(scores, metric, test_nodes, squares)
        repetitions = tuple(repetition(run) for run in together)
        scaled, ranking = (tuple(scale * score(run, one, metric) for run in together) for one in (split, rank_by))
        groups.append(RunGroup(name, together, repetitions, scaled, ranking, (scale * low, scale * high), metric))

    # Sums of the same scores in another order may differ in their last digits.
    groups.sort(key=lambda group: (rank_key(float(f"{group.rank_mean:.12g}"), metric), simplicity(group)))
    finite = [group for group in groups if math.isfinite(group.rank_mean)]
    complete = [group for group in finite if planned is None or len(group.runs) == planned[group.label]]
    rest = [group for group in groups if all(group is not one for one in complete)]
    means = [group.rank_mean if decimals is None else round(group.rank_mean, decimals) for group in complete]
    places = {mean: place for place, mean in enumerate(dict.fromkeys(means), 1)}
    ranked = []
    for group, mean in zip(complete, means, strict=True):
        others = [one for one in complete if one is not group and (baselines is None or one.label in baselines)]
        tested = others and (baselines is None or group.label not in baselines)
        comparison = _compare(group, others[0], paired) if tested else None
        ranked.append(replace(group, place=places[mean], comparison=comparison))
    return Ranking(metric, (*ranked, *rest), split, rank_by, overlap_of(runs), test_nodes)


def deciding_metric(runs: Sequence[FinishedRun]) -> str:
    """The metric that decides which run is better: the one that they were trained for or that judges the dataset, if
    any; macro F1 if one weights the classes; RMSE for a numeric column of tables, unless the runs are of an earlier
    version without it; else the task's first."""
    if asked := next((run.experiment.metric for run in runs if run.experiment.metric), ""):
        return asked
    first = next(iter(runs[0].result.metrics["val"]))
    if first == "mse" and all(run.experiment.tables and "rmse" in run.result.metrics["val"] for run in runs):
        return "rmse"
    return decisive(first, any(run.experiment.training.class_weights for run in runs))


def score(run: FinishedRun, split: str, metric: str) -> float:
    """A metric of a run; NaN if the run does not have it."""
    return run.result.metrics.get(split, {}).get(metric, math.nan)


def rank_key(value: float, metric: str) -> float:
    """Sorts values of a metric: the best first, those that are not finite last."""
    if not math.isfinite(value):
        return math.inf
    return value if metric in LOWER_IS_BETTER else -value


def overlap_of(runs: Sequence[FinishedRun]) -> float:
    """The number of test nodes over that of training nodes, by which splits of the same nodes depend on each other.

    0 for generated graphs, which are independent. Results of earlier versions on your own graph do not have the
    numbers; then those of the default fractions are used, or the fractions of random splits of tables.
    """
    from torch_goat.data.datasets import DATASETS

    if not runs:
        return 0.0
    first, sizes = runs[0].experiment, [run.result.nodes for run in runs if run.result.nodes.get("train")]
    known = DATASETS.get(first.dataset) if first.tables is None and not first.graph else None
    if known is not None and not known.raw:
        return 0.0
    split = known and known.protocols.get(first.split or known.default_split)
    if split:
        parts = [split.sizes_of(run.experiment.index) for run in runs]
        return float(np.mean([test / train for train, _, test in parts]))
    if sizes:
        return float(np.mean([one.get("test", 0) / one["train"] for one in sizes]))
    tables = next((run.experiment.tables for run in runs if run.experiment.tables is not None), None)
    train, val = (0.6, 0.2) if tables is None else (tables.train, tables.val)
    return (1 - train - val) / train


def summarize(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation of at least one value."""
    if not values:
        raise ValueError("cannot summarize an empty sequence; pass at least one value.")
    shifted = np.subtract(values, values[0])  # equal values have a deviation of exactly 0
    return Summary(float(np.mean(values)), float(shifted.std(ddof=1)) if len(values) > 1 else None, len(values))


def paired_p_value(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Two-sided p-value of the Wilcoxon signed-rank test on pairs of runs on the same graph or split.

    The test uses only signs and ranks of the differences: a few graphs on which a model fails skew them, and ten are
    too few for the normal distribution of a paired t-test. Hence fewer than six pairs never reach p < 0.05. Up to 13
    pairs the distribution is exact, ties included. Splits of one graph overlap, so their p-values are too small rather
    than too large. The p-values are not adjusted for multiple comparisons. ``None`` for fewer than two pairs or values
    that are not finite.
    """
    from scipy import stats  # imports slowly

    if len(ours) != len(theirs):
        raise ValueError(f"a paired test needs as many values of both models, got {len(ours)} and {len(theirs)}.")
    exact = exact_decimals([*ours, *theirs])  # rounding errors must not break ties
    differences = np.subtract(ours, theirs, dtype=float).round(exact)
    if len(differences) < 2 or not np.isfinite(differences).all():
        return None
    differences = differences[differences != 0]
    if len(differences) < 2:
        return 1.0  # both signs of a single difference are equally extreme
    if len(differences) > EXACT_PAIRS:
        return float(stats.wilcoxon(differences).pvalue)
    ranks, ways = _rank_sums(np.abs(differences))
    return _share_as_extreme(ways.sum(axis=0), ranks[differences > 0].sum())


def unpaired_p_value(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Two-sided p-value of the Wilcoxon rank-sum (Mann-Whitney) test on runs that differ only in their seed.

    Runs of two models with the same seed have nothing in common, so they do not form pairs. The test is exact, ties
    included. It applies only to the split that the runs share, not to other splits. ``None`` for fewer than two runs of
    either model or values that are not finite.
    """
    values = np.round([*ours, *theirs], exact_decimals([*ours, *theirs]))  # rounding errors must not break ties
    if min(len(ours), len(theirs)) < 2 or not np.isfinite(values).all():
        return None
    ranks, ways = _rank_sums(values)
    return _share_as_extreme(ways[len(ours)], ranks[: len(ours)].sum())


def _rank_sums(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Twice the ranks of values ``[n]``, and the number of subsets of each size that have each sum ``[n + 1, sums]``.

    SciPy's exact distributions do not support ties, and its permutation tests take a second.
    """
    from scipy import stats  # imports slowly

    ranks = np.rint(2 * stats.rankdata(values)).astype(int)  # integers, also with ties
    ways = np.zeros((len(values) + 1, ranks.sum() + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank]  # the right side is evaluated before the update
    return ranks, ways


def _share_as_extreme(ways: np.ndarray, found: int) -> float:
    """The share of ways with a sum at least as far from their mean as the one that was found."""
    sums = np.arange(len(ways))
    distance = np.abs(sums - np.average(sums, weights=ways))
    return float(ways[distance >= distance[found] - 1e-9].sum() / ways.sum())


def _compare(group: RunGroup[R], other: RunGroup[R], paired: bool | None) -> Comparison:
    ours, theirs = group.values, other.values
    common = [one for one in theirs if one in ours]
    ahead = sum(rank_key(ours[one], group.metric) < rank_key(theirs[one], group.metric) for one in common)
    if paired is None:
        splits = {run.experiment.index for run in other.runs}
        paired = len(splits) > 1 and len(common) == len(group.runs) == len(other.runs)
    scores = [ours[one] for one in common] if paired else group.scores, list(theirs.values())
    return Comparison(other.label, group.mean - other.mean, ahead, len(common), paired, *scores)


def _by_repetition(group: RunGroup[R], split: str) -> dict[tuple[int, int], float]:
    """The metric of a group on the nodes of a split, by split index and seed; the mean of runs that share both."""
    found: dict[tuple[int, int], list[float]] = {}
    for run in group.runs:
        found.setdefault(_split_and_seed(run), []).append(score(run, split, group.metric))
    return {one: float(np.mean(values)) for one, values in found.items()}


def _labels(runs: Sequence[FinishedRun]) -> list[str]:
    """Model names with the settings in which groups of the same name differ: the first few, or all if these collide."""
    alike = [without_repetition(run.experiment) for run in runs]
    leaves = {one: settings.leaves(settings.to_table(one)) for one in alike}
    tables = {one: {path.rpartition(".")[2]: value for path, value in found} for one, found in leaves.items()}
    parts = {}
    for one, table in tables.items():
        others = [other for group, other in tables.items() if group.model.name == one.model.name]
        differing = [key for key in table if any(other.get(key) != table[key] for other in others)]
        parts[one] = [one.model.name, *(f"{key}={table[key]}" for key in differing)]
    most = LABEL_SETTINGS + 1
    short = {one: ", ".join([*names[:most], *(["..."] if len(names) > most else [])]) for one, names in parts.items()}
    counts = Counter(short.values())
    return [short[one] if counts[short[one]] == 1 else ", ".join(parts[one]) for one in alike]
