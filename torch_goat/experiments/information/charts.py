"""Charts as files; they need matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {"unique 1": "#4477aa", "unique 2": "#66ccee", "redundancy": "#bbbbbb", "synergy": "#ee6677"}


def bar_chart(
    path: Path, title: str, parts: Mapping[str, tuple[float, float, float]], models: Mapping[str, float]
) -> None:
    """Draws the bits of each part of the information with its interval, and the bits that each model captured."""
    figure = new_figure(path, 7.0 + 0.35 * len(models), 3.6)
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
    save_figure(figure, path)


def new_figure(path: Path, width: float = 1, height: float = 1) -> Figure:
    """A figure of a size in inches; raises an error if it cannot be drawn or the file ending is not supported."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"the chart file {path} must end in .png, .svg or .pdf.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("charts need matplotlib: pip install 'torch-goat[report]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path, description: str = "") -> None:
    """Writes a figure, with a description in the metadata of the file."""
    content = io.BytesIO()
    field = "Subject" if path.suffix == ".pdf" else "Description"
    figure.savefig(content, format=path.suffix[1:], dpi=150, metadata={field: description} if description else None)
    write_atomic(path, content.getvalue())
