"""What dropout costs a training step on a CPU, with PyTorch's and with ours.

    python benchmarks/dropout.py --threads 1 --out build/bench

Features and edges are those of the real graphs. A step is forward, backward and Adam's step of a network of two layers;
both kinds take turns, so that a machine that is busy for a while slows them alike. Writes ``dropout.json`` and
``dropout.md`` into ``--out``.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest.mock import patch

import torch
import torch.nn.functional as F
from layer import environment, heading
from torch_geometric.data import Data
from tqdm import tqdm

from torch_goat.data import datasets
from torch_goat.experiments.models import ModelOptions, build, network
from torch_goat.nn.dropout import dropout

MODELS = {
    "gcn": ModelOptions(name="gcn", hidden_channels=64),
    "goat": ModelOptions(name="goat", hidden_channels=8, heads=8),
}
ROUNDS, WARM_UP = 7, 2


def step(data: Data, options: ModelOptions) -> Callable[[], object]:
    """A training step of a network."""
    model = build(options, data.num_features, data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)

    def call() -> None:
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()

    return call


def in_turns(call: Callable[[], object]) -> dict[str, float]:
    """The median time of a call with either kind of dropout."""
    kinds = {"pytorch_ms": lambda x, p, training: F.dropout(x, p, training), "ours_ms": dropout}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(WARM_UP + ROUNDS):
        for kind, function in kinds.items():
            with patch.object(network, "dropout", function):
                start = time.perf_counter()
                call()
                times[kind].append(1e3 * (time.perf_counter() - start))
    return {kind: median(values[WARM_UP:]) for kind, values in times.items()}


def markdown(rows: list[dict], about: dict[str, str | int]) -> str:
    """The result as a page."""
    lines = [
        *heading("Dropout on a CPU", about),
        "| graph | what | with PyTorch's dropout (ms) | with ours (ms) | times faster |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [
        f"| {row['graph']} | {row['what']} | {row['pytorch_ms']:.1f} | {row['ours_ms']:.1f} | {row['times']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="cora,citeseer,photo,cs", help="names that goat datasets lists")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--data", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = []
    for name in tqdm(given.graphs.split(","), unit="graph"):
        data = datasets.load(name, data_dir=given.data)
        calls = {"dropout of the input": lambda x=data.x: network.dropout(x, 0.5, True)}
        calls |= {f"a step of {model}": step(data, options) for model, options in MODELS.items()}
        for what, call in calls.items():
            row = in_turns(call)
            rows.append({"graph": name, "what": what, **row, "times": row["pytorch_ms"] / row["ours_ms"]})
    about = environment(torch.device("cpu"))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "dropout.json").write_text(json.dumps({"environment": about, "rows": rows}, indent=1) + "\n")
    (given.out / "dropout.md").write_text(markdown(rows, about))
    print(markdown(rows, about))


if __name__ == "__main__":
    main()
