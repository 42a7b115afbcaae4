"""Charts as SVG that takes its colours and fonts from the page."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from torch_goat.app.explain import Importance, Stability
from torch_goat.app.explain.figure import short
from torch_goat.app.report.measures import Bin, Calibrated
from torch_goat.app.report.text import SPLITS
from torch_goat.experiments import NamedGraph, Run
from torch_goat.experiments.comparison import RunGroup
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER, NAMES, scale, title

MAX_COUNTS: Final = 12  # classes up to which the confusion matrix shows counts
POINTS: Final = 2000  # of a scatter plot

# Placeholder colours that become variables of the style sheet, so that charts follow the light or dark theme.
INK: Final = "#0a0a01"
MUTED: Final = "#0a0a02"
GRID: Final = "#0a0a03"
SERIES: Final = ("#0a0a11", "#0a0a12", "#0a0a13", "#0a0a14")

_SVG: Final = "{http://www.w3.org/2000/svg}"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # keep text as text
    "text.parse_math": False,  # names may contain $
    "font.size": 9,
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), GRID),
    **dict.fromkeys(("axes.labelcolor", "axes.titlecolor", "text.color"), INK),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), MUTED),
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
}


class Chart:
    """A chart of the page, drawn in a ``with chart.axes() as axes`` block; its element ids begin with ``name``."""

    def __init__(self, name: str, title: str, caption: str) -> None:
        self.name, self.title, self.caption, self.svg = name, title, caption, ""

    @contextmanager
    def axes(self, width: float = 4.6, height: float = 3.0) -> Iterator[Axes]:
        """Axes to draw on; sizes are in inches."""
        with mpl.rc_context({**_STYLE, "svg.hashsalt": self.name}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # the font of the page may have the character
            figure = Figure(figsize=(width, height), layout="constrained")
            yield figure.subplots()
            text = io.StringIO()
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        self.svg = _for_page(text.getvalue(), self.name, f"{self.title}. {self.caption}")


def _for_page(text: str, name: str, label: str) -> str:
    """Adapts an SVG to the page: unique ids, colours and fonts of the page, responsive width."""
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in (f"{_SVG}metadata", f"{_SVG}style")]:
            parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        attributes = {key: _attribute(key, value, name) for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({"href" if key == _LINK else key: value for key, value in attributes.items()})
    width = float(root.attrib["viewBox"].split()[2])
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib.update({"role": "img", "aria-label": label, "style": f"max-width: {width * 4 / 3:.0f}px"})
    return ElementTree.tostring(root, encoding="unicode", method="html")


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == _LINK:
        return f"#{name}-{value.removeprefix('#')}"
    value = re.sub(r"url\(#", f"url(#{name}-", value)
    value = re.sub(r"font-family:[^;]*;?", "", value)
    value = re.sub(r"font: ([\d.]+px) [^;]*", r"font-size: \1", value)
    return re.sub(r"#0a0a(\d\d)", r"var(--chart-\1)", value)


def intervals_chart(groups: Sequence[RunGroup[Run]]) -> Chart:
    metric = groups[0].metric
    unit = scale(metric)
    caption = "Points: test metric; lines: 95 % intervals. The model with the best validation is on top."
    chart = Chart("intervals", "Comparison of models", caption)
    with chart.axes(5.4, 0.9 + 0.36 * len(groups)) as axes:
        for place, group in enumerate(groups):
            ends = [unit * end for end in group.interval]
            axes.plot(ends, [place, place], color=SERIES[0], alpha=0.5, linewidth=4)
            axes.plot([unit * group.mean], [place], "o", color=SERIES[0])
        axes.set_yticks(range(len(groups)), [short(group.name) for group in groups])
        axes.set(ylim=(len(groups) - 0.5, -0.5), xlabel=f"test {title(metric)}", ylabel="model")
        axes.grid(axis="y", visible=False)
    return chart


def importance_chart(found: Sequence[Importance], metric: str, nodes: str) -> Chart:
    worse = "increase" if metric in LOWER_IS_BETTER else "drop"
    caption = f"The {worse} of the metric on the {nodes} nodes if the column is permuted. Bars: 95 % intervals."
    chart = Chart("importance", "Importance of columns", caption)
    with chart.axes(4.6, 0.9 + 0.28 * len(found)) as axes:
        values, unit = [one.drop for one in found], scale(metric)
        ends = np.array([one.interval for one in found])
        axes.barh(range(len(found)), [unit * value for value in values], color=SERIES[0], alpha=0.7, height=0.6)
        error = unit * np.stack([values - ends[:, 0], ends[:, 1] - values]).clip(min=0)
        axes.errorbar([unit * value for value in values], range(len(found)), xerr=error, fmt="none", ecolor=INK)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_yticks(range(len(found)), [short(one.feature.name) for one in found])
        axes.set(ylim=(len(found) - 0.5, -0.5), xlabel=f"{worse} of the {title(metric, 'points')}", ylabel="column")
        axes.grid(axis="y", visible=False)
    return chart


def learning_charts(run: Run, graph: NamedGraph, metric: str) -> list[Chart]:
    """The loss and the deciding metric of training and validation nodes, or the metric that has curves."""
    curves, best_epoch = run.curves, run.result.best_epoch
    loss = "cross-entropy (nats)"
    if not graph.classes:
        of = "target unit" if graph.target_scale == 1 else "standard deviations"
        loss = f"squared error ({of}²)"
    measured = [name.removeprefix("val_") for name in curves if name.startswith("val_") and name != "val_loss"]
    metric = metric if metric in measured else measured[0]
    parts = {split: label for split, label in SPLITS.items() if split != "test"}
    losses = {"training, with dropout": curves["train_loss"], "validation": curves["val_loss"]}
    metrics = {label: scale(metric) * curves[f"{split}_{metric}"] for split, label in parts.items()}
    caption = f"The dashed line marks epoch {best_epoch}, whose weights were kept."
    charts = [Chart("loss", "Loss by epoch", caption), Chart("metric", f"{_name(metric)} by epoch", caption)]
    for chart, label, lines in zip(charts, (loss, title(metric)), (losses, metrics), strict=True):
        with chart.axes() as axes:
            for number, (split, values) in enumerate(lines.items()):
                _line(axes, number, curves["epoch"], values, split)
            axes.axvline(best_epoch, color=INK, linewidth=0.8, linestyle="--")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set(xlabel="epoch", ylabel=label)
            axes.legend()
    return charts


def confusion_chart(counts: np.ndarray, classes: Sequence[str]) -> Chart:
    size = len(classes)
    chart = Chart("confusion", "Confusion matrix", "Test nodes. The colour shows the share of the true class.")
    names = [short(name) for name in classes]
    total = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(2.3 + 0.2 * size, 5.2)
    with chart.axes(side + 0.6, side) as axes:
        for row, column in np.ndindex(counts.shape):
            share = counts[row, column] / total[row, 0]
            if share > 0:
                color = SERIES[0] if row == column else SERIES[1]
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, alpha=0.7 * share))
            if size <= MAX_COUNTS:
                text = axes.text(column, row, f"{counts[row, column]}", ha="center", va="center")
                text.set(fontsize=9 - size // 6, color=INK if share > 0 else MUTED)
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal")
        axes.set(xlabel="predicted class (number of nodes)", ylabel="true class")
        axes.set_xticks(range(size), names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(size), names)
        axes.grid(visible=False)
    return chart


def residual_chart(truth: np.ndarray, predicted: np.ndarray) -> Chart:
    shown = np.random.default_rng(0).permutation(len(truth))[:POINTS]
    caption = "Test nodes: true value minus prediction."
    caption += f" {len(shown):,} of {len(truth):,} nodes, sampled at random." if len(shown) < len(truth) else ""
    chart = Chart("residuals", "Residuals", caption)
    with chart.axes() as axes:
        axes.axhline(0, color=MUTED, linewidth=0.8)
        residual = (truth - predicted)[shown]
        axes.scatter(predicted[shown], residual, s=9, color=SERIES[0], alpha=0.5, linewidths=0)
        axes.set(xlabel="prediction (units of the target)", ylabel="residual (units of the target)")
    return chart


def calibration_chart(after: Calibrated, before: Calibrated | None = None) -> Chart:
    """Confidences of a classifier, and what they were before they were rescaled, if they were."""
    caption = f"Confidences on the diagonal are calibrated. Expected calibration error: {100 * after.error:.1f} % "
    caption += "(not rescaled)" if before is None else f"(before rescaling: {100 * before.error:.1f} %)"
    chart = Chart("calibration", "Calibration", f"{caption}. Bars: 95 % intervals.")
    low = min((one.low for part in (after, before) if part is not None for one in part.bins), default=0)
    with chart.axes() as axes:
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=0.8, linestyle="--")
        if before is not None:
            x, y = [100 * one.center for one in before.bins], [100 * one.value for one in before.bins]
            axes.plot(x, y, "s:", color=SERIES[1], markersize=4, label="before rescaling")
        _points(axes, [100 * one.center for one in after.bins], after.bins, 100, "rescaled" if before else None)
        axes.set(xlabel="confidence: probability of the predicted class (%)", ylabel="correct predictions (%)")
        axes.set(xlim=(100 * low - 5, 102))
        if before is not None:
            axes.legend()
    return chart


def mean_chart(bins: Sequence[Bin]) -> Chart:
    """The mean true value by prediction of a regression."""
    caption = "Predictions on the diagonal are correct on average. Bars: 95 % intervals."
    ends = [min((one.low for one in bins), default=0), max((one.high for one in bins), default=1)]
    chart = Chart("calibration", "Calibration", caption)
    with chart.axes() as axes:
        axes.plot(ends, ends, color=MUTED, linewidth=0.8, linestyle="--")
        _points(axes, [one.center for one in bins], bins, 1)
        axes.set(xlabel="mean prediction (units of the target)", ylabel="mean true value (units of the target)")
    return chart


def degree_chart(bins: Sequence[Bin], metric: str) -> Chart:
    caption = "Test nodes. Bars: 95 % intervals; in brackets: number of nodes."
    chart = Chart("degree", f"{_name(metric)} by degree", caption)
    with chart.axes() as axes:
        _points(axes, range(len(bins)), bins, scale(metric))
        labels = [f"{one.low:.0f}" if one.low == one.high else f"{one.low:.0f}–{one.high:.0f}" for one in bins]
        labels = [f"{label}\n({one.nodes:,})" for label, one in zip(labels, bins, strict=True)]
        axes.set_xticks(range(len(bins)), labels)
        axes.set(xlabel="degree (number of neighbours)", ylabel=f"test {title(metric)}")
        axes.grid(axis="x", visible=False)
    return chart


def stability_chart(stability: Stability) -> Chart | None:
    """The agreement of recorded epochs with the learned order; ``None`` if there is none."""
    known = [one for one in stability.epochs if np.isfinite(one.mean)]
    if not known:
        return None
    caption = (
        f"Kendall's tau with the learned order, mean over heads and {len(stability.nodes):,} nodes. Band: quartiles."
    )
    chart = Chart("stability", "Stability of the order over epochs", caption)
    with chart.axes() as axes:
        layers, lowest = sorted({one.layer for one in known}), 0.0
        for number, layer in enumerate(layers):
            found = [one for one in known if one.layer == layer]
            color, epochs = number % len(SERIES), [one.number for one in found]
            tau = [one.tau.nanmean(dim=1).numpy() for one in found]
            low, high = (np.array([np.nanquantile(one, share) for one in tau]) for share in (0.25, 0.75))
            lowest = min(lowest, float(low.min()))
            axes.fill_between(epochs, low, high, color=SERIES[color], alpha=0.15, linewidth=0)
            _line(axes, color, epochs, [one.mean for one in found], f"GOAT layer {layer}")
        axes.set(ylim=(lowest - 0.05, 1.05), xlabel="epoch", ylabel="Kendall's tau (−1 to 1)")
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(layers) > 1:
            axes.legend()
    return chart


def _name(metric: str) -> str:
    name = NAMES.get(metric, metric)
    return name[0].upper() + name[1:]


def _line(axes: Axes, number: int, x: Any, y: Any, label: str) -> None:
    marker = "o" if len(x) < 20 else ""
    axes.plot(x, y, color=SERIES[number], label=label, marker=marker, markersize=4)


def _points(axes: Axes, x: Sequence[float] | range, bins: Sequence[Bin], unit: float, label: str | None = None) -> None:
    value = unit * np.array([one.value for one in bins])
    ends = unit * np.array([one.interval for one in bins]).reshape(-1, 2)
    error = np.nan_to_num(np.stack([value - ends[:, 0], ends[:, 1] - value])).clip(min=0)
    style: dict[str, Any] = {"color": SERIES[0], "ecolor": MUTED, "elinewidth": 1, "capsize": 3, "markersize": 5}
    axes.errorbar(x, value, error, fmt="o-", label=label, **style)
