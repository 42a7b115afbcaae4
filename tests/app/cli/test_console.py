import io
from collections import Counter

import pytest
from rich.console import Console

from torch_goat.app.cli.console import Aligned

COLUMNS = ["run", "dataset", "validation", "test"]


def shown(rows: list[list[str]], width: int) -> str:
    printed = io.StringIO()
    Console(width=width, file=printed).print(Aligned(COLUMNS, rows))
    assert all(len(line) <= width for line in printed.getvalue().splitlines())
    return printed.getvalue()


@pytest.mark.parametrize("width", [25, 40, 80])
def test_a_narrow_terminal_shows_every_sign(width: int) -> None:
    rows = [["runs/village/gat-17", "village", "0.8312", "0.9154"], ["runs/village/gat-18", "village", "0.8", "[b]"]]
    signs = Counter("".join(shown(rows, width).split()).replace("─", ""))
    assert signs == Counter("".join([*COLUMNS, *(cell for row in rows for cell in row)]))


@pytest.mark.parametrize("width", [46, 60, 80])
def test_numbers_stay_whole_where_text_can_be_folded(width: int) -> None:
    rows = [["runs/village-12345678/gat-17", "village", "0.8312", "0.9154"], ["runs/b", "village", "0.8", "12.25"]]
    assert {"0.8312", "0.9154", "0.8", "12.25"} <= {*shown(rows, width).split()}
