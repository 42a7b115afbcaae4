"""The default settings of ``goat train`` on tables, before and after, on graphs of different kinds.

    python benchmarks/defaults.py --out build/defaults --data-dir DATA --jobs 10

Trains GOAT, GAT and GCN with the former defaults (``old``) and with the present ones (``new``), on three splits of each
graph, or with three seeds on a single split. Features that are not 0 or 1 are standardised, as those of tables are.
Runs below ``--out`` that are done are not repeated, so the benchmark can be stopped and resumed. Writes
``defaults.json`` and ``defaults.md`` from all runs that exist.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import write_results
from runs import add_options, run_until_stopped
from torch_geometric.data import Data

from torch_goat.data.datasets import DATASETS, load
from torch_goat.data.datasets.raw import data_folder
from torch_goat.data.loader import write_graph
from torch_goat.experiments import Experiment, PlannedRun, Result, finished
from torch_goat.experiments.own_graph import array_experiment
from torch_goat.experiments.search import own_starting_point

MODELS = ("goat", "gat", "gcn")
REPEATS = 3
SETTINGS = ("old", "new")


class Graph(NamedTuple):
    name: str
    split: str

    @property
    def metric(self) -> str:
        """The metric of the test nodes, which judges."""
        return DATASETS[self.name].metric


GRAPHS = [
    Graph("cora", "per-class"), Graph("citeseer", "per-class"), Graph("photo", "paper"),
    Graph("cornell", "geom-gcn"), Graph("texas", "geom-gcn"), Graph("wisconsin", "geom-gcn"),
    Graph("disease-lp", "paper"), Graph("lastfm-asia", "paper"), Graph("top2", "paper"),
    Graph("chameleon-filtered", "platonov"), Graph("squirrel-filtered", "platonov"),
    Graph("minesweeper", "platonov"), Graph("tolokers", "platonov"),
]  # fmt: skip


def read(graph: Graph, index: int, folder: Path | None) -> Data:
    """A graph with the masks of a split."""
    data = load(graph.name, split=graph.split, index=index, data_dir=folder)
    if graph.split not in ("per-class", "geom-gcn"):  # word counts, whose rows are normalised
        numbers = ((data.x != 0) & (data.x != 1)).any(dim=0)
        train = data.x[data.train_mask][:, numbers]
        scale = train.std(dim=0, correction=0).clamp(min=1e-6)
        data.x[:, numbers] = (data.x[:, numbers] - train.mean(dim=0)) / scale
    return data


def plan(out: Path, graphs: list[Graph], folder: Path | None) -> Iterator[tuple[Graph, str, PlannedRun]]:
    """All runs: graph by graph, so that a benchmark that is stopped has whole rows."""
    for graph in graphs:
        splits = DATASETS[graph.name].splits[graph.split]
        for repeat in range(REPEATS):
            index = repeat if splits >= REPEATS else 0
            arrays = out / "graphs" / f"{graph.name}-{index}"
            if not (arrays / "x.npy").exists():
                write_graph(read(graph, index, folder), arrays, force=True)
            y = torch.from_numpy(np.load(arrays / "y.npy"))[torch.from_numpy(np.load(arrays / "train_mask.npy"))]
            counts = torch.bincount(y)
            unbalanced = bool(counts.max() >= 3 * counts[counts > 0].min())
            for model in MODELS:
                for setting in SETTINGS:
                    experiment = array_experiment(arrays, model, experiment_of(setting, model, unbalanced))
                    place = out / "runs" / setting / f"{graph.name}-{model}-{repeat}"
                    yield graph, setting, PlannedRun(place, replace(experiment, seed=repeat))


def experiment_of(setting: str, model: str, unbalanced: bool) -> Experiment:
    """The former defaults are still those of arrays; with them, unbalanced classes of tables were weighed."""
    old = setting == "old"
    start = own_starting_point("classification", model, arrays=old)
    return replace(start, training=replace(start.training, class_weights=old and unbalanced))


def summary(runs: list[tuple[Graph, str, PlannedRun]]) -> list[dict[str, Any]]:
    """One row per graph and model with the finished runs of each setting."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for graph, setting, run in runs:
        result = finished(run.experiment, run.folder)
        if result is not None:
            model = run.experiment.model.name
            row = rows.setdefault((graph.name, model), {"graph": graph.name, "model": model, "metric": graph.metric})
            row.setdefault("settings", {}).setdefault(setting, []).append(_kept(result, graph.metric))
    return list(rows.values())


def _kept(result: Result, metric: str) -> dict[str, float]:
    values = {f"{part}_{metric}": result.metrics[part][metric] for part in ("val", "test")}
    return values | {"best_epoch": result.best_epoch, "epochs": result.epochs, "seconds": round(result.seconds, 3)}


def markdown(rows: list[dict[str, Any]], device: str) -> str:
    lines = [f"Test accuracy (ROC AUC for minesweeper and tolokers) in %, mean ± standard deviation; {device}.", ""]
    lines += [
        "On all graphs, the validation accuracy chooses the epoch of the new defaults, the loss that of the old.",
        "",
    ]
    lines += ["| graph | model | old | new | new − old |", "|---|---|---:|---:|---:|"]
    gains: dict[str, list[float]] = {model: [] for model in MODELS}
    for row in rows:
        values = {one: [100 * run[f"test_{row['metric']}"] for run in row["settings"].get(one, [])] for one in SETTINGS}
        cells = [
            f"{mean(some):.1f} ± {stdev(some) if len(some) > 1 else 0:.1f}" if some else "–" for some in values.values()
        ]
        before, after = values.values()
        gain = mean(after) - mean(before) if len(after) == len(before) == REPEATS else None
        if gain is not None:
            gains[row["model"]].append(gain)
        lines.append(
            f"| {row['graph']} | {row['model']} | {' | '.join(cells)} | {'–' if gain is None else f'{gain:+.1f}'} |"
        )
    lines.append("")
    for model, values in gains.items():
        if values:
            better = sum(value > 0 for value in values)
            lines.append(
                f"- {model}: {mean(values):+.2f} points on average, better on {better} of {len(values)} graphs."
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/defaults"), help="where runs and results are written")
    parser.add_argument("--graphs", default="", help="names, separated by commas (default: all that are available)")
    add_options(parser)
    arguments = parser.parse_args()
    folder = data_folder(arguments.data_dir)
    names = arguments.graphs.split(",") if arguments.graphs else [graph.name for graph in GRAPHS]
    graphs = [graph for graph in GRAPHS if graph.name in names and DATASETS[graph.name].available(folder)]
    runs = list(plan(arguments.out, graphs, folder))
    run_until_stopped([run for _, _, run in runs], arguments)
    rows = summary(runs)
    first = next((done for _, _, run in runs if (done := finished(run.experiment, run.folder)) is not None), None)
    device = "no run is finished" if first is None else first.device
    table = {"device": device, "versions": {} if first is None else first.versions, "rows": rows}
    write_results(arguments.out, "defaults", table, markdown(rows, device))


if __name__ == "__main__":
    main()
