"""How long tables take to load: 100,000 nodes with eleven columns and a million edges, as CSV files.

    python benchmarks/tables.py --out build/bench

Writes ``tables.json`` into ``--out``.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from layer import environment

from torch_goat.data.tables import Tables, load_tables


def write(folder: Path, nodes: int, edges: int) -> Tables:
    """Writes tables with names, numbers, categories and classes."""
    random = np.random.default_rng(0)
    values, ends = random.normal(size=(nodes, 10)).round(4), random.integers(nodes, size=(edges, 2))
    with open(folder / "nodes.csv", "w") as file:
        file.write("id," + ",".join(f"x{number}" for number in range(10)) + ",colour,label\n")
        for number, row in enumerate(values):
            label = "high" if row[0] > 0 else "low"
            file.write(f"user{number},{','.join(map(str, row))},{('red', 'green', 'blue')[number % 3]},{label}\n")
    with open(folder / "edges.csv", "w") as file:
        file.write("source,target\n")
        file.writelines(f"user{source},user{target}\n" for source, target in ends)
    return Tables(nodes=str(folder / "nodes.csv"), edges=str(folder / "edges.csv"), target="label")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tables = write(Path(folder), given.nodes, given.edges)
        start, worked = time.perf_counter(), time.process_time()
        graph = load_tables(tables)
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
    size = {"nodes": graph.data.num_nodes, "edges": given.edges}
    row = {**size, "seconds": seconds, "seconds of a processor": worked}
    about = environment(torch.device("cpu"))
    (given.out / "tables.json").write_text(json.dumps({"environment": about, "rows": [row]}, indent=1) + "\n")
    print(row)


if __name__ == "__main__":
    main()
