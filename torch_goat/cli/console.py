"""What commands print: results on the standard output, progress on the standard error."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_goat.training.processes import processes

WIDE = 1000  # columns where no terminal sets a limit, so that nothing is folded


def console(*, stderr: bool = False) -> Console:
    """A console that folds lines to a terminal and leaves them alone in files and pipes; of several processes, one
    speaks."""
    made = Console(stderr=stderr, highlight=False, quiet=not processes().leads)
    if not made.is_terminal:
        made.width = WIDE
    return made


def say(text: str) -> None:
    """Prints a line of plain text."""
    console().print(text, markup=False, soft_wrap=True)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """An aligned table; a column of numbers is flush right."""
    lines = [list(row) for row in rows]
    made = Table(box=SIMPLE_HEAD)
    for number, column in enumerate(columns):
        numeric = bool(lines) and all(_is_number(line[number]) for line in lines)
        made.add_column(column, justify="right" if numeric else "left", overflow="fold")  # nothing is cut off
    for line in lines:
        made.add_row(*map(escape, line))
    return made


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "") or 0)
    except ValueError:
        return False
    return True
