"""Information in the neighbourhoods of a labelled graph, and how much of it models capture."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import scatter

from torch_goat.data import datasets
from torch_goat.data.datasets import NEIGHBORHOOD_TASKS
from torch_goat.data.tables import Schema, Tables
from torch_goat.experiments import Experiment, ModelOptions, Observer, TrainingOptions, fit
from torch_goat.experiments.information import (
    Estimate,
    PooledColumn,
    captured_information,
    estimate,
    pooled_columns,
    predicted_classes,
    supported_bins,
)
from torch_goat.experiments.information.captured import EPOCHS, MODELS, fitted, network_for
from torch_goat.experiments.models import Network
from torch_goat.experiments.own_graph import graph_name, is_unbalanced, table_experiment
from torch_goat.experiments.search import own_starting_point, starting_point
from torch_goat.nn.ordering import Ordering

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import TableGraph

LEARNING_RATE: Final = 0.01  # of the models on tasks of known information
ORDER_EPOCHS: Final = 200  # for learning the order of the neighbours


class LabelledGraph(NamedTuple):
    """A labelled graph, and how to train a model on it."""

    name: str
    data: Data
    labelled: Tensor  # [N], mask of the nodes with a label
    start: Callable[[str], Experiment]  # the settings for a model
    schema: Schema | None = None  # of tables

    @classmethod
    def from_dataset(cls, dataset: str, index: int = 0, data_dir: Path | None = None) -> "LabelledGraph":
        """A graph of a named dataset."""
        data = datasets.load(dataset, index=index, data_dir=data_dir)
        labelled = data.y.isfinite() if data.y.is_floating_point() else data.y >= 0
        return cls(dataset, data, labelled, lambda model: starting_point(dataset, model))

    @classmethod
    def from_tables(cls, tables: Tables, graph: "TableGraph") -> "LabelledGraph":
        """The graph that was loaded from tables."""
        data = graph.data
        labelled = data.train_mask | data.val_mask | data.test_mask
        own = replace(tables, edge_features=False)  # which the models here do not read
        name, schema = graph_name(tables.nodes), graph.schema

        def start(model: str) -> Experiment:
            config = own_starting_point(schema.task, model, arrays=True)
            training = replace(config.training, class_weights=is_unbalanced(graph))
            return table_experiment(own, graph, model, replace(config, training=training))

        return cls(name, data, labelled, start, schema)

    @property
    def regression(self) -> bool:
        """Whether the labels are real numbers."""
        return self.data.y.is_floating_point()

    def uses_degree(self, values: str = "") -> bool:
        """Whether neighbours are described by their degree: by choice, or because the features are the identity."""
        size, width = self.data.x.shape
        identity = size == width and torch.equal(self.data.x, torch.eye(size))
        return values == "degree" or (not values and identity)

    def measure(
        self,
        groups: str,
        *,
        measure: str = "wb",
        bins: int = 0,
        target_bins: int = 2,
        values: str = "",
        pool: str = "mean",
        seed: int = 0,
        observer: Observer | None = None,
    ) -> Estimate:
        """Decomposes the information of two groups of neighbours about the label, as :func:`estimate` does.

        ``groups`` may also be ``"roles"``. By default, ``bins`` is what the sample supports and ``values`` are the
        degrees if the features only number the nodes. ``observer`` watches the model that learns the order.
        """
        data = self.data
        options: dict[str, Any] = {"pool": pool, "measure": measure, "seed": seed, "nodes": self.labelled}
        if self.regression:
            options["target_bins"] = target_bins
        if self.uses_degree(values):
            options["values"] = torch.bincount(data.edge_index[1], minlength=data.num_nodes).float()
        if groups == "roles":
            return estimate(data, NEIGHBORHOOD_TASKS[self.name].groups(data), **options)
        classes = target_bins if self.regression else int(data.y.max()) + 1
        options["bins"] = bins or supported_bins(int(self.labelled.sum()), classes)
        if groups == "order" and data.get("edge_key") is not None:
            return estimate(data, self._given_order(), **options)
        if groups == "order":
            options["ordering"] = self._learned_order(seed, observer)
        return estimate(data, groups, **options)  # type: ignore[arg-type]

    def pooled_columns(self, *, target_bins: int = 2) -> list[PooledColumn]:
        """The information of single columns of the neighbours; see :func:`pooled_columns`."""
        data, schema = self.data, self.schema
        names, values, edge_names = [f"column {number}" for number in range(data.num_features)], data.x, []
        if schema is not None and schema.nodes:
            names = [name for column in schema.nodes for name in column.channels]
            measured = ("number", "date", "time")  # kinds that are standardised
            units = [(column.mean, column.scale) if column.kind in measured else (0.0, 1.0) for column in schema.nodes]
            widths = torch.tensor([column.width for column in schema.nodes])
            first = widths.cumsum(0) - widths  # the channels with the numbers
            values = data.x.double()
            values[:, first] = values[:, first] * torch.tensor([scale for _, scale in units]).double()
            values[:, first] += torch.tensor([mean for mean, _ in units]).double()
            edge_names = [name for column in schema.edges for name in column.channels]
        elif schema is not None:
            names, values = [], data.x[:, :0]  # the degree has an entry anyway
        return pooled_columns(
            data,
            names,
            values=values,
            edge_names=edge_names,
            target_bins=target_bins if self.regression else None,
            nodes=self.labelled,
        )

    def captured(self, model: str, seed: int, observer: Observer | None = None) -> float:
        """The information of a trained model's predictions on the test nodes; ``model`` is a key of ``MODELS``."""
        data = self.data
        if self.name in NEIGHBORHOOD_TASKS:
            training = TrainingOptions(epochs=EPOCHS, learning_rate=LEARNING_RATE, weight_decay=0.0, patience=0)
            options = fitted(model, 1, data)
        else:
            start = self.start(MODELS[model]["name"])
            options, training = replace(start.model, **MODELS[model]), start.training
        network = self._trained(options, training, seed, observer)
        return captured_information(predicted_classes(network, data)[data.test_mask], data.y[data.test_mask])

    def _given_order(self) -> Tensor:
        """Whether each edge is not the first one of its target in the order of ``data.edge_key`` ``[E]``."""
        (source, target), key = self.data.edge_index, self.data.edge_key
        key = torch.where(source == target, -1, key)
        place = (key * self.data.num_nodes + self.data.num_nodes - 1 - source).double()  # of equal keys, any one
        first = scatter(place, target, dim_size=self.data.num_nodes, reduce="max")
        return (place < first[target]).long()

    def _learned_order(self, seed: int, observer: Observer | None) -> Ordering:
        """The order in which the first layer of a trained GOAT reads the neighbours."""
        start = self.start("goat")
        training = replace(start.training, epochs=ORDER_EPOCHS, patience=50)
        network = self._trained(start.model, training, seed, observer)
        with torch.no_grad():
            _, orderings = network(self.data.x, self.data.edge_index, return_orderings=True)
        first: Ordering = orderings[0]
        return first

    def _trained(
        self, options: ModelOptions, training: TrainingOptions, seed: int, observer: Observer | None
    ) -> Network:
        torch.manual_seed(seed)
        network = network_for(self.data, options)
        fit(network, self.data, training, seed=seed, device="cpu", observer=observer)
        return network
