import io
from collections import Counter

import pytest
from rich.console import Console

from torch_goat.cli.console import Aligned


@pytest.mark.parametrize("width", [25, 40, 80])
def test_a_narrow_terminal_shows_every_sign(width: int) -> None:
    columns = ["run", "dataset", "validation", "test"]
    rows = [["runs/village/gat-17", "village", "0.8312", "0.9154"], ["runs/village/gat-18", "village", "0.8", "[b]"]]
    printed = io.StringIO()
    Console(width=width, file=printed).print(Aligned(columns, rows))
    signs = Counter("".join(printed.getvalue().split()).replace("─", ""))
    assert signs == Counter("".join([*columns, *(cell for row in rows for cell in row)]))
    assert all(len(line) <= width for line in printed.getvalue().splitlines())


@pytest.mark.parametrize("width", [46, 60, 80])
def test_numbers_stay_whole_where_text_can_be_folded(width: int) -> None:
    columns = ["run", "dataset", "validation", "test"]
    rows = [["runs/village-12345678/gat-17", "village", "0.8312", "0.9154"], ["runs/b", "village", "0.8", "12.25"]]
    printed = io.StringIO()
    Console(width=width, file=printed).print(Aligned(columns, rows))
    assert {"0.8312", "0.9154", "0.8", "12.25"} <= {*printed.getvalue().split()}
    assert all(len(line) <= width for line in printed.getvalue().splitlines())
