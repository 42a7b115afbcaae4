"""The charts of a report."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from torch_goat.app.explain import Stability
from torch_goat.app.explain.figure import short
from torch_goat.app.report.compare import Row
from torch_goat.app.report.drawing import INK, MUTED, SERIES, Chart, series
from torch_goat.app.report.measures import Bin

COUNTED: Final = 12  # the most classes whose confusions are written out
POINTS: Final = 2000  # of a cloud
NAMES: Final = {"accuracy": "accuracy (%)", "macro_f1": "macro F1 (%)", "mse": "squared error (target's unit²)"}


def intervals_chart(rows: Sequence[Row]) -> Chart:
    """The test metric of every model with its interval."""
    metric = rows[0].metric
    unit = 1 if metric == "mse" else 100
    chart = Chart("intervals", "Models compared", "Points: test metric; lines: 95 % intervals. Best validation on top.")
    with chart.axes(5.4, 0.9 + 0.36 * len(rows)) as axes:
        for place, row in enumerate(rows):
            axes.plot([unit * row.low, unit * row.high], [place, place], color=SERIES[0], alpha=0.5, linewidth=4)
            axes.plot([unit * row.mean], [place], "o", color=SERIES[0])
        axes.set_yticks(range(len(rows)), [short(row.label) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(f"test {NAMES.get(metric, metric)}")
        axes.set_ylabel("model")
        axes.grid(axis="y", visible=False)
    return chart


def loss_chart(curves: Mapping[str, np.ndarray], name: str, best_epoch: int) -> Chart:
    """The loss by epoch."""
    chart = Chart("loss", "Loss by epoch", f"The weights of epoch {best_epoch} were kept (dashed line).")
    with chart.axes() as axes:
        series(axes, 0, curves["epoch"], curves["train_loss"], "training, with dropout")
        series(axes, 1, curves["epoch"], curves["val_loss"], "validation")
        _epochs(axes, best_epoch)
        axes.set_ylabel(name)
        axes.legend()
    return chart


def metric_chart(curves: Mapping[str, np.ndarray], metric: str, best_epoch: int) -> Chart:
    """The metric of every part by epoch."""
    unit, name = (100 if metric == "accuracy" else 1), NAMES.get(metric, metric)
    chart = Chart("metric", f"{name.partition(' (')[0].capitalize()} by epoch", "Dashed line: the epoch that was kept.")
    with chart.axes() as axes:
        for number, (split, label) in enumerate({"train": "training", "val": "validation", "test": "test"}.items()):
            series(axes, number, curves["epoch"], unit * curves[f"{split}_{metric}"], label)
        _epochs(axes, best_epoch)
        axes.set_ylabel(name)
        axes.legend()
    return chart


def confusion_chart(counts: np.ndarray, classes: Sequence[str]) -> Chart:
    """Predicted beside true classes."""
    size = len(classes)
    chart = Chart("confusion", "Confusion matrix", "Test nodes; the colour is the share within the true class.")
    names = [short(name) for name in classes]
    total = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(2.3 + 0.2 * size, 5.2)
    with chart.axes(side + 0.6, side) as axes:
        for row, column in np.ndindex(counts.shape):
            share = counts[row, column] / total[row, 0]
            if share > 0:
                color = SERIES[0] if row == column else SERIES[1]
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, alpha=0.7 * share))
            if size <= COUNTED:
                text = axes.text(column, row, f"{counts[row, column]}", ha="center", va="center")
                text.set(fontsize=9 - size // 6, color=INK if share > 0 else MUTED)
        axes.set_xlim(-0.5, size - 0.5)
        axes.set_ylim(size - 0.5, -0.5)
        axes.set_xticks(range(size), names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(size), names)
        axes.set_xlabel("predicted class (number of nodes)")
        axes.set_ylabel("true class")
        axes.set_aspect("equal")
        axes.grid(visible=False)
    return chart


def residual_chart(truth: np.ndarray, predicted: np.ndarray) -> Chart:
    """Residuals beside predictions."""
    shown = np.random.default_rng(0).permutation(len(truth))[:POINTS]
    caption = "Test nodes: true value less prediction."
    caption += f" {len(shown):,} of {len(truth):,} nodes, drawn at random." if len(shown) < len(truth) else ""
    chart = Chart("residuals", "Residuals", caption)
    with chart.axes() as axes:
        axes.axhline(0, color=MUTED, linewidth=0.8)
        residual = (truth - predicted)[shown]
        axes.scatter(predicted[shown], residual, s=9, color=SERIES[0], alpha=0.5, linewidths=0)
        axes.set_xlabel("prediction (units of the target)")
        axes.set_ylabel("residual (units of the target)")
    return chart


def calibration_chart(bins: Sequence[Bin], error: float) -> Chart:
    """How often predictions of some confidence are right."""
    caption = f"On the diagonal a confidence is what it says. Expected calibration error {100 * error:.1f} %."
    chart = Chart("calibration", "Calibration", f"{caption} Bars: 95 % intervals.")
    with chart.axes() as axes:
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=0.8, linestyle="--")
        _points(axes, [100 * one.center for one in bins], bins, 100)
        axes.set_xlabel("confidence: probability of the predicted class (%)")
        axes.set_ylabel("right (%)")
        axes.set_xlim(min([100 * one.low for one in bins], default=0) - 5, 102)
    return chart


def means_chart(bins: Sequence[Bin]) -> Chart:
    """What nodes of similar predictions are in the mean."""
    chart = Chart("calibration", "Calibration", "On the diagonal predictions are right in the mean. 95 % intervals.")
    with chart.axes() as axes:
        ends = [min(one.low for one in bins), max(one.high for one in bins)] if bins else [0, 1]
        axes.plot(ends, ends, color=MUTED, linewidth=0.8, linestyle="--")
        _points(axes, [one.center for one in bins], bins, 1)
        axes.set_xlabel("mean prediction (units of the target)")
        axes.set_ylabel("mean true value (units of the target)")
    return chart


def degree_chart(bins: Sequence[Bin], metric: str) -> Chart:
    """The metric of nodes with similarly many neighbours."""
    unit, name = (100 if metric == "accuracy" else 1), NAMES.get(metric, metric)
    title = f"{name.partition(' (')[0].capitalize()} by degree"
    chart = Chart("degree", title, "Test nodes; bars: 95 % intervals; in brackets: number of nodes.")
    with chart.axes() as axes:
        _points(axes, range(len(bins)), bins, unit)
        labels = [f"{one.low:.0f}" if one.low == one.high else f"{one.low:.0f}–{one.high:.0f}" for one in bins]
        labels = [f"{label}\n({one.count:,})" for label, one in zip(labels, bins, strict=True)]
        axes.set_xticks(range(len(bins)), labels)
        axes.set_xlabel("degree (number of neighbours)")
        axes.grid(axis="x", visible=False)
        axes.set_ylabel(f"test {name}")
    return chart


def stability_chart(stability: Stability) -> Chart | None:
    """How near the order of earlier epochs is to the learned one; nothing if none can be compared."""
    known = [one for one in stability.epochs if np.isfinite(one.mean)]
    if not known:
        return None
    caption = (
        f"Kendall's tau with the learned order, mean over heads and {len(stability.nodes):,} nodes; band: quartiles."
    )
    chart = Chart("stability", "Order stability over epochs", caption)
    with chart.axes() as axes:
        layers, lowest = sorted({one.layer for one in known}), 0.0
        for number, layer in enumerate(layers):
            found = [one for one in known if one.layer == layer]
            color, epochs = number % len(SERIES), [one.number for one in found]
            tau = [one.tau.nanmean(dim=1).numpy() for one in found]
            low, high = (np.array([np.nanquantile(one, share) for one in tau]) for share in (0.25, 0.75))
            lowest = min(lowest, float(low.min()))
            axes.fill_between(epochs, low, high, color=SERIES[color], alpha=0.15, linewidth=0)
            series(axes, color, epochs, [one.mean for one in found], f"GOAT layer {layer}")
        axes.set_ylim(lowest - 0.05, 1.05)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("epoch")
        axes.set_ylabel("Kendall's tau (−1 to 1)")
        if len(layers) > 1:
            axes.legend()
    return chart


def _points(axes: Axes, x: Sequence[float] | range, bins: Sequence[Bin], unit: float) -> None:
    value = unit * np.array([one.value for one in bins])
    low, high = (unit * np.array([getattr(one, name) for one in bins]) for name in ("value_low", "value_high"))
    error = np.nan_to_num(np.stack([value - low, high - value])).clip(min=0)
    axes.errorbar(x, value, error, fmt="o-", color=SERIES[0], ecolor=MUTED, elinewidth=1, capsize=3, markersize=5)


def _epochs(axes: Axes, best_epoch: int) -> None:
    axes.axvline(best_epoch, color=INK, linewidth=0.8, linestyle="--")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
