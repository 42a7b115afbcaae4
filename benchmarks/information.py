"""Which models capture synergy: accuracy and captured information against the dial, with everything else equal.

    python benchmarks/information.py --runs build/information --out results/information --jobs 2

Every model is the same network around another layer, as wide as a budget of parameters allows. The depth and the
learning rate of each are chosen on validation nodes at half and at full synergy, among the same points for all; then
every model is trained at every mark of the dial, and on parities of 2, 3 and 4 neighbours, on 10 graphs with 10 seeds.
Every run has a folder below ``--runs``; what is there is not run again, so that the whole can be stopped and continued.
Writes ``information.json``, ``information.md``, ``dial.png`` and ``parity.png`` of what is there.
"""

import argparse
import csv
import datetime
import json
import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from tqdm import tqdm

from torch_goat.datasets import NEIGHBORHOOD_TASKS, load
from torch_goat.datasets.neighborhood import SYNERGY_PERCENT
from torch_goat.files import write_atomic
from torch_goat.information import captured_information, predicted_classes
from torch_goat.information.captured import load_network
from torch_goat.information.charts import curves
from torch_goat.information.comparison import LAYERS, LEARNING_RATES, MODELS, PARAMETERS, candidates, parameters
from torch_goat.training import Event, Experiment, Interrupted, PlannedRun, Result, finished, run_plan
from torch_goat.training.folder import CURVES

SEEDS = range(10)
SEARCHED_ON = ("synergy-50", "synergy-100")  # graph 0 of these, validation nodes
GRAPHS = {"random graph": "", "tree": "-tree"}
PERCENT = {"random graph": SYNERGY_PERCENT, "tree": (0, 50, 100)}
PARITIES = {2: "xor", 3: "xor-3", 4: "synergy-100"}


def slug(experiment: Experiment) -> str:
    return f"{experiment.model.num_layers}-layers-{experiment.training.learning_rate}"


def searches(runs: Path) -> dict[tuple[str, str], list[PlannedRun]]:
    """The runs of the search, by model and point."""
    found: dict[tuple[str, str], list[PlannedRun]] = {}
    for dataset in SEARCHED_ON:
        data = load(dataset)
        for model in MODELS:
            for experiment in candidates(model, dataset, data):
                folder = runs / "search" / dataset / model / slug(experiment)
                found.setdefault((model, slug(experiment)), []).append(PlannedRun(folder, experiment))
    return found


def chosen(runs: Path) -> dict[str, Experiment]:
    """The point of each model with the best validation accuracy over the searched graphs, then with the lowest loss."""
    best: dict[str, tuple[tuple[float, float], Experiment]] = {}
    for (model, _), planned in searches(runs).items():
        results = [finished(run.experiment, run.folder) for run in planned]
        if None in results:
            raise SystemExit(f"the search of {model} is not complete; run it again.")
        accuracy = mean(result.metrics["val"]["accuracy"] for result in results if result is not None)
        quality = (accuracy, -mean(lowest_loss(run.folder) for run in planned))
        if model not in best or quality > best[model][0]:
            best[model] = (quality, planned[-1].experiment)
    return {model: experiment for model, (_, experiment) in best.items()}


def lowest_loss(folder: Path) -> float:
    with (folder / CURVES).open() as file:
        return min(float(line["val_loss"]) for line in csv.DictReader(file))


def trainings(
    runs: Path, points: dict[str, Experiment], datasets: Iterable[str]
) -> dict[tuple[str, str, int], PlannedRun]:
    """The runs that are compared, by dataset, model and seed; the seed is that of the weights and of the graph."""
    return {
        (dataset, model, seed): PlannedRun(
            runs / dataset / model / slug(point) / str(seed), replace(point, dataset=dataset, seed=seed, index=seed)
        )
        for seed in SEEDS
        for dataset in datasets
        for model, point in points.items()
    }


def run(planned: list[PlannedRun], jobs: int) -> None:
    with tqdm(total=len(planned), unit="run", mininterval=5) as bar:

        def report(event: Event) -> None:
            if event.kind in ("finished", "skipped", "failed"):
                bar.update()
            if event.kind == "failed":
                bar.write(f"{planned[event.index].folder}: {event.message}")

        run_plan(planned, jobs=jobs, device="cpu", on_event=report)


def measured(one: PlannedRun, result: Result) -> dict[str, float]:
    """What a run came to on its test nodes."""
    data = load(one.experiment.dataset, index=one.experiment.index)
    predicted = predicted_classes(load_network(one.experiment, one.folder, data), data)
    bits = captured_information(predicted[data.test_mask], data.y[data.test_mask])
    return {"seed": one.experiment.seed, "accuracy": result.metrics["test"]["accuracy"], "bits": bits}


