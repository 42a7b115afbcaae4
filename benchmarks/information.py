"""Which models capture synergy: accuracy and captured information against the share of synergy.

    python benchmarks/information.py --jobs 2
    python benchmarks/information.py --draw

The models differ only in the layer; each is as wide as a budget of parameters allows. Depth and learning rate are
chosen on validation nodes at half and at full synergy, from the same points for all. Then every model is trained at
every share of synergy, and on parities of 2, 3 and 4 neighbours, on 10 graphs with one seed each. Runs below
``--runs`` that are done are not repeated, so the benchmark can be stopped and resumed. Writes ``information.json`` and
``information.md`` to ``--out``, and ``information-dial.png`` and ``information-parity.png`` to ``--images``;
``--draw`` only redraws them from the JSON file.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from runs import run_all
from torch_geometric.data import Data

from torch_goat.data.datasets import NEIGHBORHOOD_TASKS, load
from torch_goat.data.datasets.neighborhood import NeighborhoodDial
from torch_goat.experiments import Experiment, Interrupted, PlannedRun, Result, Run, TrainingOptions, finished
from torch_goat.experiments.information import captured_information, predicted_classes
from torch_goat.experiments.information.captured import EPOCHS, MODELS, PARAMETERS, fitted, parameters
from torch_goat.experiments.information.charts import new_figure, save_figure
from torch_goat.files import write_atomic

LAYERS = (1, 2)
LEARNING_RATES = (0.003, 0.01, 0.03)
SEEDS = range(10)
SEARCHED_ON = ("synergy-50", "synergy-100")  # graph 0 of these, validation nodes
GRAPHS = {"random graph": "", "tree": "-tree"}
PERCENT = {"random graph": (0, 25, 50, 75, 100), "tree": (0, 50, 100)}
DIAL = {
    graph: {float(percent): f"synergy-{percent}{suffix}" for percent in PERCENT[graph]}
    for graph, suffix in GRAPHS.items()
}
PARITY = {"random graph": {2.0: "xor", 3.0: "xor-3", 4.0: "synergy-100"}}
DATASETS = list(dict.fromkeys(name for places in (*DIAL.values(), *PARITY.values()) for name in places.values()))
STYLES: dict[str, dict[str, Any]] = {
    "goat-lstm": {"color": "#cc3311", "marker": "o"},
    "goat-gru": {"color": "#ee7733", "marker": "o"},
    "goat-rnn": {"color": "#882255", "marker": "o"},
    "sage-lstm": {"color": "#aa4499", "marker": "s"},
    "sage-max": {"color": "#999933", "marker": "v"},
    "gin": {"color": "#117733", "marker": "^"},
    "pna": {"color": "#44aa99", "marker": "^"},
    "gcn": {"color": "#332288", "marker": "D"},
    "sage-mean": {"color": "#0077bb", "marker": "D"},
    "gat": {"color": "#33bbee", "marker": "x"},
    "gatv2": {"color": "#777777", "marker": "x"},
}


def candidates(model: str, dataset: str, data: Data, epochs: int = EPOCHS) -> list[Experiment]:
    """The points of the search, the same depths and learning rates for every model."""
    training = TrainingOptions(epochs=epochs, patience=0, weight_decay=0.0)
    return [
        Experiment(dataset, model=fitted(model, layers, data), training=replace(training, learning_rate=learning_rate))
        for layers, learning_rate in product(LAYERS, LEARNING_RATES)
    ]


def slug(experiment: Experiment) -> str:
    return f"{experiment.model.num_layers}-layers-{experiment.training.learning_rate}"


def searches(runs: Path, epochs: int) -> dict[tuple[str, str], list[PlannedRun]]:
    """The runs of the search, by model and point."""
    found: dict[tuple[str, str], list[PlannedRun]] = {}
    for dataset in SEARCHED_ON:
        data = load(dataset)
        for model in MODELS:
            for experiment in candidates(model, dataset, data, epochs):
                folder = runs / "search" / dataset / model / slug(experiment)
                found.setdefault((model, slug(experiment)), []).append(PlannedRun(folder, experiment))
    return found


def chosen(runs: Path, epochs: int) -> dict[str, Experiment]:
    """The point of each model with the best validation accuracy over the searched graphs, then with the lowest loss."""
    best: dict[str, tuple[tuple[float, float], Experiment]] = {}
    for (model, _), planned in searches(runs, epochs).items():
        results = [finished(run.experiment, run.folder) for run in planned]
        if None in results:
            raise SystemExit(f"the search of {model} is not complete; run it again.")
        accuracy = mean(result.metrics["val"]["accuracy"] for result in results if result is not None)
        quality = (accuracy, -mean(float(Run(run.folder).curves["val_loss"].min()) for run in planned))
        if model not in best or quality > best[model][0]:
            best[model] = (quality, planned[-1].experiment)
    return {model: experiment for model, (_, experiment) in best.items()}


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


def measured(one: PlannedRun, result: Result) -> tuple[float, float]:
    """The accuracy and the captured bits of a run on its test nodes."""
    data = load(one.experiment.dataset, index=one.experiment.index)
    predicted = predicted_classes(Run(one.folder).network, data)
    bits = captured_information(predicted[data.test_mask], data.y[data.test_mask])
    return round(result.metrics["test"]["accuracy"], 4), round(bits, 4)


def available(dataset: str) -> float:
    """The information of the neighbours about the label, in bits: its entropy, since they determine it."""
    chance: dict[int, float] = {}
    for outcome in NEIGHBORHOOD_TASKS[dataset].outcomes():
        chance[outcome.label] = chance.get(outcome.label, 0.0) + outcome.probability
    return -sum(share * math.log2(share) for share in chance.values())


def collected(runs: Path, points: dict[str, Experiment], datasets: list[str]) -> dict[str, Any]:
    """All results, with the settings and the environment of the runs."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    versions, device, commits = {}, "", set()
    for (dataset, model, seed), one in trainings(runs, points, datasets).items():
        result = finished(one.experiment, one.folder)
        if result is None:
            continue
        versions, device = result.versions, result.device
        commits.add(result.commit)
        empty = {"dataset": dataset, "model": model, "seeds": [], "accuracy": [], "bits": []}
        row = rows.setdefault((dataset, model), empty)
        for key, value in zip(("seeds", "accuracy", "bits"), (seed, *measured(one, result)), strict=True):
            row[key].append(value)
    settings = {
        model: {
            "layers": point.model.num_layers,
            "width": point.model.last_channels,
            "learning_rate": point.training.learning_rate,
            "parameters": parameters(point.model, load(point.dataset)),
        }
        for model, point in points.items()
    }
    epochs = max(point.training.epochs for point in points.values())
    return {
        "command": f"python benchmarks/information.py --epochs {epochs}",
        "date": datetime.date.today().isoformat(),
        "hardware": f"{os.cpu_count()} cores {platform.machine()}; a run: {device}",
        "versions": versions,
        "commits": sorted(commits),
        "seeds": list(SEEDS),
        "budget": PARAMETERS,
        "epochs": epochs,
        "search": {"layers": list(LAYERS), "learning_rates": list(LEARNING_RATES), "on": list(SEARCHED_ON)},
        "settings": settings,
        "available": {dataset: round(available(dataset), 4) for dataset in datasets},
        "rows": list(rows.values()),
    }


