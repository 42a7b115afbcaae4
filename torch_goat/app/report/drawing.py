"""Charts of matplotlib's as SVG that takes its colours and its letters from the page."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that stand for variables of the page's style sheet, so that they follow light and dark.
INK: Final = "#0a0a01"
MUTED: Final = "#0a0a02"
GRID: Final = "#0a0a03"
SERIES: Final = ("#0a0a11", "#0a0a12", "#0a0a13", "#0a0a14")

_SVG: Final = "{http://www.w3.org/2000/svg}"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # letters stay letters
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": 9,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
}


class Chart:
    """A chart of the page, drawn in a ``with`` block: ``with chart.axes(4, 3) as axes``.

    Args:
        name: Its name in the page, one word.
        title: What it shows.
        caption: What a reader needs to know.
    """

    def __init__(self, name: str, title: str, caption: str) -> None:
        self.name, self.title, self.caption, self.svg = name, title, caption, ""

    @contextmanager
    def axes(self, width: float = 4.6, height: float = 3.0) -> Iterator[Axes]:
        """Axes to draw on, in inches; the chart is made when the block ends."""
        with mpl.rc_context({**_STYLE, "svg.hashsalt": self.name}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # the page's own font may have the letter
            figure = Figure(figsize=(width, height), layout="constrained")
            yield figure.subplots()
            text = io.StringIO()
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        self.svg = _for_page(text.getvalue(), self.name, f"{self.title}. {self.caption}")


def _for_page(text: str, name: str, label: str) -> str:
    """A picture as part of a page: names of its own, the page's colours and letters, as wide as there is room."""
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{_SVG}metadata" or child.tag == f"{_SVG}style":
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
    value = re.sub(r"font-family:[^;]*;?|font: ([\d.]+px) [^;]*", _font, value)
    return re.sub(r"#0a0a(\d\d)", r"var(--chart-\1)", value)


def _font(found: "re.Match[str]") -> str:
    return f"font-size: {found[1]}" if found[1] else ""


def series(axes: Axes, number: int, x: Any, y: Any, label: str, **style: Any) -> None:
    """A line in one of the page's colours; of a few points with markers."""
    marker = "o" if len(x) < 20 else ""
    axes.plot(x, y, color=SERIES[number], label=label, marker=marker, markersize=4, **style)
