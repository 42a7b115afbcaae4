import io
from collections import Counter

import pytest
from rich.console import Console

from torch_goat.cli.console import table


@pytest.mark.parametrize("width", [25, 40, 80])
def test_a_narrow_terminal_shows_every_sign(width: int) -> None:
    columns = ["run", "dataset", "validation", "test"]
    rows = [["runs/village/gat-17", "village", "0.8312", "0.9154"], ["runs/village/gat-18", "village", "0.8", "[b]"]]
    printed = io.StringIO()
    Console(width=width, file=printed).print(table(columns, rows))
    signs = Counter("".join(printed.getvalue().split()).replace("─", ""))
    assert signs == Counter("".join([*columns, *(cell for row in rows for cell in row)]))
    assert all(len(line) <= width for line in printed.getvalue().splitlines())
