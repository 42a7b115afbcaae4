"""What the page on information says of its results is what the results say; its tables are the files themselves."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "information"
PAGE = (ROOT / "docs" / "information.md").read_text()


def neighborhoods() -> dict[tuple[str, str], dict[str, Any]]:
    rows = json.loads((RESULTS / "neighborhoods.json").read_text())["rows"]
    return {(row["dataset"], row["groups"]): row for row in rows}


def share(row: dict[str, Any], part: str) -> float:
    return row[part]["value"] / row["total"]["value"]


def test_parts_sum_to_the_total() -> None:
    for row in neighborhoods().values():
        parts = [*row["unique"], row["redundancy"], row["synergy"]]
        assert sum(part["value"] for part in parts) == pytest.approx(row["total"]["value"])


def test_what_is_said_of_the_graphs() -> None:
    found = neighborhoods()
    papers = [found[name, "random"] for name in ("cora-content", "citeseer", "computers")]
    assert all(share(row, "redundancy") > 0.5 for row in papers)
    assert all(share(found["top2", "random"], "synergy") > share(row, "synergy") > 0.2 for row in papers)
    for groups in ("features", "random"):
        assert found["betweenness-100", groups]["total"]["p_value"] > 0.05


def test_the_tables_are_the_files() -> None:
    for name in re.findall(r"\{include\} (\S+)", PAGE):
        assert (ROOT / "docs" / name).exists()
    assert (RESULTS / "dial.png").read_bytes() == (ROOT / "docs/images/information-dial.png").read_bytes()
    assert (RESULTS / "parity.png").read_bytes() == (ROOT / "docs/images/information-parity.png").read_bytes()
