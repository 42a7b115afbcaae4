"""Generates the village of this folder: households, their visits, and which of them joined the mill.

A household joins if the two wealthiest households that it visits own enough land together, so its label depends on the
order of its neighbours, not on their mean. A few households decide otherwise, and some values are missing.

Run it to write ``nodes.csv`` and ``edges.csv`` again.
"""

import csv
from pathlib import Path

import numpy as np

HOUSEHOLDS, VISITS = 240, 6
CRAFTS = ("baker", "farmer", "smith", "weaver")
HEADERS = {"nodes": ["id", "land", "craft", "founded", "joins"], "edges": ["source", "target"]}


def draw(seed: int = 7) -> dict[str, list[list[object]]]:
    """Returns the rows of both tables, without headers."""
    random = np.random.default_rng(seed)
    visits = np.triu(random.random((HOUSEHOLDS, HOUSEHOLDS)) < VISITS / HOUSEHOLDS, k=1)
    visits |= visits.T
    for household in range(HOUSEHOLDS):
        while visits[household].sum() < 2:
            other = random.integers(HOUSEHOLDS)
            visits[household, other] = visits[other, household] = other != household
    land = random.gamma(1.0, 8.0, size=HOUSEHOLDS).round(1)
    heard = np.array([np.sort(land[row])[-2:].sum() for row in visits])
    joins = (heard > np.median(heard)) ^ (random.random(HOUSEHOLDS) < 0.02)
    craft = random.choice(CRAFTS, size=HOUSEHOLDS, p=(0.15, 0.55, 0.15, 0.15))
    founded = random.integers(1790, 1871, size=HOUSEHOLDS)
    known = random.random(HOUSEHOLDS) > 0.02
    names = [f"H{number:03d}" for number in range(HOUSEHOLDS)]
    owned = [str(value) if seen else "" for value, seen in zip(land, known, strict=True)]
    answers = np.where(joins, "yes", "no")
    return {
        "nodes": [list(row) for row in zip(names, owned, craft, founded, answers, strict=True)],
        "edges": [[names[one], names[other]] for one, other in np.argwhere(np.triu(visits))],
    }


def write(folder: Path) -> None:
    """Writes both tables."""
    for name, rows in draw().items():
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADERS[name], *rows])


if __name__ == "__main__":
    write(Path(__file__).parent)
