"""Training on your own graph: settings that suit it, and models compared on the same splits."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.data.loader import open_graph
from torch_goat.data.loader.folder import digest
from torch_goat.data.tables import Tables, load_tables
from torch_goat.experiments.comparison import REPEATS, Ranking, compare_runs
from torch_goat.experiments.leaderboard import Plan, make_plan, request_of, save_plan, saved_plan
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.run import Run, check_outside_runs, finished
from torch_goat.experiments.search import fingerprint, own_starting_point
from torch_goat.experiments.training.decisions import check_threshold
from torch_goat.experiments.training.metrics import DECIDING, OF_TASK
from torch_goat.experiments.training.options import Experiment
from torch_goat.experiments.training.task import task_of
from torch_goat.experiments.training.train import train
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import TableGraph

MODELS: Final = ("goat", "gat", "sage-mean", "gcn", "mlp", "trees", "linear", "constant")  # compared on your graph
UNBALANCED: Final = 3.0  # the ratio of the largest to the smallest class from which on classes are unbalanced
RECORDED: Final = (0, 10, 30, 100, 300)  # epochs whose orderings are recorded, to show how stable they are
MOST_RECORDED: Final = 1_000_000  # edges times heads; beyond, the files would be large


def graph_name(path: str | Path) -> str:
    """A name for the graph in a file or folder that is not the name of a dataset."""
    path = Path(path).resolve()
    name = path.parent.name if path.stem.lower() in ("nodes", "node") else path.stem if path.is_file() else path.name
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "graph"
    return f"{name}-own" if name in DATASETS else name


def is_unbalanced(graph: "TableGraph") -> bool:
    """Whether one class has at least three times the training nodes of another."""
    if graph.schema.task == "regression":
        return False
    counts = torch.bincount(graph.data.y[graph.data.train_mask], minlength=len(graph.schema.classes))
    counts = counts[counts > 0]
    return bool(counts.max() >= UNBALANCED * counts.min())


def deciding_metric(graph: "TableGraph", asked: str = "") -> str:
    """The metric by which models are compared on a graph: the one that was asked for, else accuracy or RMSE."""
    classes, target = graph.schema.task == "classification", repr(graph.schema.target)
    possible = DECIDING if classes else ("rmse",)
    if asked and asked not in possible:
        why = f"there is no metric {asked!r} that compares models"
        if asked in OF_TASK["regression" if classes else "classification"]:
            other = f"numbers, but {target} has classes" if classes else f"classes, but {target} is a number"
            why = f"{asked} is a metric of {other}"
        raise SettingsError(f"{why}; choose {' or '.join(possible)}.")
    return asked or possible[0]


def table_experiment(
    tables: Tables, graph: "TableGraph", model: str = "goat", config: Experiment | None = None, metric: str = ""
) -> Experiment:
    """An experiment on tables, tied to the contents of their files; ``config`` replaces settings for such graphs.

    If macro F1 is the metric to optimise, the loss weighs all classes equally.
    """
    tables, name = replace(tables, digest=graph.digest), graph_name(tables.nodes)
    if config is None:
        config = own_starting_point(graph.schema.task, model)
        deciding = deciding_metric(graph, metric)
        if deciding not in ("accuracy", "rmse"):
            changes: dict[str, Any] = {"metric": deciding, "class_weights": deciding == "macro_f1"}
            config = replace(config, training=replace(config.training, **changes))
    return in_given_order(
        replace(config, dataset=name, split=tables.split, index=0, tables=tables, graph="", graph_digest=None)
    )


def in_given_order(config: Experiment) -> Experiment:
    """Makes a GOAT model read neighbours in the order of the tables, if they give one, instead of learning it."""
    if config.tables is None or not config.tables.order_by or not config.model.num_orderings:
        return config
    model = replace(config.model, given_order=True, order_noise=0.0)
    training = replace(config.training, order_noise_end=None, fixed_ordering=-1, orderings_files=())
    return replace(config, model=model, training=training)


def array_experiment(folder: Path, model: str = "goat", config: Experiment | None = None) -> Experiment:
    """An experiment on a folder of arrays, tied to their contents; see :func:`table_experiment`."""
    data = open_graph(folder)
    if data.y is None:
        raise SettingsError(f"{folder} has no array y to predict.")
    config = config or own_starting_point(task_of(data), model, arrays=True)
    config = replace(config, dataset=graph_name(folder), split="masks", index=0, tables=None)
    return replace(config, graph=str(folder.resolve()), graph_digest=digest(folder))


def override(experiment: Experiment, assignments: Sequence[str]) -> Experiment:
    """Sets options as :func:`torch_goat.settings.override` does, except those of tables that have been read."""
    changed = settings.override(experiment, assignments)
    if changed.tables != experiment.tables:
        raise SettingsError(
            f"--set {' '.join(assignments)} would change how the graph is read; use --target, --directed and the like."
        )
    return changed


def record_orderings(experiment: Experiment, graph: "TableGraph", assignments: Sequence[str]) -> Experiment:
    """Makes a GOAT model that learns its order record it after some epochs, unless the assignments decide otherwise."""
    options, model = experiment.training, experiment.model
    decided = any(settings.sets(one, "record_orderings") for one in assignments) or options.holds_orderings
    if decided or model.given_order or not model.num_orderings or graph.data.num_edges * model.heads > MOST_RECORDED:
        return experiment
    return replace(experiment, training=replace(options, record_orderings=recorded(options.epochs)))


def recorded(epochs: int) -> tuple[int, ...]:
    """The epochs of a training whose orderings are recorded by default."""
    return tuple(epoch for epoch in RECORDED if epoch <= epochs)


def repetitions(
    tables: Tables, graph: "TableGraph", repeats: int | None = None, index: int | None = None
) -> list[tuple[int, int]]:
    """The split (from 0) and the number of the seed (from 0) of every run of a model.

    Args:
        repeats: The number of random splits, each with its own seed; of seeds, if a column decides the split; or of
            seeds on every fold or split column, where folds are drawn anew for each. By default 3, but 1 for folds and
            split columns.
        index: The first random split, or the only fold or split column to train on.
    """
    if repeats is not None and repeats < 1:
        raise SettingsError(f"repeats must be at least 1, got {repeats}.")
    count, first = graph.num_splits, index or 0
    repeats = repeats or (REPEATS if count < 2 else 1)
    if not count:
        return [(first + repeat, repeat) for repeat in range(repeats)]
    splits = range(count) if index is None else [index]
    return [(split + repeat * tables.folds, repeat) for repeat in range(repeats) for split in splits]


def model_experiment(
    tables: Tables, graph: "TableGraph", model: str, assignments: Sequence[str], metric: str = ""
) -> Experiment:
    """An experiment on tables with some options set, which records its orderings if it learns them."""
    experiment = override(table_experiment(tables, graph, model, metric=metric), assignments)
    check_threshold(experiment.training.threshold, len(graph.schema.classes))
    return record_orderings(experiment, graph, assignments)


class ModelComparison(NamedTuple):
    """Models that were trained on the same splits of a graph."""

    folder: Path  # of all runs
    ranking: Ranking[Run]  # one group of runs per model, ranked by the validation nodes
    plan: Plan  # what was trained, and what did not fit


def compare_models(
    tables: Tables,
    folder: str | Path | None = None,
    *,
    graph: "TableGraph | None" = None,
    index: int | None = None,
    assignments: Sequence[str] = (),
    repeats: int | None = None,
    minutes: float = 0.0,
    models: Collection[str] = MODELS,
    metric: str = "",
    device: str = "auto",
    runner: Callable[..., object] | None = None,
    on_trial: Callable[[str, int, int], None] = lambda model, number, total: None,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> ModelComparison:
    """Trains GOAT and the models of :data:`MODELS` on the same splits of your graph and ranks them.

    A short trial of each model decides which of them fit into the time budget, and which need mini-batches because full
    batches do not fit in memory. Simple models are tried first, and once a quarter of the budget is used up, the others
    are skipped. The plan is stored in the folder, and the same call repeats it. Finished runs in the folder are reused
    and stopped ones resumed.

    Args:
        folder: The folder for all runs; by default one in ``runs/``.
        graph: The graph loaded from the tables with this index (or 0), if it is loaded already.
        index: The first random split, or the only fold or split column; see :func:`repetitions`.
        assignments: Options to set, such as ``"epochs=100"``, for every model that has them.
        repeats: The number of random splits or seeds; see :func:`repetitions`.
        minutes: The time budget; 0 for none.
        models: The names of the models to compare.
        metric: What decides, ``"accuracy"``, ``"macro_f1"`` or ``"roc_auc"``; by default the accuracy. Numbers are
            compared by RMSE.
        device: As in :func:`train`.
        runner: Trains one run; called like ``train(experiment, folder, graph=graph)``.
        on_trial: Called before each trial with the model, the number of the trial from 1, and the number of models.
        on_plan: Called with the plan before the first run.
    """
    graph = graph or load_tables(tables, index or 0)
    runner = runner or partial(train, device=device)
    starts = starting_points(tables, graph, models, assignments, metric)
    first = next(iter(starts.values()))
    root = Path(folder or Path("runs") / f"{first.dataset}-{fingerprint(first)}")
    runs_of_each = repetitions(tables, graph, repeats, first.index or index)
    check_outside_runs(root)
    request, plan = request_of(starts, runs_of_each, minutes), saved_plan(root)
    if plan is None or plan.request != request:
        batches = not any(settings.sets(one, "batch_size") for one in assignments)
        graphs = {model: _read_by(model, graph) for model in starts}
        how = {"minutes": minutes, "device": device, "batches": batches, "request": request}
        plan = make_plan(starts, runs_of_each, graphs, on_trial=on_trial, **how)  # type: ignore[arg-type]
        for place, experiment in _placed(plan, root):
            finished(experiment, place)  # raises before another plan is replaced
        save_plan(root, plan)
    on_plan(plan)
    runs = []
    loaded, last = graph, index or 0
    for place, experiment in _placed(plan, root):
        model, split = experiment.model.name, experiment.index
        loaded, last = loaded if split == last else load_tables(tables, split), split
        runner(experiment, place, graph=_read_by(model, loaded))
        runs.append(Run(place))
    ranking = compare_runs(runs, label=lambda run: run.experiment.model.name, metric=metric)
    return ModelComparison(root, ranking, plan)


def _placed(plan: Plan, root: Path) -> Iterator[tuple[Path, Experiment]]:
    """The folder and the experiment of every run of a plan."""
    return ((root / f"{model}-{number}", experiment) for model, number, experiment in plan)


def starting_points(
    tables: Tables,
    graph: "TableGraph",
    models: Collection[str] = MODELS,
    assignments: Sequence[str] = (),
    metric: str = "",
) -> dict[str, Experiment]:
    """The experiments of models to compare. An assignment applies to those that have the option, at least one."""
    starts = {}
    applied: dict[str, list[str]] = {one: [] for one in assignments}
    problems: dict[str, SettingsError] = {}
    for model in models:
        own = tables if KINDS[model].edges else replace(tables, edge_features=False)
        start = table_experiment(own, graph, model, metric=metric)
        asked = [one for one in assignments if KINDS[model].goat or not settings.sets(one, "record_orderings")]
        kept = []
        for one in asked:
            try:
                override(start, [one])
            except SettingsError as error:
                problems.setdefault(one, error)
                continue
            kept.append(one)
            applied[one].append(model)
        starts[model] = model_experiment(own, graph, model, kept, metric)
    for one, having in applied.items():
        if not having:
            raise problems[one]
    return starts


def _read_by(model: str, graph: "TableGraph") -> "TableGraph":
    """The graph as a model reads it."""
    return graph if KINDS[model].edges else graph.without_edge_features()
