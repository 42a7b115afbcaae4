"""How much of the structural targets of Table 1 the degrees explain.

    python benchmarks/degrees.py --out results/structure

Fits the targets by least squares on the training nodes of the table's ten graphs, from counts that layers could learn,
and measures the error on the test nodes. Writes ``degrees.json`` and ``degrees.md``; trains no network.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj

from torch_goat.data.datasets import load
from torch_goat.files import write_atomic

TASKS = {
    "betweenness-100": 4,  # and the decimals of its column in Table 1
    "betweenness-1000": 4,
    "effective-size-100": 4,
    "effective-size-1000": 5,
}
GRAPHS = range(10)
KNOWN = (
    "nothing",
    "its degree",
    "its degree and those of its neighbours",
    "its degree and the ties among its neighbours",
)
"""What is known of a node, by the name that the table has for it."""


def counts(data: Data) -> dict[str, list[Tensor]]:
    """What is known of every node, each ``[N]``."""
    adjacent = to_dense_adj(data.edge_index, max_num_nodes=data.num_nodes)[0].double()  # [N, N]
    degree, shared = adjacent.sum(1), ((adjacent @ adjacent) * adjacent).sum(1) / 2
    each = degree.clamp(min=1)
    own = [torch.ones_like(degree), degree, degree.square()]
    known = ([own[0]], own, [*own, adjacent @ degree, adjacent @ (1 / each)], [*own, shared, shared / each])
    return dict(zip(KNOWN, known, strict=True))


def errors(data: Data) -> dict[str, float]:
    """The mean squared error on the test nodes, by what is known."""
    y = data.y.double().view(-1)
    found = {}
    for name, columns in counts(data).items():
        known = torch.stack(columns, dim=1)  # [N, D]
        weights = torch.linalg.lstsq(known[data.train_mask], y[data.train_mask, None], driver="gelsd").solution
        found[name] = float((known @ weights).view(-1).sub(y)[data.test_mask].square().mean())
    return found


def measure() -> list[dict]:
    """A row for every task and what is known."""
    rows = []
    for task in TASKS:
        of_graphs = [errors(load(task, index=index)) for index in GRAPHS]
        rows += [{"task": task, "known": name, "values": [one[name] for one in of_graphs]} for name in KNOWN]
    return rows


def markdown(rows: list[dict]) -> str:
    values = {(row["task"], row["known"]): row["values"] for row in rows}

    def cell(task: str, known: str) -> str:
        found, digits = values[task, known], TASKS[task]
        return f"{mean(found):.{digits}f} ± {stdev(found):.{digits}f}"

    lines = [f"| known of a node | {' | '.join(TASKS)} |", f"|---|{'---:|' * len(TASKS)}"]
    lines += [f"| {known} | {' | '.join(cell(task, known) for task in TASKS)} |" for known in KNOWN]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/structure"), help="where the results are written")
    out = parser.parse_args().out
    rows = measure()
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "degrees.json", json.dumps(rows, indent=1) + "\n")
    write_atomic(out / "degrees.md", markdown(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
