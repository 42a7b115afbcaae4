"""How long tables take to load, and in how much memory: 100,000 nodes with eleven columns and a million edges, as CSV.

    python benchmarks/tables.py --out build/bench
    python benchmarks/tables.py --nodes 500000 --edges 5000000 --edge-columns 0 2

Writes ``tables.json`` into ``--out``.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measure import environment, write_results

from torch_goat.data.tables import Tables, load_tables


def write(folder: Path, nodes: int, edges: int, edge_columns: int) -> Tables:
    """Writes tables with names, numbers, categories and classes."""
    random = np.random.default_rng(0)
    values, ends = random.normal(size=(nodes, 10)).round(4), random.integers(nodes, size=(edges, 2))
    with open(folder / "nodes.csv", "w") as file:
        file.write("id," + ",".join(f"x{number}" for number in range(10)) + ",colour,label\n")
        for number, row in enumerate(values):
            label = "high" if row[0] > 0 else "low"
            file.write(f"user{number},{','.join(map(str, row))},{('red', 'green', 'blue')[number % 3]},{label}\n")
    with open(folder / "edges.csv", "w") as file:
        file.write(",".join(["source", "target", *(f"w{number}" for number in range(edge_columns))]) + "\n")
        for source, target in ends:
            numbers = "".join(f",{number:.4f}" for number in random.normal(size=edge_columns))
            file.write(f"user{source},user{target}{numbers}\n")
    files = {"nodes": str(folder / "nodes.csv"), "edges": str(folder / "edges.csv")}
    return Tables(**files, target="label", edge_features=edge_columns > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--edge-columns", type=int, nargs="+", default=[0], help="a row for each, ascending")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    given = parser.parse_args()
    rows = []
    for edge_columns in given.edge_columns:
        with tempfile.TemporaryDirectory() as folder:
            tables = write(Path(folder), given.nodes, given.edges, edge_columns)
            start, worked = time.perf_counter(), time.process_time()
            graph = load_tables(tables)
            seconds, worked = time.perf_counter() - start, time.process_time() - worked
        size = {"nodes": graph.data.num_nodes, "edges": given.edges, "edge columns": edge_columns}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # up to now
        rows.append({**size, "seconds": seconds, "seconds of a processor": worked, "peak GB of the process": peak})
        print(rows[-1])
    write_results(given.out, "tables", {"environment": environment(torch.device("cpu")), "rows": rows})


if __name__ == "__main__":
    main()
