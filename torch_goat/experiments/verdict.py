"""Which of several models is better: paired differences with intervals, and a verdict in plain sentences."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from torch_goat.experiments.intervals import exact_decimals
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.training import metrics

if TYPE_CHECKING:
    from torch_goat.experiments.comparison import RunGroup

Conclusion = Literal["clearly better", "no clear difference", "too few runs to tell", "clearly worse"]
Scores = Mapping[tuple[int, int], float]  # a metric of one model, by split and seed

FEWEST: Final = 3  # pairs of runs below which nothing is concluded
MOST: Final = 1000  # splits or seeds beyond which it is impractical to settle a difference
CHEAPER: Final = 1.5  # factor in training time from which on a model counts as cheaper
MARGIN: Final = 0.01  # loss up to which a model is as good: a share, or a part of the target's standard deviation
WITHOUT_EDGES: Final = frozenset({"constant", "linear", "trees", "mlp"})  # models that do not read the graph
_NAMES: Final = {
    "goat": "GOAT", "gat": "GAT", "gatv2": "GATv2", "gcn": "GCN", "gin": "GIN", "pna": "PNA", "mlp": "MLP",
    "sage-mean": "GraphSAGE", "sage-max": "GraphSAGE (max)", "sage-lstm": "GraphSAGE (LSTM)",
    "trees": "boosted trees",
}  # fmt: skip
_BY_TASK: Final = {
    "constant": ("majority class", "training mean"),
    "linear": ("logistic regression", "ridge regression"),
}


@dataclass(frozen=True)
class Difference:
    """The difference of two models on the same nodes, over the splits and seeds that both have.

    Over several splits, seeds of the same split are averaged first, and the differences of the splits form the pairs.
    Random splits share most of their training nodes, so the variance of the mean difference is ``(1/n + test/train)``
    times that of the differences (Nadeau and Bengio, 2003), with the numbers of test and training nodes; the same
    formula serves the folds of a cross-validation, whose training sets also overlap (Bouckaert and Frank, 2004). The
    interval uses Student's t with n - 1 degrees of freedom. Independent graphs need no correction.

    With a single split, only the seeds vary. Two models trained with the same seed have nothing in common, so the
    interval is Welch's. It does not cover other splits or other nodes.
    """

    first: str
    second: str
    metric: str
    difference: float  # mean of the first minus mean of the second
    error: float  # standard error of the difference; NaN if unknown
    interval: tuple[float, float]  # 95 %; NaN if unknown
    p: float | None  # two-sided, that the models are equally good; None if unknown
    pairs: int
    over: Literal["splits", "seeds"]  # what varies between the pairs
    conclusion: Conclusion  # about the first
    needed: int | None  # splits or seeds that would make the difference clear at the present spread; None: none would


def paired_difference(
    ours: Scores,
    theirs: Scores,
    *,
    first: str = "",
    second: str = "",
    metric: str = "accuracy",
    lower_is_better: bool = False,
    ratio: float = 0.0,
    test_nodes: int = 0,
) -> Difference:
    """Compares two models over the splits and seeds that both have; see :class:`Difference`.

    Args:
        ours: The metric of the first model, by split and seed.
        theirs: The metric of the second model.
        first: The name of the first model.
        second: The name of the second model.
        metric: The name of the metric.
        lower_is_better: Whether small values are good.
        ratio: Number of test nodes over number of training nodes, for splits of the same nodes; 0 for others.
        test_nodes: Number of test nodes, used if the difference of the accuracies is the same on all splits.
    """
    from scipy import special  # imports slowly

    common = [one for one in ours if one in theirs and math.isfinite(ours[one]) and math.isfinite(theirs[one])]
    splits = sorted({split for split, _ in common})
    over: Literal["splits", "seeds"] = "splits" if len(splits) > 1 else "seeds"
    a, b = (np.array([values[one] for one in common]) for values in (ours, theirs))
    if over == "splits":
        of = np.array([split for split, _ in common])
        a, b = (np.array([values[of == split].mean() for split in splits]) for values in (a, b))
    pairs, exact = len(a), exact_decimals([*a, *b])
    differences, none = (a - b).round(exact), 10.0 ** (4 - 2 * exact)  # a variance that is a rounding error
    mean = float(differences.mean()) if pairs else math.nan
    unknown = Difference(
        first, second, metric, mean, math.nan, (math.nan, math.nan), None, pairs, over, "too few runs to tell", None
    )
    if pairs < FEWEST:
        return unknown
    # The variance of the difference is that of one pair times (1/n + ratio).
    if over == "splits":
        variance, freedom = float(differences.var(ddof=1)), pairs - 1.0
        if variance < none and mean and metric == "accuracy" and test_nodes:
            # The same on all splits: at least the variance from the choice of the test nodes that it concerns.
            variance = (abs(mean) - mean**2) / test_nodes
    else:
        parts, ratio = np.var(np.round([a, b], exact), axis=1, ddof=1), 0.0
        variance = float(parts.sum())
        freedom = (pairs - 1) * variance**2 / float(np.square(parts).sum()) if variance else pairs - 1.0
    if variance < none and mean:
        return unknown  # several runs with the same outcome are no more than one
    n = np.arange(pairs, max(MOST, pairs) + 1)
    quantiles = special.stdtrit(freedom * (n - 1) / (pairs - 1), 0.975)
    errors = np.sqrt(variance * (1 / n + ratio))
    enough = n[quantiles * errors < abs(mean)]
    error, half = float(errors[0]), float(quantiles[0] * errors[0])
    p = float(2 * special.stdtr(freedom, -abs(mean) / error)) if error else 1.0
    ahead = (mean < 0) == lower_is_better
    conclusion: Conclusion = "no clear difference"
    if half < abs(mean):
        conclusion = "clearly better" if ahead else "clearly worse"
    needed = int(enough[0]) if len(enough) else None
    return Difference(
        first, second, metric, mean, error, (mean - half, mean + half), p, pairs, over, conclusion, needed
    )


@dataclass(frozen=True)
class Verdict:
    """Which model to use, and how certain that is.

    The best model and the runner-up are chosen on the validation nodes; their difference is measured on the test nodes.

    A model is *as good* as another if their difference on the test nodes is not clear, and its interval over several
    splits excludes a loss of more than the margin: one percentage point of a share, one percent of the target's
    standard deviation for a root mean squared or mean absolute error, two percent of its variance for a mean squared
    error, and 0.02 of R². An interval that includes larger losses shows nothing, so a wide one never makes a model as
    good. One percentage point is one node in a hundred, less than most splits of a graph can tell apart. For a model
    that is better than the training mean, one percent of the standard deviation is at most about 0.02 of R².

    The runs of a single split do not show that a model is as good, because their interval covers the seeds only, and
    neither do results that are equal on all splits.
    """

    best: str  # label of its group
    runner_up: str
    metric: str
    difference: float  # mean of the best minus mean of the runner-up, on the test nodes
    interval: tuple[float, float]  # 95 %; NaN if unknown
    p: float | None
    pairs: int
    over: Literal["splits", "seeds"]  # what varies between the pairs: with one split, the interval is about seeds only
    conclusion: Conclusion
    recommended: str  # the best useful model, or the cheapest that is as good; the best one if none is useful
    graph_helps: bool | None  # None if neither is shown, or no model without edges (or none with them) was compared
    sentences: tuple[str, ...]  # all of this, for the user: first the answer, last the advice

    def __str__(self) -> str:
        return " ".join(self.sentences)


Compare = Callable[["RunGroup[Any]", "RunGroup[Any]", bool], Difference]  # the last: on the validation nodes


def judge(groups: Sequence["RunGroup[Any]"], compare: Compare) -> Verdict | None:
    """The verdict on groups of runs, the best on the validation nodes first; ``None`` for fewer than two."""
    if len(groups) < 2:
        return None
    best, second = groups[:2]
    versus = compare(best, second, False)
    name, other = best.name, second.name
    lead = f"{name} is best on the validation nodes, {other} is second."
    if math.isclose(best.rank_mean, second.rank_mean, rel_tol=1e-11):
        lead = f"{name} and {other} are equally good on the validation nodes."
    sentences = [f"{_conclude(versus, name, other)}; {lead}", _measured(versus, name, other), _settle(versus)]
    margin = margin_of(groups)
    helps, text = _graph(groups, compare, margin)
    useful, useless = _useful(groups, compare)
    if useful:
        recommended, advice = _recommend(useful, compare, margin)
    else:
        helps, text, recommended = None, "", best
        wanted = "more nodes with a known target, or other columns,"
        if versus.conclusion == "too few runs to tell":
            wanted = "more splits or seeds"
        advice = f"Recommended: {wanted} before any of these models is used."
    sentences = [useless, *sentences, text, advice]
    return Verdict(
        best.label, second.label, best.metric, versus.difference, versus.interval, versus.p, versus.pairs, versus.over,
        versus.conclusion, recommended.label, helps, tuple(filter(None, sentences)),
    )  # fmt: skip


def margin_of(groups: Sequence["RunGroup[Any]"]) -> float:
    """The loss up to which a model is as good as another, see :class:`Verdict`; NaN for an error of unknown scale."""
    metric = groups[0].metric
    if metric not in metrics.LOWER_IS_BETTER:
        return 2 * MARGIN if metric == "r2" else MARGIN
    measured = [run.result.metrics.get("test", {}) for group in groups for run in group.runs]
    shares = [(one.get("mse", math.nan), 1 - one.get("r2", math.nan)) for one in measured]  # error and its share
    variances = [error / share for error, share in shares if 0 < share < math.inf and math.isfinite(error)]
    variance = median(variances) if variances else math.nan
    return 2 * MARGIN * variance if metric == "mse" else MARGIN * math.sqrt(variance)


def _is_as_good(model: "RunGroup[Any]", other: "RunGroup[Any]", compare: Compare, margin: float) -> bool:
    versus = compare(model, other, False)
    loss = versus.interval[1] if versus.metric in metrics.LOWER_IS_BETTER else -versus.interval[0]
    varies = versus.error > 0  # several runs with the same outcome are no more than one
    return varies and versus.over == "splits" and versus.conclusion != "clearly worse" and loss <= margin


def _is_close(model: "RunGroup[Any]", best: "RunGroup[Any]", compare: Compare) -> bool:
    """Whether no clear difference was found, and that on the validation nodes is at most one standard error."""
    val, test = (compare(best, model, ranking) for ranking in (True, False))
    return abs(val.difference) <= val.error and test.conclusion in ("no clear difference", "clearly worse")


def simplicity(group: "RunGroup[Any]") -> tuple[int, str]:
    """Sorts groups that are equally good: the simpler model first, others by their label."""
    return list(KINDS).index(_model(group)), group.label


def shown(label: str, metric: str = "") -> str:
    """The name of a model for users, given the label of its group and the metric."""
    if label in _BY_TASK:
        return _BY_TASK[label][metric in metrics.OF_TASK["regression"]]
    return _NAMES.get(label, label)


def _conclude(versus: Difference, name: str, other: str) -> str:
    if versus.conclusion == "too few runs to tell":
        return f"Too few runs to tell whether {name} or {other} is better"
    if versus.conclusion == "no clear difference":
        return f"There is no clear difference between {name} and {other}"
    return f"{name} is {versus.conclusion} than {other} on the test nodes"


def _measured(versus: Difference, name: str, other: str) -> str:
    metric, size = metrics.NAMES.get(versus.metric, versus.metric), versus.difference
    if not math.isfinite(size):
        return "There are no test nodes on which both models were evaluated."
    unit = " percentage points" if versus.metric in metrics.PERCENT else ""
    number = partial(metrics.number, versus.metric, digits=3)
    how = f"{number(abs(size))}{unit} {'above' if size > 0 else 'below'}" if size else "the same as"
    what = versus.over if versus.pairs != 1 else versus.over[:-1]
    text = f"{versus.pairs} {what}"
    if math.isfinite(versus.interval[0]):
        low, high = map(number, versus.interval)
        text = f"95 % interval of the difference {low} to {high} over {text}, p = {_p(versus.p)}"
    only = " With a single split, this covers the choice of the seed only." if versus.over == "seeds" else ""
    return f"On the test nodes, the {metric} of {name} is {how} that of {other} ({text}).{only}"


def _settle(versus: Difference) -> str:
    """What would settle an open question."""
    if versus.conclusion == "too few runs to tell":
        if versus.pairs < FEWEST:
            return f"At least {FEWEST} splits, or seeds on one split, are needed to tell."
        return "All runs have the same result; several splits are needed to tell."
    if versus.conclusion != "no clear difference" or not versus.difference:
        return ""
    if versus.needed is not None:
        return (
            f"About {versus.needed} {versus.over} instead of {versus.pairs} would settle it, if the difference and its "
            "spread stay the same."
        )
    if versus.over == "splits":
        return "More splits of the same nodes would not settle it; more nodes with a known target might."
    return f"Not even {MOST} seeds would settle it; several splits might."


def _graph(groups: Sequence["RunGroup[Any]"], compare: Compare, margin: float) -> tuple[bool | None, str]:
    """Whether the best model with edges is better than the best one without."""
    without = next((one for one in groups if _model(one) in WITHOUT_EDGES), None)
    reader = next((one for one in groups if _model(one) not in WITHOUT_EDGES), None)
    if without is None or reader is None:
        return None, ""
    versus = compare(reader, without, False)
    names = reader.name, without.name
    if versus.conclusion == "too few runs to tell":
        return None, "Too few runs to tell whether the graph helps."
    if versus.conclusion == "clearly better":
        return True, f"The graph helps: {names[0]} is clearly better than {names[1]}, the best model without edges."
    if versus.conclusion == "clearly worse":
        return False, f"The graph does not help: {names[1]}, which ignores the edges, is better than {names[0]}."
    if _is_as_good(without, reader, compare, margin):
        level = f"as good as {names[0]} {_within(versus.metric)}"
        return False, f"The graph does not help: {names[1]}, which ignores the edges, is {level}."
    return None, (
        f"It is not shown that the graph helps: no clear difference was found between {names[0]} and {names[1]}, which "
        "ignores the edges."
    )


def _useful(groups: Sequence["RunGroup[Any]"], compare: Compare) -> tuple[Sequence["RunGroup[Any]"], str]:
    """The models to recommend from, the best first, and a sentence unless these are all.

    Where the best model is not shown to be better than the trivial one, they are those that are.
    """
    best, trivial = groups[0], next((one for one in groups if _model(one) == "constant"), None)
    if trivial is None:
        return groups, ""
    found = {one.label: compare(one, trivial, False) for one in groups if one is not trivial}
    better = [one for one in groups if one is not trivial and found[one.label].conclusion == "clearly better"]
    versus = found.get(best.label)
    if versus is not None and versus.conclusion == "too few runs to tell":
        worse = versus.difference > 0 if versus.metric in metrics.LOWER_IS_BETTER else versus.difference < 0
        if not worse:
            return groups, ""
    if best in better:
        return groups, ""
    tables = best.runs[0].experiment.tables
    what = "" if tables is None else f" {tables.target!r}"
    text = f"to predict{what} better than the {trivial.name}"
    if not better:
        return better, f"No model is shown {text}."
    if best is trivial:
        return better, f"{better[0].name} is shown {text}."
    return better, f"{best.name} is not shown {text}, but {better[0].name} is."


def _recommend(groups: Sequence["RunGroup[Any]"], compare: Compare, margin: float) -> tuple["RunGroup[Any]", str]:
    """The first model or the cheapest that is as good, and a sentence that also names a cheaper one that may be."""
    best = groups[0]
    cheaper = [one for one in groups[1:] if CHEAPER * one.seconds < best.seconds and _model(one) != "constant"]
    cheaper.sort(key=lambda one: one.seconds)
    for one in cheaper:
        if _is_as_good(one, best, compare, margin):
            level = f"as good as {best.name} {_within(best.metric)}"
            return one, f"Recommended: {one.name}, which is {level} and trains in {_times(one, best)}."
    for one in cheaper:
        if _is_close(one, best, compare):
            why, found = "", f", and no clear difference from {best.name} was found"
            if compare(best, one, False).conclusion == "clearly worse":
                why, found = ", which is ahead on the validation nodes", " and clearly better on the test nodes"
            return best, f"Recommended: {best.name}{why}; {one.name} is cheaper ({_times(one, best)}){found}."
    return best, f"Recommended: {best.name}."


def _within(metric: str) -> str:
    """The margin, for users."""
    part = (
        f"{2 * MARGIN:g} of R²" if metric in ("mse", "r2") else f"{100 * MARGIN:g} % of the target's standard deviation"
    )
    return f"to within {'one percentage point' if metric in metrics.PERCENT else part}"


def _times(group: "RunGroup[Any]", other: "RunGroup[Any]") -> str:
    ours, theirs = (f"{one.seconds:.2g}" if one.seconds < 10 else f"{one.seconds:.0f}" for one in (group, other))
    return f"{ours} s instead of {theirs} s"


def _model(group: "RunGroup[Any]") -> str:
    return str(group.runs[0].experiment.model.name)


def _p(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}" if value >= 0.01 else f"{value:.1g}"
