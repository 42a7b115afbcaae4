"""Explanations as figures; they need matplotlib."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from torch_goat.app.explain.explanation import Explanation
from torch_goat.experiments.information.charts import new_figure
from torch_goat.experiments.information.charts import save_figure as write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN: Final = 20  # neighbours
NAME_LENGTH: Final = 24  # characters of a name


def save_figure(explanation: Explanation, path: str | Path) -> None:
    """Draws contributions, coefficients and interactions of the 20 strongest neighbours (PNG, SVG or PDF)."""
    path = Path(path)
    shown = explanation.effects[:SHOWN]
    figure = new_figure(path, 12, 1.6 + 0.26 * max(len(shown), 4))
    import matplotlib as mpl

    names = [short(explanation.graph.ids[one.neighbor]) for one in shown]
    with mpl.rc_context({"text.parse_math": False, "font.size": 9}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters that the font does not have
        left, middle, right = figure.subplots(1, 3)
        _contributions(left, explanation, names)
        _coefficients(middle, explanation, names)
        _interactions(right, explanation, names)
        said = explanation.prediction
        title = f"Node {short(explanation.graph.ids[explanation.node])}: {short(explanation.label(said.value))}"
        title += f" (probability {said.probability:.3f})" if explanation.graph.classes else ""
        figure.suptitle(title, fontsize=11)
        write_figure(figure, path)


def short(name: str) -> str:
    """A name for a chart: one line, without unprintable characters, truncated if long."""
    name = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


def _contributions(axes: Axes, explanation: Explanation, names: list[str]) -> None:
    values = [one.contribution for one in explanation.effects[:SHOWN]]
    colors = ["#2a78b8" if value >= 0 else "#c8553d" for value in values]
    axes.barh(range(len(values)), values, color=colors)
    axes.axvline(0, color="#666666", linewidth=0.8)
    _label_axes(axes, names, f"contribution ({short(explanation.unit)})", "Neighbours removed one by one")


def _coefficients(axes: Axes, explanation: Explanation, names: list[str]) -> None:
    """One column per head; each cell shows the position in the order of that head."""
    shown = [one.neighbor for one in explanation.effects[:SHOWN]]
    title = "Coefficients and positions in the order"
    if not explanation.readings or not shown:
        _label_axes(axes, names, "", title)
        text = "no order: the network has no GOAT layers" if not explanation.readings else "no neighbours"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
        return
    weight = np.full((len(shown), len(explanation.readings)), np.nan)
    for column, reading in enumerate(explanation.readings):
        place = {node: number for number, node in enumerate(reading.neighbors)}
        for row, node in enumerate(shown):
            if node in place:
                weight[row, column] = reading.coefficients[place[node]]
                axes.text(column, row, str(place[node] + 1), ha="center", va="center", fontsize=7)
    _heat(axes, weight, {"cmap": "Blues", "vmin": 0, "vmax": 1.6 * np.nanmax(weight)}, "coefficient")
    axes.set_xticks(range(len(explanation.readings)), [f"{one.layer}.{one.head}" for one in explanation.readings])
    _label_axes(axes, names, "GOAT layer and head", title)


def _interactions(axes: Axes, explanation: Explanation, names: list[str]) -> None:
    place = {one.neighbor: number for number, one in enumerate(explanation.effects[:SHOWN])}
    values = np.full((len(names), len(names)), np.nan)
    for one in explanation.interactions:
        row, column = place[one.first], place[one.second]
        values[row, column] = values[column, row] = one.value
    if explanation.interactions:
        largest = max(float(np.nanmax(np.abs(values))), 1e-12)
        _heat(axes, values, {"cmap": "RdBu", "vmin": -largest, "vmax": largest}, f"({short(explanation.unit)})")
        axes.set_xticks(range(len(names)), names, rotation=90)
    _label_axes(axes, names, "neighbour", "Interactions: removed together minus removed alone")


def _heat(axes: Axes, values: np.ndarray, colors: dict[str, Any], label: str) -> None:
    image = axes.imshow(values, aspect="auto", **colors)
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label=label)


def _label_axes(axes: Axes, names: list[str], label: str, title: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set(ylim=(max(len(names), 1) - 0.5, -0.5), xlabel=label, ylabel="neighbour")
    axes.set_title(title, fontsize=10)
