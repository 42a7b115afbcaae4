"""Output of commands: results on standard output, progress on standard error."""

import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from torch_goat.experiments.training.processes import processes
from torch_goat.settings import printable

WIDE = 100_000  # characters per line where no terminal sets a limit
GAP = 3  # between two columns of a table
WORD = 8  # the width to which a text column may be folded


class _Escaped(Console):
    """Escapes control characters in whatever is printed: names in data could contain commands to the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before a table measures it

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for one in super().render(renderable, options):
            yield one if one.control else one._replace(text=printable(one.text))


def console(*, stderr: bool = False) -> Console:
    """A console that wraps lines on a terminal only; of several processes, only the first prints."""
    made = _Escaped(stderr=stderr, highlight=False, quiet=not processes().leads)
    if not made.is_terminal:
        made.width = WIDE
    return made


def say(text: str, *, stderr: bool = False) -> None:
    """Prints a line of plain text."""
    console(stderr=stderr).print(text, markup=False, soft_wrap=True)


def announce(*names: str) -> None:
    """Says what is read, before imports that take seconds."""
    if "torch" not in sys.modules:
        say(f"Reading {' and '.join(filter(None, names))} ...", stderr=True)


def write(text: str) -> None:
    """Prints data in another format, such as CSV."""
    typer.echo(printable(text), nl=False)


class Aligned:
    """An aligned table; numeric columns are right-aligned, and folded only if there is no other way."""

    def __init__(self, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        self.names, self.rows = list(columns), [list(row) for row in rows]
        cells = [[row[number] for row in self.rows] for number in range(len(self.names))]
        self.numeric = [bool(column) and all(map(_is_number, column)) for column in cells]
        named = zip(self.names, cells, strict=True)
        self._widths = [max(map(cell_len, [name, *column])) for name, column in named]

    def width(self, longest: int = WIDE) -> int:
        """The width of the table if text columns are folded to so many characters."""
        widths = zip(self._widths, self.numeric, strict=True)
        return sum(GAP + (width if number else min(width, longest)) for width, number in widths)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self.width(WORD) <= options.max_width
        made = Table(box=SIMPLE_HEAD)
        for name, number in zip(self.names, self.numeric, strict=True):
            justify: JustifyMethod = "right" if number else "left"
            made.add_column(name, justify=justify, overflow="fold", no_wrap=number and whole)  # never truncates
        for row in self.rows:
            made.add_row(*map(escape, row))
        yield made


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").removesuffix(" %") or 0)
    except ValueError:
        return False
    return True
