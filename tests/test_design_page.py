"""The code walks of docs/design.md name files that exist, and all files that a forward pass executes."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import torch_goat
from tests.pages import ROOT
from torch_goat.nn import GOATConv

PACKAGE = Path(torch_goat.__file__).parent
PAGE = (ROOT / "docs/design.md").read_text(encoding="utf-8")


def walk(section: str) -> tuple[list[str], list[str]]:
    """The files of a walk in order, and the helpers listed below it."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    steps, helpers = text.split("\nHelpers: ")
    return re.findall(r"^\d+\. `([\w/]+\.py)`", steps, re.MULTILINE), re.findall(r"`([\w/]+\.py)`", helpers)


@contextmanager
def executed() -> Iterator[set[str]]:
    """The files of the package with functions that are called in the meantime."""
    files = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        optimized = frame.f_code.co_flags & 1  # bodies of modules and classes are not
        if event == "call" and optimized and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix())

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


def test_one_forward_pass() -> None:
    steps, helpers = walk("One forward pass")
    conv = GOATConv(16, 32, backend="reference")
    x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3, 1], [1, 2, 0, 1, 0]])
    conv(x, edge_index)  # imports what is imported on first use
    with executed() as files:
        conv(x, edge_index.clone())
    assert len(steps) == len(set(steps)) <= 10
    assert {*steps, *helpers} == files


def test_from_tables_to_a_report() -> None:
    steps, helpers = walk("From CSV to report")
    assert 20 <= len(steps) == len(set(steps)) <= 25
    assert not {file for file in (*steps, *helpers) if not (PACKAGE / file).is_file()}
