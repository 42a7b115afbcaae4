"""The graph and the settings that a command starts from: a dataset, tables or arrays, with a config or without."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from torch_goat import settings
from torch_goat.app.cli.console import Aligned, announce, console, say
from torch_goat.app.cli.options import Given, check_known
from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables import Column, Tables, Task, find_tables, load_tables
from torch_goat.data.tables.options import SPLITS, conflict
from torch_goat.experiments import Experiment, ModelOptions, TrainingOptions
from torch_goat.experiments.search import starting_point
from torch_goat.experiments.training.metrics import OF_TASK, digits
from torch_goat.lazy import lazy_module
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    import torch

    from torch_goat.data import loader
    from torch_goat.data.tables.graph import TableGraph
    from torch_goat.experiments import own_graph
else:
    loader = lazy_module("torch_goat.data.loader")
    own_graph = lazy_module("torch_goat.experiments.own_graph")
    torch = lazy_module("torch")

SUFFIXES: Final = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".graphml", ".xml")


@dataclass(frozen=True)
class Start:
    """An experiment before ``--set``; for tables also what was read from them."""

    experiment: Experiment
    tables: Tables | None = None
    graph: "TableGraph | None" = None
    index: int = 0  # the split of the graph

    @property
    def task(self) -> Task:
        if self.graph is not None:
            return self.graph.schema.task
        if self.experiment.graph:
            from torch_goat.experiments.training.task import task_of

            return task_of(loader.open_graph(self.experiment.graph))
        return DATASETS[self.experiment.dataset].task

    @property
    def metric(self) -> str:
        """The metric that decides by default: of tables, the one by which their models are compared."""
        return OF_TASK[self.task][0] if self.graph is None else own_graph.deciding_metric(self.graph)

    def with_paper_options(self) -> "Start":
        """The default options, which are the paper's, for the same metric."""
        chosen = self.experiment.training
        training = TrainingOptions(class_weights=chosen.class_weights, metric=chosen.metric)
        model = ModelOptions(self.experiment.model.name, given_order=self.experiment.model.given_order)
        return replace(self, experiment=replace(self.experiment, model=model, training=training))

    def override(self, assignments: Sequence[str]) -> Experiment:
        """The experiment with the assignments of ``--set``."""
        change = settings.override if self.graph is None else own_graph.override
        return change(self.experiment, assignments)


def start(
    dataset: str,
    edges: str,
    given: Given,
    model: str | None,
    split: str | None,
    config: Path | None,
    index: int | None,
    metric: str = "",
) -> Start:
    """The settings before ``--set``, of the config or those that suit the data; tables are read and described."""
    if config is not None and model is not None:
        raise SettingsError(f"--config {config} already contains a model; leave out --model {model}.")
    arrays, own = not edges and is_arrays(dataset), is_own(dataset, edges)
    if arrays:
        options = (("--split", split), ("--index", index))
        if wrong := [*given.options, *(option for option, value in options if value is not None)]:
            why = "on which one model is trained" if wrong[0] == "--repeats" else "which has targets and masks"
            raise SettingsError(f"{wrong[0]} does not apply to a folder of arrays, {why}.")
    elif not own:
        check_exists(dataset, given.options)
    elif split is not None:
        raise SettingsError(
            "--split applies to named datasets; use --fractions, --folds, --split-column, --group or --time."
        )
    settled = None if config is None else settings.read(Experiment, config)
    if arrays:
        announce(dataset)
        return Start(own_graph.array_experiment(Path(dataset), model or "goat", settled))
    if own:
        tables = make_tables(dataset, edges, **given.values)
        graph = read_graph(tables, index or 0)
        if own_graph.is_unbalanced(graph) and not metric and config is None:
            say("Note: the classes are unbalanced; with --metric macro_f1 all of them count equally.")
        experiment = own_graph.table_experiment(tables, graph, model or "goat", settled, metric)
        return Start(experiment, tables, graph, index or 0)
    return Start(_named_experiment(dataset, model, split, settled))


def _named_experiment(dataset: str, model: str | None, split: str | None, config: Experiment | None) -> Experiment:
    """The settings for a named dataset, or for the data of the config if none is named."""
    if config is not None:
        if (config.tables is not None or config.graph) and not dataset:
            return config
        name = dataset or config.dataset
        check_known("dataset", name, DATASETS)
        experiment = replace(config, dataset=name, tables=None, graph="", graph_digest=None)
    elif dataset:
        experiment = starting_point(dataset, model or "goat")
    else:
        raise SettingsError("name a dataset (goat datasets lists them) or a --config.")
    known = DATASETS[experiment.dataset]
    experiment = replace(experiment, split=split or experiment.split or known.default_split)
    known.check(experiment.split)
    return experiment


def is_own(dataset: str, edges: str) -> bool:
    """Whether the arguments name files rather than a dataset."""
    if edges or dataset in DATASETS:
        return bool(edges)
    return Path(dataset).suffix.lower() in SUFFIXES or bool(dataset and Path(dataset).exists())


