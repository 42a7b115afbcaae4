"""What ``goat pid`` looks at: a dataset or a graph of one's own; what it estimates there, and what models capture."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.app.cli.own import base, graph_name, show_graph
from torch_goat.app.cli.progress import RunProgress
from torch_goat.data import datasets
from torch_goat.data.datasets import NEIGHBORHOOD_TASKS
from torch_goat.data.tables import Tables, load_tables
from torch_goat.experiments import Experiment, TrainingOptions, fit
from torch_goat.experiments.information import (
    Estimate,
    captured_information,
    estimate,
    predicted_classes,
    supported_bins,
)
from torch_goat.experiments.information.captured import EPOCHS, MODELS, fitted
from torch_goat.experiments.models import ModelOptions, Network, build, degree_histogram
from torch_goat.experiments.search import starting_point
from torch_goat.nn.ordering import Ordering

LEARNING_RATE = 0.01  # of the models on tasks of known information
ORDER_EPOCHS = 200  # for which a GOAT layer learns its order


class Subject(NamedTuple):
    """A labelled graph, and how a model would be trained on it."""

    name: str
    data: Data
    labelled: Tensor  # [N], which nodes have a label
    start: Callable[[str], Experiment]  # of a model's name

    @property
    def real(self) -> bool:
        """Whether the labels are real numbers."""
        return self.data.y.is_floating_point()


def named(dataset: str, index: int = 0, data_dir: Path | None = None) -> Subject:
    """A dataset's graph.

    Args:
        dataset: Its name.
        index: Which graph, of a generated dataset.
        data_dir: The folder of raw files.
    """
    data = datasets.load(dataset, index=index, data_dir=data_dir)
    labelled = data.y.isfinite() if data.y.is_floating_point() else data.y >= 0
    return Subject(dataset, data, labelled, lambda model: starting_point(dataset, model))


def own(tables: Tables, index: int = 0) -> Subject:
    """A graph of one's own, after saying what was read.

    Args:
        tables: Its tables.
        index: Which random split the models are trained and tested on.
    """
    graph = load_tables(tables, index)
    show_graph(tables, graph)
    data = graph.data
    labelled = data.train_mask | data.val_mask | data.test_mask  # y has numbers for the other nodes too
    return Subject(graph_name(tables), data, labelled, lambda model: base(tables, graph, model))


def measured(
    subject: Subject,
    *,
    groups: str,
    measure: str = "wb",
    bins: int = 0,
    target_bins: int = 2,
    values: str = "",
    pool: str = "mean",
    seed: int = 0,
) -> Estimate:
    """The estimate on a graph, with what the command chooses where nothing is said.

    Args:
        subject: The graph.
        groups: ``"roles"``, ``"features"``, ``"order"`` or ``"random"``.
        measure: ``"wb"`` or ``"broja"``.
        bins: The symbols of a group; 0 is as many as the sample supports.
        target_bins: Into how many quantiles real labels are cut.
        values: ``"features"`` or ``"degree"``; ``""`` is the degree where the features only number the nodes.
        pool: ``"mean"`` or ``"max"``.
        seed: The seed.
    """
    data = subject.data
    options: dict[str, Any] = {"pool": pool, "measure": measure, "seed": seed, "nodes": subject.labelled}
    if subject.real:
        options["target_bins"] = target_bins
    if by_degree(data, values):
        options["values"] = torch.bincount(data.edge_index[1], minlength=data.num_nodes).float()
    if groups == "roles":
        return estimate(data, NEIGHBORHOOD_TASKS[subject.name].groups(data), **options)
    classes = target_bins if subject.real else int(data.y.max()) + 1
    options["bins"] = bins or supported_bins(int(subject.labelled.sum()), classes)
    if groups == "order":
        options["ordering"] = _learned_order(subject, seed)
    return estimate(data, groups, **options)  # type: ignore[arg-type]


def by_degree(data: Data, values: str) -> bool:
    """Whether a neighbour is known by its degree: as told, or because the features are the identity."""
    numbered = data.x.size(0) == data.x.size(1) and torch.equal(data.x, torch.eye(data.x.size(0)))
    return values == "degree" or (not values and numbered)


def captured(subject: Subject, model: str, seed: int) -> float:
    """The information of a trained model's predictions on the test nodes.

    Args:
        subject: The graph.
        model: A key of :data:`torch_goat.experiments.information.captured.MODELS`.
        seed: The seed.
    """
    data, experiment = subject.data, _experiment(subject, model)
    network = _trained(subject, model, experiment.model, experiment.training, seed)
    return captured_information(predicted_classes(network, data)[data.test_mask], data.y[data.test_mask])


def _experiment(subject: Subject, model: str) -> Experiment:
    if subject.name in NEIGHBORHOOD_TASKS:
        training = TrainingOptions(epochs=EPOCHS, learning_rate=LEARNING_RATE, weight_decay=0.0, patience=0)
        return Experiment(subject.name, model=fitted(model, 1, subject.data), training=training)
    start = subject.start(MODELS[model]["name"])
    return replace(start, model=replace(start.model, **MODELS[model]))


def _learned_order(subject: Subject, seed: int) -> Ordering:
    """The order in which the first layer of a trained GOAT reads the neighbours."""
    start = subject.start("goat")
    training = replace(start.training, epochs=ORDER_EPOCHS, patience=50)
    network = _trained(subject, "goat", start.model, training, seed)
    with torch.no_grad():
        _, orderings = network(subject.data.x, subject.data.edge_index, return_orderings=True)
    first: Ordering = orderings[0]
    return first


def _trained(subject: Subject, name: str, options: ModelOptions, training: TrainingOptions, seed: int) -> Network:
    data = subject.data
    torch.manual_seed(seed)
    degree = degree_histogram(data.edge_index, data.num_nodes)
    network = build(options, data.num_features, data.num_classes, degree=degree)
    with RunProgress(f"{subject.name} {name}") as show:
        fit(network, data, training, seed=seed, device="cpu", observer=show)
    return network
