"""Charts of information in bits; they need matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {"unique 1": "#4477aa", "unique 2": "#66ccee", "redundancy": "#bbbbbb", "synergy": "#ee6677"}


def bar_chart(
    path: Path, title: str, parts: Mapping[str, tuple[float, float, float]], models: Mapping[str, float]
) -> None:
    """Draws the parts of the information, each with its interval, and what models captured of all of it.

    Args:
        path: The picture's file; its ending (.png, .svg, .pdf) says in which format.
        title: What stands above.
        parts: The bits of each part, with the ends of its interval.
        models: The bits that each model captured; may be empty.
    """
    check_format(path)
    figure = _figure(7.0 + 0.35 * len(models), 3.6)
    axes = figure.subplots()
    names = [*parts, *models]
    for place, (name, (value, low, high)) in enumerate(parts.items()):
        spread = [[max(value - low, 0)], [max(high - value, 0)]]
        axes.bar(place, value, color=COLORS.get(name, "#444444"), yerr=spread, capsize=3, ecolor="#333333")
    for place, value in enumerate(models.values(), start=len(parts)):
        axes.bar(place, value, color="#228833")
    if models:
        axes.axvline(len(parts) - 0.5, color="#999999", linewidth=0.8)
        axes.text(len(parts) - 0.4, axes.get_ylim()[1], "captured by", va="top", fontsize=8)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_ylabel("bits")
    axes.set_title(title, fontsize=10)
    _write(figure, path)


def curves(
    path: Path,
    titles: Sequence[str],
    xlabel: str,
    ylabels: Sequence[str],
    panels: Sequence[Sequence[Mapping[str, Any]]],
    description: str = "",
) -> None:
    """Draws lines with error bars, a panel for each pair of title and label.

    Args:
        path: The picture's file.
        titles: One for each column of panels.
        xlabel: What the horizontal axis is.
        ylabels: What the vertical axis of each row of panels is.
        panels: The lines of each panel, row by row; a line has ``name``, ``x``, ``y`` and ``spread``, and ``style``
            if it is not drawn as the others.
        description: What the file says of itself, unseen in the picture.
    """
    check_format(path)
    figure = _figure(5.2 * len(titles) + 1.4, 3.4 * len(ylabels))
    grid = figure.subplots(len(ylabels), len(titles), squeeze=False)
    for number, lines in enumerate(panels):
        row, column = divmod(number, len(titles))
        axes = grid[row][column]
        for place, line in enumerate(lines):
            style = {"color": f"C{place % 10}", "marker": "o" if place < 10 else "s", "markersize": 3}
            style |= line.get("style", {})
            axes.errorbar(
                line["x"], line["y"], yerr=line["spread"], label=line["name"], linewidth=1, capsize=2, **style
            )
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabels[row])
        axes.set_title(titles[column], fontsize=10)
        axes.grid(alpha=0.3)
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize=8)
    _write(figure, path, description)


def stacked_bars(path: Path, title: str, bars: Mapping[str, Mapping[str, float]], description: str = "") -> None:
    """Draws a bar for each graph, made of its parts in bits; a part that came out below 0 is not drawn.

    Args:
        path: The picture's file.
        title: What stands above.
        bars: The bits of each part of each bar.
        description: What the file says of itself, unseen in the picture.
    """
    check_format(path)
    figure = _figure(7.0, 1.0 + 0.28 * len(bars))
    axes = figure.subplots()
    for place, parts in enumerate(bars.values()):
        start = 0.0
        for name, value in parts.items():
            axes.barh(place, max(value, 0.0), left=start, color=COLORS[name], label=name if place == 0 else None)
            start += max(value, 0.0)
    axes.set_yticks(range(len(bars)), list(bars), fontsize=8)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlabel("information about the label (bits)")
    axes.set_title(title, fontsize=10)
    figure.legend(loc="outside right center", fontsize=8)
    _write(figure, path, description)


def check_format(path: Path) -> None:
    """Refuses an ending that no format has, and says what is missing where matplotlib is."""
    check_ending(path)
    _figure(1, 1)


def check_ending(path: Path) -> None:
    """Refuses an ending that no format has."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path} must end in .png, .svg or .pdf, which says the format of the picture.")


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a chart needs matplotlib: pip install 'torch-goat[information]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def _write(figure: Figure, path: Path, description: str = "") -> None:
    content = io.BytesIO()
    field = "Subject" if path.suffix == ".pdf" else "Description"
    figure.savefig(content, format=path.suffix[1:], dpi=150, metadata={field: description} if description else None)
    write_atomic(path, content.getvalue())
