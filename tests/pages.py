"""Checks that every number in the prose of a page is backed by a result."""

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NOT_PROSE = r"^```.*?^```$|^\|.*?$|^\$\$.*?\$\$$"  # code and directives, tables, formulas
_NUMBER = r"(?<![\w.])\d[\d,]*\.\d+|\d+ %|\bp [<=] [\d.]+"


def prose(page: str) -> str:
    """The text of a page on one line, without code, tables and formulas."""
    text = re.sub(_NOT_PROSE, "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return " ".join(re.sub(r"`[^`]*`|(?<=\])\([^)]*\)", "", text).split())  # nor inline code and addresses


def check_numbers(page: str, claims: Iterable[str]) -> None:
    """Checks that the page contains every claim, and no decimal, percentage or p-value outside of the claims.

    Args:
        page: The page, relative to the repository.
        claims: Fragments of its sentences, computed from results.
    """
    text = rest = prose(page)
    for claim in claims:
        assert claim in text, f"{page} should say: {claim}"
        rest = rest.replace(claim, "")
    unbacked = re.findall(_NUMBER, rest)
    assert not unbacked, f"no result backs {unbacked} in {page}"
