"""What predictions are judged by, computed on their device."""

from typing import Final

import torch
from torch import Tensor

LOWER_IS_BETTER: Final = frozenset({"mse"})  # of the metrics below


def show(name: str, value: float) -> str:
    """A metric as a text: shares with four decimals, errors, which may be of any size, with four digits."""
    return f"{value:.4g}" if name in LOWER_IS_BETTER else f"{value:.4f}"


def decisive(first: str, weighted: bool) -> str:
    """The metric that settles which run is better: where classes weigh the same in the loss, they do there too.

    Args:
        first: The first metric of the task.
        weighted: Whether the classes weigh the same.
    """
    return "macro_f1" if first == "accuracy" and weighted else first


def accuracy(out: Tensor, y: Tensor) -> float:
    """The share of nodes whose largest score is at their class.

    Args:
        out: The scores of the classes ``[n, C]``.
        y: The classes ``[n]``.
    """
    return float((out.argmax(dim=-1) == y).double().mean())


def macro_f1(out: Tensor, y: Tensor) -> float:
    """The mean of the classes' F1, over the classes that are present or predicted.

    Args:
        out: The scores of the classes ``[n, C]``.
        y: The classes ``[n]``.
    """
    guess, classes = out.argmax(dim=-1), out.size(1)
    hits = torch.bincount(y[guess == y], minlength=classes).double()  # [C]
    seen = torch.bincount(torch.cat([y, guess]), minlength=classes)  # [C], true or predicted
    return float((2 * hits / seen)[seen > 0].mean())


def roc_auc(out: Tensor, y: Tensor) -> float:
    """The area under the ROC curve: of class 1 if there are two, else the mean of each class against the rest.

    Equal scores count half. A class that no node or every node has cannot be ranked and is left out; NaN if there is
    no other, or if a score is.

    Args:
        out: The scores of the classes ``[n, C]``; their softmax are the probabilities.
        y: The classes ``[n]``.
    """
    if out.isnan().any():
        return float("nan")
    # In the order of the probabilities; rounded, since the sums of a softmax would tear equal ones apart [C, n].
    scores = out.double().log_softmax(dim=-1).float().t().contiguous()
    member = y == torch.arange(out.size(1), device=out.device).view(-1, 1)  # [C, n]
    if out.size(1) == 2:
        scores, member = (out[:, 1] - out[:, 0]).view(1, -1), member[1:]
    ordered = scores.sort(dim=-1).values
    # Places from 1; equal scores share the mean of theirs.
    below, upto = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    place = (below + upto + 1).double() / 2
    inside = member.sum(dim=-1)
    outside = member.size(1) - inside
    wins = (place * member).sum(dim=-1) - inside * (inside + 1) / 2
    pairs = inside * outside
    return float((wins / pairs)[pairs > 0].mean())


def mse(out: Tensor, y: Tensor) -> float:
    """The mean squared error.

    Args:
        out: The predictions ``[n, T]``.
        y: The targets ``[n, T]``.
    """
    return float((out.double() - y.double()).square().mean())


def r2(out: Tensor, y: Tensor) -> float:
    """The share of the variance that is explained, in the mean over targets; NaN for fewer than two nodes.

    Of a target that does not vary it is 1 if it is met exactly and 0 if not.

    Args:
        out: The predictions ``[n, T]``.
        y: The targets ``[n, T]``.
    """
    if y.size(0) < 2:
        return float("nan")
    y = y.double()
    left = (out.double() - y).square().sum(dim=0)  # [T]
    whole = (y - y.mean(dim=0)).square().sum(dim=0)
    share = torch.where((y != y[0]).any(dim=0), 1 - left / whole, (left == 0).double())
    return float(share.mean())
