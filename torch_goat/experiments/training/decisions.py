"""From the scores of a classifier to probabilities and decisions, all of it fitted on the validation nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from torch_goat.lazy import lazy_module
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

BINS: Final = 10  # of equal width, for the calibration error
ERRORS: Final = 2.0  # standard errors by which nodes may differ from probabilities that are left as they are
LARGEST: Final = 100.0  # temperature; the smallest is its inverse
_STEPS: Final = 100  # of a bisection
_GRAMMAR: Final = "a probability such as 0.3, precision=0.9, or cost=5:1 (of a false negative and a false positive)"


@dataclass(frozen=True)
class Decision:
    """How scores become probabilities and a class."""

    temperature: float = 1.0  # scores are divided by it
    #: The probability of the second of two classes from which on it is predicted; ``None``: the most probable class.
    threshold: float | None = None

    def probabilities(self, out: Tensor) -> Tensor:
        """The probabilities of the classes ``[..., C]``, from their scores."""
        return (out / self.temperature).softmax(dim=-1)

    def classes(self, out: Tensor) -> Tensor:
        """The predicted classes ``[...]``, from the scores of all classes."""
        if self.threshold is None:
            return out.argmax(dim=-1)
        return (self.probabilities(out.double())[..., 1] >= self.threshold).long()


class ThresholdRule(NamedTuple):
    """How a threshold is chosen: ``"0.3"``, ``"precision=0.9"`` or ``"cost=5:1"``."""

    kind: Literal["probability", "precision", "cost"]
    values: tuple[float, ...]  # the costs are those of a false negative and a false positive

    @classmethod
    def parse(cls, text: str) -> ThresholdRule:
        kind, found, rest = text.replace(" ", "").partition("=")
        try:
            values = tuple(float(part) for part in (rest if found else kind).split(":"))
        except ValueError:
            values = ()
        share = len(values) == 1 and 0 < values[0] < 1
        if not found and share:
            return cls("probability", values)
        if kind == "precision" and (share or values == (1.0,)):
            return cls("precision", values)
        if kind == "cost" and len(values) == 2 and all(0 < value < math.inf for value in values):
            return cls("cost", values)
        raise ValueError(f"threshold must be {_GRAMMAR}, got {text!r}.")


def check_threshold(text: str | None, classes: int) -> None:
    """Refuses a threshold unless there are two classes; 0 classes are a regression."""
    if text is not None and classes != 2:
        what = f"{classes} classes" if classes else "real numbers"
        raise SettingsError(f"threshold = {text!r} needs a target with two classes, but it has {what}; leave it out.")


def fit_temperature(out: Tensor, y: Tensor) -> float:
    """The temperature closest to 1 that agrees with nodes, given their scores ``[n, C]`` and classes ``[n]``.

    A temperature agrees if the scores of the nodes' own classes are on average at most ``ERRORS`` standard errors away
    from what the probabilities predict. At the temperature with the lowest log loss, they are what is predicted. The
    standard error, too, is computed from the probabilities: estimated from few nodes it can be 0, as if all are right.
    """
    out = out.double() - out.double().amax(dim=-1, keepdim=True)
    true = out.gather(1, y.view(-1, 1)).view(-1)
    if not out.isfinite().all():
        return 1.0

    def errors_below(log_temperature: float) -> float:
        """By how many standard errors the scores of the classes are below what is expected: above 0 if too certain."""
        shares = (out / math.exp(log_temperature)).softmax(dim=-1)
        expected = (shares * out).sum(dim=-1)
        variance = (shares * (out - expected.view(-1, 1)) ** 2).sum()
        return float((expected - true).sum() / variance.sqrt())

    now = errors_below(0.0)
    if not abs(now) > ERRORS:  # NaN if all scores of each node are equal
        return 1.0
    disagrees, agrees = 0.0, math.copysign(math.log(LARGEST), now)
    for _ in range(_STEPS):
        middle = (disagrees + agrees) / 2
        if math.copysign(1, now) * errors_below(middle) > ERRORS:
            disagrees = middle
        else:
            agrees = middle
    return math.exp(agrees)


def choose_threshold(rule: ThresholdRule, positive: Tensor, y: Tensor) -> float:
    """The threshold for probabilities of the second class ``[n]``, given the classes ``[n]``.

    For a precision, it is the one with the largest recall among those with at least this precision, or with the
    highest precision if none has it; for costs, the one with the lowest cost. Of equally good ones, it is the one
    closest to the threshold that is best for exact probabilities.
    """
    if rule.kind == "probability":
        return rule.values[0]
    seen = torch.cat([positive.new_zeros(1), positive, positive.new_ones(1)]).unique()
    tried = torch.cat([seen[:1], (seen[:-1] + seen[1:]) / 2])  # [t], in the middle between two probabilities
    found = _at_thresholds(tried, positive, y)
    if rule.kind == "cost":
        missed, false = rule.values
        keys = [missed * found["missed"] + false * found["false"], (tried - false / (missed + false)).abs()]
    else:
        precision = found["precision"].nan_to_num(nan=-1.0)
        short = torch.where(precision >= rule.values[0], torch.zeros_like(precision), 1 - precision)
        keys = [short, -found["recall"], (tried - rule.values[0]).abs()]
    order = torch.arange(len(tried), device=tried.device)
    for key in reversed(keys):  # stable sorts, the most important key last
        order = order[key[order].round(decimals=12).argsort(stable=True)]
    return float(tried[order[0]])


def _at_thresholds(tried: Tensor, positive: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Of each threshold ``[t]``, the precision and recall of the second class, and the shares of nodes that are missed
    and false positives; NaN for a precision without positives and for a recall without members."""
    hits, guessed = (
        len(some) - torch.searchsorted(some.sort().values, tried).double() for some in (positive[y == 1], positive)
    )
    members, nodes = (y == 1).sum().double(), len(y)
    shares = {"missed": (members - hits) / nodes, "false": (guessed - hits) / nodes}
    return {"precision": hits / guessed, "recall": hits / members, **shares}


def calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """The expected calibration error: the mean distance of confidence and accuracy ``[n]`` in bins of equal width."""
    place = (confidence * BINS).long().clamp(max=BINS - 1)
    gap = torch.zeros(BINS, dtype=torch.double, device=confidence.device)
    gap.index_add_(0, place, confidence.double() - correct.double())
    return float(gap.abs().sum() / max(len(confidence), 1))


def measure_calibration(out: Tensor, y: Tensor, temperature: float) -> dict[str, float]:
    """The log loss and calibration error of scores ``[n, C]``, before and after they are divided by a temperature."""
    found = {}
    for when, scores in (("before", out.double()), ("after", out.double() / temperature)):
        confidence, guess = scores.softmax(dim=-1).max(dim=-1)
        found[f"log_loss_{when}"] = float(F.cross_entropy(scores, y))
        found[f"error_{when}"] = calibration_error(confidence, guess == y)
    return found


class Decided(NamedTuple):
    """A decision with its quality on each split."""

    decision: Decision
    calibration: dict[str, dict[str, float]]  # see measure_calibration
    at_threshold: dict[str, dict[str, float]] | None  # precision, recall, missed and false positives


def decide(parts: Mapping[str, tuple[Tensor, Tensor]], threshold: str | None) -> Decided:
    """Calibrates scores ``[n, C]`` and chooses a threshold, both on the validation nodes.

    Args:
        parts: The scores and classes of each split.
        threshold: How the threshold is chosen, see :class:`ThresholdRule`.
    """
    temperature = fit_temperature(*parts["val"])
    calibration = {split: measure_calibration(*part, temperature) for split, part in parts.items()}
    if threshold is None:
        return Decided(Decision(temperature), calibration, None)
    scaled = Decision(temperature)
    positive = {split: scaled.probabilities(out.double())[:, 1] for split, (out, _) in parts.items()}
    chosen = choose_threshold(ThresholdRule.parse(threshold), positive["val"], parts["val"][1])
    quality = {}
    for split, (_, y) in parts.items():
        found = _at_thresholds(positive[split].new_tensor([chosen]), positive[split], y)
        quality[split] = {name: float(value) for name, value in found.items()}
    return Decided(Decision(temperature, chosen), calibration, quality)
