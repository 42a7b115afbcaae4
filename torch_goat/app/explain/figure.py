"""An explanation as a picture."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from torch_goat.app.explain.explanation import Explanation
from torch_goat.experiments.information.charts import check_ending
from torch_goat.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN: Final = 20  # neighbours
NAME_LENGTH: Final = 24  # letters of a name


def save_figure(explanation: Explanation, path: str | Path) -> None:
    """Draws contributions, coefficients per head and interactions of the 20 strongest neighbours (needs matplotlib).

    Args:
        explanation: The explanation.
        path: The file, a ``.png``, ``.svg`` or ``.pdf``.
    """
    path = Path(path)
    check_ending(path)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a figure needs matplotlib: pip install 'torch-goat[report]'.") from error
    shown = explanation.effects[:SHOWN]
    names = [short(explanation.graph.ids[one.neighbor]) for one in shown]
    height = 1.6 + 0.26 * max(len(shown), 4)
    with mpl.rc_context({"text.parse_math": False, "font.size": 9}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters that the font does not have
        figure = Figure(figsize=(12, height), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _contributions(left, explanation, names)
        _coefficients(middle, explanation, names)
        _interactions(right, explanation, names)
        figure.suptitle(_title(explanation), fontsize=11)
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], dpi=130)
    write_atomic(path, content.getvalue())


def short(name: str) -> str:
    """A name that fits beside a chart: one line, without signs that cannot be shown, cut if it is long."""
    name = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


def _title(explanation: Explanation) -> str:
    said = explanation.prediction
    text = f"Node {short(explanation.graph.ids[explanation.node])}: {short(explanation.label(said.value))}"
    return text + (f" (probability {said.probability:.3f})" if explanation.graph.classes else "")


def _contributions(axes: Axes, explanation: Explanation, names: list[str]) -> None:
    values = [one.contribution for one in explanation.effects[:SHOWN]]
    colors = ["#2a78b8" if value >= 0 else "#c8553d" for value in values]
    axes.barh(range(len(values)), values, color=colors)
    axes.axvline(0, color="#666666", linewidth=0.8)
    _named(axes, names, f"contribution ({short(explanation.unit)})", "Left out one by one")


def _coefficients(axes: Axes, explanation: Explanation, names: list[str]) -> None:
    """A column per head; in every cell the place in that head's order."""
    shown = [one.neighbor for one in explanation.effects[:SHOWN]]
    title = "Coefficients, and places in the order"
    if not explanation.readings or not shown:
        _named(axes, names, "", title)
        text = "no order: the network has no GOAT layer" if not explanation.readings else "no neighbours"
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
    _named(axes, names, "GOAT layer and head", title)


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
    _named(axes, names, "neighbour", "Interactions: both left out, less each alone")


def _heat(axes: Axes, values: np.ndarray, colors: dict[str, Any], label: str) -> None:
    image = axes.imshow(values, aspect="auto", **colors)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label(label)


def _named(axes: Axes, names: list[str], label: str, title: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_xlabel(label)
    axes.set_ylabel("neighbour")
    axes.set_title(title, fontsize=10)
