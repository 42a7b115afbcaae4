"""Draws the village of this folder: households, who visits whom, and which of them joined the mill.

A household listens to the two of its neighbours that stand highest in the village. It joins the mill if these two
together own enough land, the second counting for half, so that who comes first matters; one in twenty decides
otherwise. Whom it listens to is not in the tables: a network has to find the order and read it.

Run it from this folder to write ``nodes.csv`` and ``edges.csv`` again.
"""

import csv
from pathlib import Path

import numpy as np

HOUSEHOLDS, CRAFTS, CLANS = 240, ("farmer", "smith", "weaver", "baker"), 6


def draw(seed: int = 7) -> tuple[list[list[object]], list[list[object]]]:
    """The rows of the nodes and of the edges, without their headers."""
    random = np.random.default_rng(seed)
    clan = random.integers(CLANS, size=HOUSEHOLDS)
    chance = np.where(clan[:, None] == clan[None, :], 0.12, 0.008)
    visits = np.triu(random.random((HOUSEHOLDS, HOUSEHOLDS)) < chance, k=1)
    for lonely in np.flatnonzero(~(visits | visits.T).any(axis=0)):
        visits[min(lonely, (lonely + 1) % HOUSEHOLDS), max(lonely, (lonely + 1) % HOUSEHOLDS)] = True
    standing = random.random(HOUSEHOLDS).round(3)
    land = random.gamma(2.0, 4.0, size=HOUSEHOLDS).round(1)
    craft = random.choice(CRAFTS, size=HOUSEHOLDS, p=(0.55, 0.15, 0.15, 0.15))
    founded = random.integers(1790, 1871, size=HOUSEHOLDS)
    heard = np.empty(HOUSEHOLDS)
    for household in range(HOUSEHOLDS):
        near = np.flatnonzero(visits[household] | visits[:, household])
        first, *second = near[np.argsort(-standing[near])][:2]
        heard[household] = land[first] + 0.5 * sum(land[one] for one in second)
    joins = (heard > np.median(heard)) ^ (random.random(HOUSEHOLDS) < 0.05)
    unknown = random.random(HOUSEHOLDS) < 0.04
    names = [f"H{number:03d}" for number in range(HOUSEHOLDS)]
    nodes: list[list[object]] = [
        [names[one], standing[one], "" if unknown[one] else land[one], craft[one], founded[one], "yes" if joins[one] else "no"]
        for one in range(HOUSEHOLDS)
    ]
    edges: list[list[object]] = [[names[a], names[b]] for a, b in np.argwhere(visits)]
    return nodes, edges


def write(folder: Path) -> None:
    """Writes both tables."""
    nodes, edges = draw()
    headers = (["id", "standing", "land", "craft", "founded", "joins"], ["source", "target"])
    for name, header, rows in (("nodes", headers[0], nodes), ("edges", headers[1], edges)):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    write(Path(__file__).parent)
