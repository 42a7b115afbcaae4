"""An ablation of what makes the layer train: every remedy alone, and several together, on six tasks.

    python benchmarks/remedies.py --out build/remedies --data-dir DATA --jobs 2

Trains GOAT with the paper's equations, with one change at a time and with several, and the strongest baselines in the
same set-up. Runs below ``--out`` that are done are not repeated, so the benchmark can be stopped and resumed, also on
another machine. Writes ``remedies.json``, ``remedies.md`` and ``remedies.png`` from all runs that exist.

    python benchmarks/remedies.py --start --out build/remedies

Measures the input of the RNN before training, for the paper's layer and for each remedy that changes it; writes
``start.json`` and ``start.md``.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from measure import write_results
from runs import add_options, run_until_stopped
from torch import Tensor

from torch_goat.data.datasets import load
from torch_goat.experiments import Experiment, PlannedRun, TrainingOptions, finished
from torch_goat.experiments.models import ModelOptions
from torch_goat.nn import GOATConv
from torch_goat.ops import Places

SEEDS = range(5)
EXACT: dict[str, Any] = {"mean_residual": False, "rnn_init": "uniform"}  # as the paper has it, and not the default


def set_up(task: str, model: dict[str, Any], **training: Any) -> Experiment:
    return Experiment(task, model=ModelOptions(**model, **EXACT), training=TrainingOptions(**training))


OF_GRAPHS = {"hidden_channels": 8, "heads": 8}
OF_CITATIONS = OF_GRAPHS | {"dropout": 0.6, "last": "gat"}
OF_PRODUCTS = OF_GRAPHS | {"dropout": 0.5, "last": "gcn"}
OF_TOP2 = {"hidden_channels": 32, "heads": 1, "dropout": 0.0, "last": "gcn"}
OF_SIZES = {"input_channels": 64, "hidden_channels": 64, "last_channels": 64, "heads": 4, "dropout": 0.0, "last": "gat"}
# The set-up of each task: what every variant of it shares.
TASKS = {
    "cora-content": set_up("cora-content", OF_CITATIONS, epochs=300, patience=100),
    "citeseer": set_up("citeseer", OF_CITATIONS, epochs=300, patience=100),
    "top2": set_up("top2", OF_TOP2, epochs=400, patience=0, learning_rate=0.01, weight_decay=0.0),
    "effective-size-100": set_up("effective-size-100", OF_SIZES, epochs=500, patience=0, weight_decay=0.0),
    "computers": set_up("computers", OF_PRODUCTS, epochs=200, patience=0),
    "cs": set_up("cs", OF_PRODUCTS, epochs=150, patience=0),
}

TOGETHER: dict[str, Any] = {
    "scaling": "size",
    "state_norm": True,
    "rnn_init": "orthogonal",
    "mean_residual": True,
    "residual": True,
    "attention_dropout": 0.3,
}
DEFAULT: dict[str, Any] = {"rnn_init": "orthogonal", "mean_residual": True}
# Name -> what differs from the task's set-up, in the model and in the training.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the paper's equations": ({"name": "goat-paper"} | DEFAULT, {}),  # which it does not read
    "with a bias": ({}, {}),
    "scaled by size": ({"scaling": "size"}, {}),
    "normalised states": ({"state_norm": True}, {}),
    "orthogonal weights": ({"rnn_init": "orthogonal"}, {}),
    "residual": ({"residual": True}, {}),
    "mean residual": ({"mean_residual": True}, {}),
    "coefficient dropout": ({"attention_dropout": 0.3}, {}),
    "state dropout": ({"state_dropout": 0.3}, {}),
    "layer norm after it": ({"norm": "layer"}, {}),
    "two GOAT layers": ({"last": "goat"}, {}),
    "decay spares the RNN": ({}, {"decay_recurrent": False}),
    "warm-up": ({}, {"warmup": 50}),
    "averaged weights": ({}, {"averaging": 0.95}),
    "ordering frozen": ({}, {"fixed_ordering": 100}),
    "together": (TOGETHER, {}),
    "together, decay spares the RNN": (TOGETHER, {"decay_recurrent": False}),
    "together, two GOAT layers": (TOGETHER | {"last": "goat"}, {}),
    "default": (DEFAULT, {}),
    "default, scaled by size": (DEFAULT | {"scaling": "size"}, {}),
    "default, two GOAT layers": (DEFAULT | {"last": "goat"}, {}),
    "default, residual": (DEFAULT | {"residual": True}, {}),
    "default, residual, scaled by size": (DEFAULT | {"residual": True, "scaling": "size"}, {}),
    "default, residual, two GOAT layers": (DEFAULT | {"residual": True, "last": "goat"}, {}),
    **{
        f"together without {key}": ({name: value for name, value in TOGETHER.items() if name != key}, {})
        for key in TOGETHER
    },
}
BASELINES = ("gat", "gcn", "sage-max", "gin")
SUM_TO_ONE = ("cora-content", "citeseer")  # the features of a node
GAIN = {"input_gain": 25.0}  # about as much as undoes that
DECAY = {"weight_decay": 0.01}
DROPPED = {"attention_dropout": 0.6}  # as GAT's authors have it on these graphs


def other_second(experiment: Experiment) -> dict[str, Any]:
    return {"last": "gcn" if experiment.model.last == "gat" else "gat"}


def experiments(task: str) -> dict[str, Experiment]:
    """The variants of a task and its baselines, seed 0."""
    base = TASKS[task]
    found = {}
    variants = VARIANTS | {"the other second layer": (other_second(base), {})}
    if task != "effective-size-100":
        width = 64 if base.model.heads > 1 else base.model.hidden_channels
        variants["one wide head"] = ({"heads": 1, "hidden_channels": width}, {})
    if task in SUM_TO_ONE:
        variants["scaled input"] = (GAIN, {})
        variants["default, scaled input"] = (DEFAULT | GAIN, {})
        variants["default, more decay"] = (DEFAULT, DECAY)
        variants["default, scaled input, more decay"] = (DEFAULT | GAIN, DECAY)
        of_citations = DEFAULT | {"scaling": "size"} | DROPPED
        variants["default, size, dropout 0.6"] = (of_citations, {})
        variants["default, size, dropout 0.6, scaled input, more decay"] = (of_citations | GAIN, DECAY)
    for name, (model, training) in variants.items():
        found[name] = replace(base, model=replace(base.model, **model), training=replace(base.training, **training))
    for name in BASELINES:
        heads = {"heads": base.model.heads} if name == "gat" else {}
        hidden = base.model.hidden_channels if name == "gat" else base.model.hidden_channels * base.model.heads
        model = ModelOptions(
            name=name,
            input_channels=base.model.input_channels,
            hidden_channels=hidden,
            last_channels=base.model.last_channels,
            dropout=base.model.dropout,
            **heads,
        )
        found[name] = replace(base, model=model)
        if task in SUM_TO_ONE and name in ("gat", "gcn"):
            scaled = replace(base, model=replace(model, **GAIN))
            found[f"{name}, scaled input"] = scaled
            found[f"{name}, more decay"] = replace(found[name], training=replace(base.training, **DECAY))
            found[f"{name}, scaled input, more decay"] = replace(scaled, training=replace(base.training, **DECAY))
            if name == "gat":
                for other in ("gat", "gat, scaled input, more decay"):
                    dropped = replace(found[other], model=replace(found[other].model, **DROPPED))
                    found[other.replace("gat", "gat, dropout 0.6")] = dropped
    return found


def folder_of(out: Path, task: str, name: str) -> Path:
    return out / task / name.replace(" ", "-").replace(",", "").replace("'", "")


def plan(out: Path, tasks: list[str]) -> list[PlannedRun]:
    """All runs: the seed is that of the weights, and the graph or split where there are several."""
    several = {"top2", "effective-size-100", "computers", "cs"}
    return [
        PlannedRun(
            folder_of(out, task, name) / str(seed), replace(experiment, seed=seed, index=seed if task in several else 0)
        )
        for seed in SEEDS  # outermost, so that a part of the plan is a fair one
        for task in tasks
        for name, experiment in experiments(task).items()
    ]


def summary(out: Path, tasks: list[str]) -> list[dict[str, Any]]:
    """A row for every task and variant with all runs that are there."""
    rows = []
    for task in tasks:
        runs = {run.folder: run for run in plan(out, [task])}
        for name in experiments(task):
            folder = folder_of(out, task, name)
            results = [finished(runs[folder / str(seed)].experiment, folder / str(seed)) for seed in SEEDS]
            metric = "mse" if task.startswith("effective") else "accuracy"
            values = [result.metrics["test"][metric] for result in results if result is not None]
            rows.append({"task": task, "variant": name, "metric": metric, "values": values})
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    names = list(dict.fromkeys(row["variant"] for row in rows))
    cells = {(row["task"], row["variant"]): row for row in rows}

    def cell(task: str, name: str) -> str:
        row = cells.get((task, name))
        values = row["values"] if row else []
        if not row or not values:
            return "-"
        scale, digits = (100, 1) if row["metric"] == "accuracy" else (1, 4)
        spread = f" ± {scale * stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{scale * mean(values):.{digits}f}{spread}" + (f" ({len(values)})" if len(values) < len(SEEDS) else "")

    lines = [f"| variant | {' | '.join(tasks)} |", f"|---|{'---:|' * len(tasks)}"]
    lines += [f"| {name} | {' | '.join(cell(task, name) for task in tasks)} |" for name in names]
    return "\n".join(lines) + "\n"


LABELS = {
    "cora-content": "Cora",
    "citeseer": "CiteSeer",
    "top2": "Top-2 pooling",
    "effective-size-100": "effective size",
    "computers": "Computers",
    "cs": "CS",
}


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Every variant's mean beside that of the paper's equations, a panel for each task."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["variant"] for row in rows))[::-1]
    drawing = Figure(figsize=(13, 9), layout="constrained")
    panels = drawing.subplots(1, len(LABELS), sharey=True)
    for panel, (task, label) in zip(panels, LABELS.items(), strict=True):
        found = {row["variant"]: row for row in rows if row["task"] == task and row["values"]}
        scale = 100 if next(iter(found.values()))["metric"] == "accuracy" else 1
        for place, name in enumerate(names):
            if name in found:
                values = [scale * value for value in found[name]["values"]]
                color = "tab:orange" if name.split(",")[0] in BASELINES else "tab:blue"
                error = stdev(values) if len(values) > 1 else 0.0
                panel.errorbar(mean(values), place, xerr=error, fmt="o", color=color, markersize=4, linewidth=1)
        panel.axvline(scale * mean(found["the paper's equations"]["values"]), color="gray", linewidth=0.8)
        panel.set_title(label)
        panel.set_xlabel("accuracy (%)" if scale == 100 else "MSE (log scale)")
        if scale == 1:
            panel.set_xscale("log")
        panel.set_yticks(range(len(names)), names)
        panel.grid(axis="y", linewidth=0.3)
    drawing.suptitle("Test nodes: mean and standard deviation over seeds; the line is the paper's equations")
    drawing.savefig(path, dpi=110)


def start(data_dir: str | None) -> list[dict[str, Any]]:
    """The root mean square of what the RNN reads and gives before training, in the first layer on Cora."""
    data = load("cora-content", data_dir=data_dir)
    variants = {name: VARIANTS[name][0] for name in STARTS} | {"raw features": {}}
    rows = []
    for name, options in variants.items():
        x = (data.x > 0).float() if name == "raw features" else data.x
        options = {key: value for key, value in (EXACT | options).items() if key != "attention_dropout"}
        torch.manual_seed(0)
        layer = GOATConv(x.size(1), 8, 8, bias=False, **options)
        read: list[Tensor] = []
        layer.rnn.register_forward_pre_hook(lambda _, args: read.append(_tokens(*args)))  # noqa: B023 (called at once)
        out = layer(x, data.edge_index)
        rows.append({"variant": name, "read": _rms(read[0]), "given": _rms(out)})
    return rows


STARTS = ("with a bias", "scaled by size", "normalised states", "orthogonal weights", "mean residual", "together")


def _tokens(z: Tensor, places: Places, weight: Tensor) -> Tensor:
    """The scaled states that the RNN reads ``[K, E, C]``."""
    heads = range(z.size(1))
    return torch.stack([z[places.source[head], head] * weight[head].unsqueeze(-1) for head in heads])


def _rms(value: Tensor) -> float:
    return float(value.detach().square().mean().sqrt())


def start_markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| variant | the RNN reads (rms) | the layer gives (rms) |", "|---|---:|---:|"]
    lines += [f"| {row['variant']} | {row['read']:.4f} | {row['given']:.4f} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/remedies"), help="where runs and results are written")
    parser.add_argument("--tasks", default=",".join(TASKS), help=f"of {', '.join(TASKS)}")
    add_options(parser)
    parser.add_argument("--start", action="store_true", help="measure the layers before training instead")
    arguments = parser.parse_args()
    if arguments.start:
        before = start(arguments.data_dir)
        return write_results(arguments.out, "start", before, start_markdown(before))
    tasks = arguments.tasks.split(",")
    run_until_stopped(plan(arguments.out, tasks), arguments)
    rows = summary(arguments.out, tasks)
    write_results(arguments.out, "remedies", rows, markdown(rows))
    return figure(rows, arguments.out / "remedies.png")


if __name__ == "__main__":
    main()
