"""The accuracy of GOAT trained in full batches and in mini-batches, on the same splits.

    python benchmarks/minibatch.py --out build/minibatch --data-dir DATA --jobs 2

Computers and Physics, the paper's 60/20/20 splits, one seed per split. Both train the same network with the same
patience in steps, and both are evaluated exactly. Runs below ``--out`` that are done are not repeated, so the
benchmark can be stopped and resumed, also on another machine. Writes ``minibatch.json`` and ``minibatch.md``.
"""

import argparse
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from measure import environment, heading, write_results
from runs import add_options, run_until_stopped

from torch_goat.experiments import Experiment, PlannedRun, TrainingOptions, finished
from torch_goat.experiments.models import ModelOptions

MODEL = ModelOptions(hidden_channels=8, heads=8, dropout=0.5, last="gcn", mean_residual=True, residual=True)
WAYS = {
    "full batches": TrainingOptions(epochs=300, patience=100),
    "mini-batches": TrainingOptions(epochs=40, patience=12, batch_size=1024, fanout=(100, 15)),
}
DATASETS = ("computers", "physics")


def plan(out: Path, datasets: list[str], seeds: int) -> list[PlannedRun]:
    """All runs: the seed is that of the weights, and says which split."""
    return [
        PlannedRun(
            out / dataset / way.replace(" ", "-") / str(seed),
            Experiment(dataset, seed=seed, index=seed, model=MODEL, training=training),
        )
        for dataset in datasets
        for seed in range(seeds)
        for way, training in WAYS.items()
    ]


def summary(out: Path, datasets: list[str], seeds: int) -> list[dict[str, Any]]:
    """A row for every dataset and way with all runs that are there."""
    runs = {run.folder: run.experiment for run in plan(out, datasets, seeds)}
    rows = []
    for dataset in datasets:
        for way in WAYS:
            folders = [out / dataset / way.replace(" ", "-") / str(seed) for seed in range(seeds)]
            done = {seed: result for seed, at in enumerate(folders) if (result := finished(runs[at], at)) is not None}
            results = list(done.values())
            rows.append(
                {
                    "dataset": dataset,
                    "training": way,
                    "splits": list(done),
                    "accuracy": [result.metrics["test"]["accuracy"] for result in results],
                    "epochs": [result.epochs for result in results],
                    "seconds": [result.seconds for result in results],
                    "peak_memory_bytes": [result.peak_memory_bytes for result in results],
                }
            )
    return rows


def lead(rows: list[dict[str, Any]], dataset: str) -> list[float]:
    """By how many points mini-batches are ahead of full batches on each split that both were run on."""
    found = (next(row for row in rows if (row["dataset"], row["training"]) == (dataset, way)) for way in WAYS)
    full, mini = (dict(zip(row["splits"], row["accuracy"], strict=True)) for row in found)
    return [100 * (mini[split] - full[split]) for split in full if split in mini]


def markdown(rows: list[dict[str, Any]], about: dict[str, str | int]) -> str:
    """The result as a page."""
    lines = [
        *heading("Mini-batches beside full batches", about),
        "| dataset | training | test accuracy (%) | runs | epochs | seconds a run | peak memory (GB) |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        values = [100 * value for value in row["accuracy"]]
        if values:
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
            lines.append(
                f"| {row['dataset']} | {row['training']} | {mean(values):.2f}{spread} | {len(values)} "
                f"| {mean(row['epochs']):.0f} | {mean(row['seconds']):.0f} "
                f"| {max(row['peak_memory_bytes']) / 1e9:.2f} |"
            )
    lines.append("")
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        points = lead(rows, dataset)
        if points:
            lines.append(
                f"{dataset}: mini-batches differ by {mean(points):+.2f} points on the same {len(points)} splits."
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/minibatch"), help="where runs and results are written")
    parser.add_argument("--datasets", default=",".join(DATASETS), help=f"of {', '.join(DATASETS)}")
    parser.add_argument("--seeds", type=int, default=5, help="how many splits, a seed each")
    add_options(parser)
    arguments = parser.parse_args()
    datasets = arguments.datasets.split(",")
    run_until_stopped(plan(arguments.out, datasets, arguments.seeds), arguments)
    rows = summary(arguments.out, datasets, arguments.seeds)
    cuda = arguments.device.startswith("cuda") or (arguments.device == "auto" and torch.cuda.is_available())
    about = environment(torch.device("cuda" if cuda else "cpu"))
    written = {"environment": about, "model": settings(MODEL), "rows": rows}
    written["training"] = {way: settings(training) for way, training in WAYS.items()}
    write_results(arguments.out, "minibatch", written, markdown(rows, about))


def settings(options: Any) -> dict[str, Any]:
    """What differs from the defaults."""
    return {key: value for key, value in vars(options).items() if value != vars(type(options)())[key]}


if __name__ == "__main__":
    main()
