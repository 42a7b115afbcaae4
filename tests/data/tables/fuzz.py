"""Reads made-up files for a while: ``python -m tests.data.tables.fuzz --minutes 10``, or ``make fuzz``.

Whatever is in the files, they are read or refused with a sentence. Anything else is a failure, and the files that
caused it are shown.
"""

import argparse
import random
import tempfile
import time
import warnings
from pathlib import Path

from hypothesis import strategies as st

from tests.data.tables.files import EDGES, NODES
from torch_goat.data.tables import Schema, TableError, Tables, apply_schema, load_tables
from torch_goat.settings import SettingsError

CELLS = ["", "a", "b", "1", "-2.5", "1e999", "nan", "NA", "yes", "no", '"', '"x', "ü", "\ufeff", "<b>", "=1", "0x1",
         "٣", "1_000", "2020-01-01", "train", "test", " a", "True", "9" * 40, "\u2028", "\r", "a,b",
         "01067", "00", "2024-05-31T10:00Z", "9999-12-31"]  # fmt: skip
GRAPHML = (
    '<?xml version="1.0"?><graphml><key id="k" for="node" attr.name="label"/><graph edgedefault="directed">'
    '<node id="a"><data key="k">yes</data></node><node id="b"><data key="k">no</data></node>'
    '<edge source="a" target="b"/></graph></graphml>'
)
OPTIONS = [{}, {"directed": True}, {"edge_features": True}, {"split_column": "town"}, {"time_column": "age"},
           {"task": "regression"}, {"target": "age"}, {"order_by": "age"}, {"categories": ("age",)},
           {"drop": ("town",)}, {"folds": 2}, {"group_column": "town"}, {"split_column": "t*"}]  # fmt: skip


def tables() -> st.SearchStrategy[str]:
    cell = st.sampled_from(CELLS)
    row = st.lists(cell, min_size=1, max_size=5)
    header = st.lists(st.sampled_from(["id", "label", "age", "town", "source", "target", ""]), min_size=1, max_size=5)
    separator = st.sampled_from([",", ";", "\t", "|"])
    return st.builds(
        lambda top, rows, sign: "\n".join(sign.join(line) for line in [top, *rows]),
        header, st.lists(row, max_size=12), separator,
    )  # fmt: skip


def mutate(content: bytes, draw: random.Random) -> bytes:
    """A valid file with some bytes changed, removed, doubled or put in."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        place = draw.randrange(len(data) + 1)
        choice = draw.randrange(5)
        if choice == 0 and place < len(data):
            data[place] = draw.randrange(256)
        elif choice == 1:
            del data[place : place + draw.randint(1, 20)]
        elif choice == 2:
            data[place:place] = data[place : place + draw.randint(1, 60)]
        elif choice == 3:
            data[place:place] = draw.choice(CELLS).encode("utf-8", "surrogatepass")
        else:
            data[place:place] = bytes([draw.choice(b',;\n"\t\r<>&|')])
    return bytes(data)


def attempt(folder: Path, nodes: bytes, edges: bytes, options: dict) -> None:
    """Reads two files; what is read must make a graph that new tables can be read by."""
    (folder / "nodes.csv").write_bytes(nodes)
    (folder / "edges.csv").write_bytes(edges)
    files = str(folder / "nodes.csv"), str(folder / "edges.csv")
    xml = nodes.lstrip().startswith(b"<")
    refusal = ""
    try:
        given = Tables(**{"nodes": files[0], "edges": "" if xml else files[1], "target": "label", **options})
        graph = load_tables(given)
        schema = Schema.from_json(graph.schema.to_json(), "schema.json")
        again = apply_schema(schema, given.nodes, given.edges)
    except (TableError, SettingsError) as error:
        refusal = str(error)
    if refusal:
        first, *lines = refusal.split("\n")  # a sentence, or a list of them
        assert not lines or first == f"the tables have {len(lines)} problems:", refusal
        assert all(line.startswith("- ") for line in lines), refusal
        return
    assert graph.data.validate(raise_on_error=True)
    assert bool(graph.data.x.isfinite().all())
    assert again.data.x.shape == graph.data.x.shape


def fuzz(seconds: float, seed: int = 0, limit: int = 10**9) -> int:
    """Reads made-up files for some seconds, at most ``limit`` pairs, and returns their number."""
    draw, made = random.Random(seed), tables()
    valid = [NODES.encode(), EDGES.encode(), GRAPHML.encode()]
    end, count = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of hypothesis on examples outside of tests
        while time.monotonic() < end and count < limit:
            count += 1
            if draw.random() < 0.3:
                nodes, edges = (made.example().encode("utf-8", "surrogatepass") for _ in range(2))
            else:
                nodes = mutate(draw.choice(valid), draw)
                edges = mutate(valid[1], draw) if draw.random() < 0.5 else valid[1]
            options = draw.choice(OPTIONS)
            try:
                attempt(Path(folder), nodes, edges, options)
            except BaseException:
                print(f"failed with {nodes!r}\n{edges!r}\n{options!r}")
                raise
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{fuzz(60 * given.minutes, given.seed)} pairs of files were read or refused.")
