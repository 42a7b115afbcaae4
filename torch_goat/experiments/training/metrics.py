"""Metrics of predictions. Each but the last takes the output of a model and the targets, and returns a tensor on their
device, which those of ``DECIDING`` do not wait for.

For classification these are the scores ``out`` of the classes ``[n, C]`` and the classes ``y`` ``[n]``, for regression
the predictions ``[n, T]`` and the targets ``[n, T]``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from torch_goat.lazy import lazy_module

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    from torch_goat.nn.ordering import Ordering
else:
    torch, F = lazy_module("torch"), lazy_module("torch.nn.functional")

OF_TASK: Final = {  # the first is the one that decides by default
    "classification": ("accuracy", "macro_f1", "roc_auc", "pr_auc"),
    "regression": ("mse", "rmse", "mae", "r2"),
}
LOWER_IS_BETTER: Final = frozenset({"mse", "rmse", "mae"})
DECIDING: Final = ("accuracy", "macro_f1", "roc_auc")  # for classes, those that can decide which model is better
PERCENT: Final = frozenset({"accuracy", "macro_f1", "roc_auc", "pr_auc"})  # shares that are shown as percentages
NAMES: Final = {
    "macro_f1": "macro F1", "roc_auc": "ROC AUC", "pr_auc": "PR AUC", "mse": "mean squared error",
    "rmse": "root mean squared error", "mae": "mean absolute error", "r2": "R²",
}  # fmt: skip


def title(name: str, percent: str = "%") -> str:
    """The name of a metric for users, with the unit if it is a percentage; differences of these have points."""
    return NAMES.get(name, name) + (f" ({percent})" if name in PERCENT else "")


def scale(name: str) -> int:
    """The factor with which a metric is shown: 100 for percentages."""
    return 100 if name in PERCENT else 1


def number(name: str, value: float, digits: int = 4) -> str:
    """Formats a metric for a table, without its unit: shares in per cent with one decimal, others with some digits."""
    return f"{100 * value:.1f}" if name in PERCENT else f"{value:.{digits}g}"


def show(name: str, value: float) -> str:
    """Formats a metric: errors, which can have any magnitude, with four digits, others with four decimals or in %."""
    if name in PERCENT:
        return f"{100 * value:.2f} %"
    return f"{value:.4g}" if name in LOWER_IS_BETTER else f"{value:.4f}"


def digits(mean: float, deviation: float) -> int:
    """The significant digits with which numbers show four digits of their standard deviation."""
    return min(15, 4 + max(0, math.floor(math.log10(max(1.0, abs(mean) / deviation)))))


def duration(seconds: float) -> str:
    """A readable time: ``"40 s"``, ``"12 min"``, ``"3.5 h"``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def decisive(first: str, weighted: bool) -> str:
    """The metric that decides which run is better: the task's first, or one that weighs classes as the loss does."""
    return "macro_f1" if first == "accuracy" and weighted else first


def accuracy(out: Tensor, y: Tensor) -> Tensor:
    """The share of nodes whose largest score is that of their class."""
    return (out.argmax(dim=-1) == y).double().mean()


def macro_f1(out: Tensor, y: Tensor) -> Tensor:
    """The mean F1 score of the classes that are present or predicted."""
    number = torch.arange(out.size(1), device=y.device)
    guessed, true = out.argmax(dim=-1, keepdim=True) == number, y.view(-1, 1) == number  # [n, C]
    seen = (guessed.sum(dim=0) + true.sum(dim=0)).double()
    scores = 2 * (guessed & true).sum(dim=0) / seen.clamp(min=1)
    return scores.sum() / (seen > 0).sum()