def dumps(results: dict[str, Any]) -> str:
    """JSON with a line for each row."""
    rows = ",\n  ".join(json.dumps(row) for row in results["rows"])
    return json.dumps(results | {"rows": []}, indent=1).replace('"rows": []', f'"rows": [\n  {rows}\n ]') + "\n"


def values(results: dict[str, Any], dataset: str, model: str, key: str) -> list[float]:
    found: list[list[float]] = [
        row[key] for row in results["rows"] if (row["dataset"], row["model"]) == (dataset, model)
    ]
    return found[0] if found else []


def cell(found: list[float], scale: float, digits: int) -> str:
    if not found:
        return "-"
    spread = f" ± {scale * stdev(found):.{digits}f}" if len(found) > 1 else ""
    few = f" ({len(found)})" if len(found) < len(SEEDS) else ""
    return f"{scale * mean(found):.{digits}f}{spread}{few}"


def markdown(results: dict[str, Any]) -> str:
    """Tables of the accuracy and of the captured bits: mean and standard deviation over seeds."""
    seeds = f"seeds {results['seeds'][0]} to {results['seeds'][-1]}"
    lines = [
        "# Captured information",
        "",
        f"`{results['command']}`, {results['date']}, {results['hardware']}, {seeds}.",
    ]
    lines += ["", "| model | layers | width | parameters | learning rate |", "|---|---:|---:|---:|---:|"]
    for model, one in results["settings"].items():
        lines.append(f"| {model} | {one['layers']} | {one['width']} | {one['parameters']} | {one['learning_rate']} |")
    for title, key, scale, digits in (("Test accuracy (%)", "accuracy", 100, 1), ("Captured bits", "bits", 1, 2)):
        for graph, suffix in GRAPHS.items():
            here = [name for name in results["available"] if name.endswith("-tree") == bool(suffix)]
            lines += ["", f"**{title}, {graph}**", "", f"| model | {' | '.join(here)} |", f"|---|{'---:|' * len(here)}"]
            for model in results["settings"]:
                cells = [cell(values(results, dataset, model, key), scale, digits) for dataset in here]
                lines.append(f"| {model} | {' | '.join(cells)} |")
            if key == "bits":
                cells = [f"{results['available'][dataset]:.2f}" for dataset in here]
                lines.append(f"| available | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def without_synergy(dataset: str) -> tuple[float, float]:
    """Accuracy and captured bits of a model that reads every copy and guesses every parity."""
    task = NEIGHBORHOOD_TASKS[dataset]
    assert isinstance(task, NeighborhoodDial)
    wrong = task.synergy / 2
    noise = -sum(share * math.log2(share) for share in (wrong, 1 - wrong) if share)
    return 1 - wrong, 1 - noise


def draw(results: dict[str, Any], path: Path, marks: dict[str, dict[float, str]], xlabel: str, source: str) -> None:
    """Draws accuracy and captured bits against ``marks`` (title -> position -> dataset), with two reference lines."""
    panels = []
    for number, (key, scale) in enumerate((("accuracy", 100.0), ("bits", 1.0))):
        for places in marks.values():
            panel = [_line(results, model, key, scale, places) for model in results["settings"]]
            best = [1.0 if key == "accuracy" else results["available"][name] for name in places.values()]
            guess = [without_synergy(name)[number] for name in places.values()]
            for name, heights, style in (("available", best, "--"), ("without synergy", guess, ":")):
                flat = {"color": "black", "linestyle": style, "marker": ""}
                y = [scale * height for height in heights]
                panel.append({"name": name, "x": list(places), "y": y, "spread": [0.0] * len(y), "style": flat})
            panels.append(panel)
    figure = new_figure(path, 5.2 * len(marks) + 1.4, 6.8)
    grid = figure.subplots(2, len(marks), squeeze=False)
    for axes, lines, number in zip(grid.flat, panels, range(len(panels)), strict=True):
        for one in lines:
            style = {"markersize": 3, **one["style"]}
            axes.errorbar(one["x"], one["y"], yerr=one["spread"], label=one["name"], linewidth=1, capsize=2, **style)
        row, column = divmod(number, len(marks))
        axes.set_xlabel(xlabel)
        axes.set_ylabel(("test accuracy (%)", "captured information (bits)")[row])
        axes.set_title(list(marks)[column], fontsize=10)
        axes.grid(alpha=0.3)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    save_figure(figure, path, source)


def _line(results: dict[str, Any], model: str, key: str, scale: float, places: dict[float, str]) -> dict[str, Any]:
    """A model's means over seeds, with their standard errors."""
    found = {place: values(results, dataset, model, key) for place, dataset in places.items()}
    found = {place: numbers for place, numbers in found.items() if len(numbers) > 1}
    y = [scale * mean(numbers) for numbers in found.values()]
    spread = [scale * stdev(numbers) / len(numbers) ** 0.5 for numbers in found.values()]
    return {"name": model, "x": list(found), "y": y, "spread": spread, "style": STYLES[model]}


def present(out: Path, images: Path) -> None:
    """Writes the table and the figures of the recorded results; figures contain the digest of these."""
    text = (out / "information.json").read_text()
    results, source = json.loads(text), f"SHA-256 of information.json: {hashlib.sha256(text.encode()).hexdigest()}"
    write_atomic(out / "information.md", markdown(results))
    draw(results, images / "information-dial.png", DIAL, "synergy (% of the label's bit)", source)
    draw(results, images / "information-parity.png", PARITY, "informative neighbours in the parity (count)", source)
    print(markdown(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("build/information"), help="where the runs are kept")
    parser.add_argument("--out", type=Path, default=Path("results/information"), help="where results are written")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="where figures are written")
    parser.add_argument("--datasets", default=",".join(DATASETS), help="comma-separated; default: all")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of every run; other --epochs need other --runs")
    parser.add_argument("--collect", action="store_true", help="run nothing, write the results of what is there")
    parser.add_argument("--draw", action="store_true", help="run nothing, draw the results that are in --out")
    parser.add_argument("--jobs", type=int, default=0, help="parallel runs; default: one per core")
    arguments = parser.parse_args()
    if arguments.draw:
        present(arguments.out, arguments.images)
        return
    datasets, runs, epochs = arguments.datasets.split(","), arguments.runs, arguments.epochs
    assert set(datasets) <= set(DATASETS), f"known are {', '.join(DATASETS)}"
    try:
        if not arguments.collect:
            run_all(
                [one for planned in searches(runs, epochs).values() for one in planned],
                jobs=arguments.jobs,
                device="cpu",
            )
            run_all(list(trainings(runs, chosen(runs, epochs), datasets).values()), jobs=arguments.jobs, device="cpu")
    except Interrupted as error:
        print(error)
    results = collected(runs, chosen(runs, epochs), datasets)
    write_atomic(arguments.out / "information.json", dumps(results))
    present(arguments.out, arguments.images)


if __name__ == "__main__":
    main()
