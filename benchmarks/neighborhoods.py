"""How much of the information of neighbours about the label is synergistic, on the paper's tasks and graphs.

    python benchmarks/neighborhoods.py --data-dir DATA
    python benchmarks/neighborhoods.py --draw

Estimates the decomposition for every dataset and every grouping of the neighbours, like ``goat pid``. Writes
``neighborhoods.json`` and ``neighborhoods.md`` to ``--out`` and ``information-neighborhoods.png`` to ``--images``;
``--draw`` only redraws them from the JSON file.
"""

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from torch_goat.experiments.information import SmallSampleWarning
from torch_goat.experiments.information.charts import COLORS, new_figure, save_figure
from torch_goat.experiments.information.labelled_graph import LabelledGraph
from torch_goat.files import write_atomic

DATASETS = {"top2": "max", "betweenness-100": "mean", "cora-content": "mean", "citeseer": "mean", "computers": "mean"}
"""The datasets, and how the features of a group are pooled."""


def row(dataset: str, groups: str, pool: str, data_dir: Path | None) -> dict[str, Any]:
    graph = LabelledGraph.from_dataset(dataset, data_dir=data_dir)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)
        found = graph.measure(groups, pool=pool)
    seconds = time.perf_counter() - start
    about = {"dataset": dataset, "groups": groups, "pool": pool, "degree": graph.uses_degree(), "seconds": seconds}
    return about | dataclasses.asdict(found) | {"counted": found.counted}


def markdown(results: dict[str, Any]) -> str:
    lines = ["# Information of neighbourhoods", ""]
    lines += [f"`{results['command']}`, {results['date']}, {results['hardware']}.", ""]
    lines += ["Bits, with the 95 % interval of the synergy and its p-value under shuffled labels.", ""]
    head = [
        "dataset",
        "groups",
        "unique 1",
        "unique 2",
        "redundancy",
        "synergy",
        "interval",
        "p",
        "total",
        "one by one",
    ]
    lines += [f"| {' | '.join([*head, 'nodes', 'symbols'])} |", "|---|---|" + "---:|" * 10]
    for one in results["rows"]:
        parts = [*one["unique"], one["redundancy"], one["synergy"]]
        cells = [one["dataset"], one["groups"], *(f"{part['value']:.3f}" for part in parts)]
        cells += [f"{one['synergy']['low']:.3f} to {one['synergy']['high']:.3f}", f"{one['synergy']['p_value']:.3f}"]
        cells += [f"{one['total']['value']:.3f}", f"{one['counted']:.3f}", str(one["nodes"])]
        lines.append(f"| {' | '.join([*cells, ' x '.join(map(str, one['alphabet']))])} |")
    return "\n".join(lines) + "\n"


def present(out: Path, images: Path) -> None:
    """Writes the table and the figure of the recorded results; the figure contains the digest of these."""
    text = (out / "neighborhoods.json").read_text()
    results, source = json.loads(text), f"SHA-256 of neighborhoods.json: {hashlib.sha256(text.encode()).hexdigest()}"
    write_atomic(out / "neighborhoods.md", markdown(results))
    bars = {}
    for one in results["rows"]:
        first, second = one["unique"]
        parts = {"unique 1": first, "unique 2": second, "redundancy": one["redundancy"], "synergy": one["synergy"]}
        bars[f"{one['dataset']}, {one['groups']}"] = {name: part["value"] for name, part in parts.items()}
    draw(images / "information-neighborhoods.png", bars, source)
    print(markdown(results))


def draw(path: Path, bars: dict[str, dict[str, float]], source: str) -> None:
    """A bar for each graph, stacked from its parts in bits; negative parts are not drawn."""
    figure = new_figure(path, 7.0, 1.0 + 0.28 * len(bars))
    axes = figure.subplots()
    for place, parts in enumerate(bars.values()):
        start = 0.0
        for name, value in parts.items():
            axes.barh(place, max(value, 0.0), left=start, color=COLORS[name], label=name if place == 0 else None)
            start += max(value, 0.0)
    axes.set_yticks(range(len(bars)), list(bars), fontsize=8)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlabel("information about the label (bits)")
    axes.set_title("Information of two groups of neighbours about the label", fontsize=10)
    figure.legend(loc="outside right center", fontsize=8)
    save_figure(figure, path, source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/information"), help="where results are written")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="where the figure is written")
    parser.add_argument("--draw", action="store_true", help="estimate nothing, draw the results that are in --out")
    parser.add_argument("--data-dir", type=Path, help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--groups", default="features,random,order", help="comma-separated: features, random, order")
    parser.add_argument("--datasets", default=",".join(DATASETS), help="comma-separated")
    arguments = parser.parse_args()
    if arguments.draw:
        present(arguments.out, arguments.images)
        return
    torch.set_num_threads(1)
    rows = []
    for dataset in arguments.datasets.split(","):
        for groups in arguments.groups.split(","):
            if groups == "order" and dataset in ("betweenness-100", "computers"):
                continue  # real labels; and an hour of training on a CPU
            rows.append(row(dataset, groups, DATASETS[dataset], arguments.data_dir))
            print(dataset, groups, f"{rows[-1]['seconds']:.1f} s", flush=True)
    results = {
        "command": "python benchmarks/neighborhoods.py --data-dir DATA",
        "date": datetime.date.today().isoformat(),
        "hardware": f"{os.cpu_count()} cores {platform.machine()}, one thread",
        "versions": {"python": sys.version.split()[0], "torch": str(torch.__version__)},
        "rows": rows,
    }
    write_atomic(arguments.out / "neighborhoods.json", json.dumps(results, indent=1) + "\n")
    present(arguments.out, arguments.images)


if __name__ == "__main__":
    main()