def is_arrays(dataset: str) -> bool:
    """Whether the argument is a folder of arrays."""
    if not dataset or not Path(dataset).is_dir():
        return False
    from torch_goat.data.loader.folder import is_graph_folder

    return is_graph_folder(dataset)


def check_exists(dataset: str, options: Sequence[str]) -> None:
    """Refuses a path that does not exist, and options of tables combined with the name of a dataset."""
    if dataset and dataset not in DATASETS and (options or len(Path(dataset).parts) > 1):
        raise SettingsError(f"there is no file or folder {dataset!r}; check the path.")
    if options:
        raise SettingsError(f"{options[0]} applies to your own graph; name its files first.")


def make_tables(nodes: str, edges: str, *, fractions: str = "", **options: Any) -> Tables:
    """The tables that the arguments describe; options override those of the folder's ``graph.toml``."""
    values = find_tables(nodes, edges) | options
    given = [key for key in SPLITS if options.get(key)]
    names = {"split_column": "--split-column", "time_column": "--time", "group_column": "--group", "folds": "--folds"}
    both = [names[key] for key in conflict(given)]
    if fractions and not both and {"split_column", "folds"} & {*given}:
        both = [names[given[0] if given[0] == "split_column" else "folds"], "--fractions"]
    if both:
        raise SettingsError(f"{both[0]} and {both[1]} cannot be combined; leave one of them out.")
    if given or fractions:  # they replace the split of the folder
        values = {key: value for key, value in values.items() if key not in SPLITS or key in given}
    if fractions:
        values |= _parse_fractions(fractions)
    if not values.get("target"):
        raise SettingsError("name the node column to predict with --target.")
    values |= {key: str(Path(values[key]).resolve()) for key in ("nodes", "edges") if values[key]}
    return settings.parse(Tables, values, "the tables")


def _parse_fractions(text: str) -> dict[str, float]:
    try:
        train, val, test = (float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"--fractions must be three numbers such as 0.6,0.2,0.2, got {text!r}.") from None
    if not math.isclose(train + val + test, 1, abs_tol=1e-6):
        raise SettingsError(f"--fractions must sum to 1, but {text} sums to {train + val + test:g}.")
    return {"train": train, "val": val}


def read_graph(tables: Tables, index: int) -> "TableGraph":
    """Reads tables and describes their columns, target and split."""
    announce(tables.nodes, tables.edges)
    graph = load_tables(tables, index)
    data, schema = graph.data, graph.schema
    kind = "directed" if schema.directed else "undirected"
    name = own_graph.graph_name(tables.nodes)
    say(f"{name}: {data.num_nodes} nodes, {graph.num_edges} {kind} edges; node ids from the column {schema.id!r}.")
    rows = [
        [column.name, what, *_describe(column)]
        for what, columns in (("nodes", schema.nodes), ("edges", schema.edges))
        for column in columns
    ]
    if len(rows) > 30:
        kinds = {kind: sum(row[2] == kind for row in rows) for kind in ("number", "flag", "category", "date", "time")}
        say("Columns: " + ", ".join(f"{count} of kind {kind}" for kind, count in kinds.items() if count) + ".")
    elif rows:
        console().print(Aligned(["column", "of", "kind", "encoding"], rows))
    if schema.task == "classification":
        counts = torch.bincount(data.y[data.train_mask], minlength=len(schema.classes)).tolist()
        shown = ", ".join(f"{name}: {count}" for name, count in list(zip(schema.classes, counts, strict=True))[:20])
        shown += ", ..." if len(counts) > 20 else ""
        positive = f"; {schema.classes[1]!r} is the positive one" if len(schema.classes) == 2 else ""
        say(f"Target: {schema.target!r}, {len(schema.classes)} classes (training nodes: {shown}){positive}.")
    else:
        mean, scale = schema.target_mean, schema.target_scale
        say(f"Target: {schema.target!r}, a number ({_moments(mean, scale)}).")
    train, val, test = (int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test"))
    say(f"Split: {graph.split}, {train} training, {val} validation and {test} test nodes.")
    if schema.order_by:
        say(f"Order: GOAT reads neighbours in decreasing order of {schema.order_by!r}; other models ignore it.")
    for note in graph.notes:
        say(note if note.startswith("Warning: ") else f"Note: {note}")
    return graph


def _moments(mean: float, deviation: float) -> str:
    return f"mean {mean:.{digits(mean, deviation)}g}, standard deviation {deviation:.4g}"


def _describe(column: Column) -> list[str]:
    if column.kind == "category":
        shown = ", ".join(column.categories[:6]) + (", ..." if len(column.categories) > 6 else "")
        text = f"one-hot, {len(column.categories)} categories: {shown}"
    elif column.kind == "flag":
        text = "0 or 1, unchanged"
    elif column.kind == "date":
        mean = np.datetime64(round(column.mean), "D")
        text = f"days, standardised (mean {mean}, standard deviation {column.scale:.4g} days)"
    elif column.kind == "time":
        text = f"hours, standardised (mean {column.mean:.4g}, standard deviation {column.scale:.4g} hours)"
    else:
        text = f"standardised ({_moments(column.mean, column.scale)})"
    return [column.kind, text + (", with an indicator of missing values" if column.missing else "")]