def roc_auc(out: Tensor, y: Tensor) -> Tensor:
    """The area under the ROC curve: that of class 1 of two classes, else the mean over each class against the rest.

    Equal scores count half. Classes that no node or every node has are left out; NaN if there are no others, or if a
    score is NaN.
    """
    scores, member = _against_rest(out, y)
    ordered = scores.sort(dim=-1).values
    # Ranks from 1; equal scores share the mean of theirs.
    below, upto = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    rank = (below + upto + 1).double() / 2
    inside = member.sum(dim=-1)
    outside = member.size(1) - inside
    wins = (rank * member).sum(dim=-1) - inside * (inside + 1) / 2
    pairs = inside * outside
    area = (wins / pairs.clamp(min=1)).sum() / (pairs > 0).sum()  # without pairs there are no wins
    return area.masked_fill(out.isnan().any(), math.nan)


def pr_auc(out: Tensor, y: Tensor) -> Tensor:
    """The average precision, which summarises the precision-recall curve, for the same classes as :func:`roc_auc`.

    It is the mean, over the nodes of a class, of the precision if their score were the threshold. Classes that no node
    has are left out; NaN if there are no others, or if a score is NaN.
    """
    scores, member = _against_rest(out, y)
    ordered, order = scores.sort(dim=-1)
    below = torch.searchsorted(ordered, scores)  # [C, n], the number of nodes with lower scores
    inside = member.sum(dim=-1, keepdim=True)  # [C, 1]
    lower = F.pad(member.gather(1, order).cumsum(dim=-1), (1, 0)).gather(1, below)  # members with lower scores
    precision = (inside - lower).double() / (member.size(1) - below)
    means = (precision * member).sum(dim=-1) / inside.view(-1)
    return means[inside.view(-1) > 0].mean().masked_fill(out.isnan().any(), math.nan)


def _against_rest(out: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and members of class 1 of two classes ``[1, n]``, else of each class against the rest ``[C, n]``."""
    member = y == torch.arange(out.size(1), device=out.device).view(-1, 1)  # [C, n]
    if out.size(1) == 2:
        return (out[:, 1] - out[:, 0]).view(1, -1), member[1:]
    # In the order of the probabilities; rounded, since the sums of a softmax would separate equal ones.
    return out.double().log_softmax(dim=-1).float().t().contiguous(), member


def mse(out: Tensor, y: Tensor) -> Tensor:
    """The mean squared error."""
    return (out.double() - y.double()).square().mean()


def rmse(out: Tensor, y: Tensor) -> Tensor:
    """The root of the mean squared error, in the unit of the target."""
    return mse(out, y).sqrt()


def mae(out: Tensor, y: Tensor) -> Tensor:
    """The mean absolute error, in the unit of the target."""
    return (out.double() - y.double()).abs().mean()


def r2(out: Tensor, y: Tensor) -> Tensor:
    """The share of explained variance, averaged over targets; NaN for fewer than two nodes.

    For a constant target it is 1 if all predictions are exact, else 0.
    """
    if y.size(0) < 2:
        return out.new_full((), math.nan)
    y = y.double()
    left = (out.double() - y).square().sum(dim=0)  # [T]
    whole = (y - y.mean(dim=0)).square().sum(dim=0)
    share = torch.where((y != y[0]).any(dim=0), 1 - left / whole, (left == 0).double())
    return share.mean()


def tau(orderings: Iterable[Ordering], key: Tensor, nodes: Tensor) -> float:
    """How well the best head of any layer reads neighbours in increasing or decreasing order of their keys ``[N]``: the
    absolute value of Kendall's tau, averaged over those of some nodes that have at least two neighbours.

    A node that reads itself counts as its own neighbour.
    """
    from torch_goat.nn.ordering import kendall_tau

    found = []
    for ordering in orderings:
        segment = torch.repeat_interleave(ordering.ptr.diff())  # [E]
        place = key.to(ordering.device)[ordering.source].argsort(dim=-1, descending=True, stable=True)  # [K, E]
        place = place.gather(1, segment[place].argsort(dim=-1, stable=True))
        by_node = kendall_tau(ordering.token, ordering.token.gather(1, place), ordering.ptr)  # [T, K]
        found.append(by_node[nodes.to(ordering.device)].nanmean(dim=0).abs().max())
    return float(torch.stack(found).max())
