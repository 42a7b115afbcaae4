"""Small tables for the tests of this part."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from torch_goat.data.tables import Schema, Tables, apply_schema
from torch_goat.data.tables.graph import NewGraph

NODES = """id,age,town,member,label
a,30,Ulm,1,yes
b,40,Bonn,0,no
c,,Ulm,1,yes
d,20,Bonn,0,no
e,50,Ulm,0,yes
f,60,,1,no
g,35,Kiel,1,yes
h,45,Bonn,0,no
i,25,Ulm,1,yes
j,55,Bonn,0,no
"""
EDGES = "source,target\na,b\nb,c\nc,d\nd,e\ne,f\nf,g\ng,h\nh,i\ni,j\nj,a\n"


def with_column(name: str, values: Iterable[object]) -> str:
    """The nodes with one more column."""
    header, *rows = NODES.splitlines()
    return "\n".join([f"{header},{name}", *(f"{row},{value}" for row, value in zip(rows, values, strict=True))])


def write(folder: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES, **options) -> Tables:
    """Writes both tables and says how to read them."""
    paths = folder / "nodes.csv", folder / "edges.csv"
    for path, content in zip(paths, (nodes, edges), strict=True):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Tables(nodes=str(paths[0]), edges=str(paths[1]), **{"target": "label", **options})


def write_maximum(folder: Path, nodes: int = 200, **options) -> Tables:
    """Tables whose label says whether the largest x of the neighbours is above the median; z says nothing."""
    draw = np.random.default_rng(0)
    x, z = draw.normal(50, 10, size=nodes), draw.normal(size=nodes)
    pairs = [(other, node) for node in range(nodes) for other in draw.choice(nodes, 6, replace=False) if other != node]
    largest = np.array([max(x[other] for other, to in pairs if to == node) for node in range(nodes)])
    rows = zip(x, z, largest > np.median(largest), strict=True)
    lines = [f"n{node},{a:.3f},{b:.3f},{node % 5},{label}" for node, (a, b, label) in enumerate(rows)]
    edges = [f"n{a},n{b},{w:.3f}" for (a, b), w in zip(pairs, draw.normal(size=len(pairs)), strict=True)]
    tables = "\n".join(["id,x,z,year,label", *lines]), "\n".join(["source,target,w", *edges])
    return write(folder, *tables, directed=True, **options)


def apply(folder: Path, schema: Schema, nodes: str, edges: str, join: Tables | None = None) -> NewGraph:
    """Applies a schema to other tables, which it writes next to those of the graph."""
    (folder / "new.csv").write_text(nodes)
    (folder / "links.csv").write_text(edges)
    return apply_schema(schema, str(folder / "new.csv"), str(folder / "links.csv"), join=join)