def collected(runs: Path, points: dict[str, Experiment], datasets: list[str]) -> dict[str, Any]:
    """All that was measured, with what it takes to measure it again."""
    rows, versions, device, commits = [], {}, "", set()
    for (dataset, model, _), one in trainings(runs, points, datasets).items():
        result = finished(one.experiment, one.folder)
        if result is None:
            continue
        versions, device = result.versions, result.device
        commits.add(result.commit)
        rows.append({"dataset": dataset, "model": model} | measured(one, result))
    settings = {
        model: {
            "layers": point.model.num_layers,
            "width": point.model.last_channels,
            "learning_rate": point.training.learning_rate,
            "epochs": point.training.epochs,
            "parameters": parameters(point.model, load(point.dataset)),
        }
        for model, point in points.items()
    }
    return {
        "command": "python " + " ".join(sys.argv),
        "date": datetime.date.today().isoformat(),
        "hardware": f"{os.cpu_count()} cores {platform.machine()}; a run: {device}",
        "versions": versions,
        "commits": sorted(commits),
        "seeds": list(SEEDS),
        "budget": PARAMETERS,
        "search": {"layers": list(LAYERS), "learning_rates": list(LEARNING_RATES), "on": list(SEARCHED_ON)},
        "settings": settings,
        "rows": rows,
    }


def values(results: dict[str, Any], dataset: str, model: str, key: str) -> list[float]:
    return [row[key] for row in results["rows"] if (row["dataset"], row["model"]) == (dataset, model)]


def cell(found: list[float], scale: float, digits: int) -> str:
    if not found:
        return "-"
    spread = f" ± {scale * stdev(found):.{digits}f}" if len(found) > 1 else ""
    few = f" ({len(found)})" if len(found) < len(SEEDS) else ""
    return f"{scale * mean(found):.{digits}f}{spread}{few}"


def markdown(results: dict[str, Any], datasets: list[str]) -> str:
    """Tables of the accuracy and of the captured bits: mean and standard deviation over seeds."""
    lines = ["# Captured information", ""]
    lines += [f"`{results['command']}`, {results['date']}, {results['hardware']}, seeds {results['seeds']}.", ""]
    lines += ["| model | layers | width | parameters | learning rate |", "|---|---:|---:|---:|---:|"]
    for model, one in results["settings"].items():
        lines.append(f"| {model} | {one['layers']} | {one['width']} | {one['parameters']} | {one['learning_rate']} |")
    for title, key, scale, digits in (("Test accuracy (%)", "accuracy", 100, 1), ("Captured bits", "bits", 1, 2)):
        for graph, suffix in GRAPHS.items():
            here = [name for name in datasets if name.endswith("-tree") == bool(suffix)]
            if not here:
                continue
            lines += ["", f"## {title}, {graph}", "", f"| model | {' | '.join(here)} |", f"|---|{'---:|' * len(here)}"]
            for model in MODELS:
                cells = [cell(values(results, dataset, model, key), scale, digits) for dataset in here]
                lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, Any], path: Path, marks: dict[str, dict[float, str]], xlabel: str) -> None:
    """Accuracy and captured bits against ``marks`` (title -> position -> dataset)."""
    panels = []
    for key, scale in (("accuracy", 100.0), ("bits", 1.0)):
        for places in marks.values():
            lines = []
            for model in MODELS:
                found = {place: values(results, dataset, model, key) for place, dataset in places.items()}
                found = {place: numbers for place, numbers in found.items() if len(numbers) > 1}
                y = [scale * mean(numbers) for numbers in found.values()]
                spread = [scale * stdev(numbers) / len(numbers) ** 0.5 for numbers in found.values()]
                lines.append({"name": model, "x": list(found), "y": y, "spread": spread})
            if key == "bits":
                flat = {"color": "black", "linestyle": "--", "marker": ""}
                x = list(places)
                lines.append(
                    {"name": "available", "x": x, "y": [1.0] * len(x), "spread": [0.0] * len(x), "style": flat}
                )
            panels.append(lines)
    curves(path, list(marks), xlabel, ["test accuracy (%)", "captured information (bits)"], panels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("build/information"), help="where the runs are kept")
    parser.add_argument("--out", type=Path, default=Path("results/information"), help="where results are written")
    parser.add_argument("--datasets", help="some of the datasets, by comma; else the dial and the parities")
    parser.add_argument("--collect", action="store_true", help="run nothing, write the results of what is there")
    parser.add_argument("--jobs", type=int, default=0, help="runs at a time")
    arguments = parser.parse_args()
    dial = {
        graph: {float(percent): f"synergy-{percent}{suffix}" for percent in PERCENT[graph]}
        for graph, suffix in GRAPHS.items()
    }
    parity = {"random graph": {float(number): name for number, name in PARITIES.items()}}
    every = list(dict.fromkeys(name for places in (*dial.values(), *parity.values()) for name in places.values()))
    datasets = arguments.datasets.split(",") if arguments.datasets else every
    assert set(datasets) <= set(NEIGHBORHOOD_TASKS), f"known are {', '.join(NEIGHBORHOOD_TASKS)}"
    try:
        if not arguments.collect:
            run([one for planned in searches(arguments.runs).values() for one in planned], arguments.jobs)
            run(list(trainings(arguments.runs, chosen(arguments.runs), datasets).values()), arguments.jobs)
    except Interrupted as error:
        print(error)
    points = chosen(arguments.runs)
    results = collected(arguments.runs, points, datasets)
    write_atomic(arguments.out / "information.json", json.dumps(results, indent=1) + "\n")
    write_atomic(arguments.out / "information.md", markdown(results, datasets))
    draw(results, arguments.out / "dial.png", dial, "synergy (% of the label's bit)")
    draw(results, arguments.out / "parity.png", parity, "neighbours in the parity")
    print(markdown(results, datasets))


if __name__ == "__main__":
    main()
