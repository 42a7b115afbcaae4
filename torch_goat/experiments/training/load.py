"""A run folder read back: the network as it was trained, and the graph that it was trained on."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch_geometric.data import Data

from torch_goat import settings
from torch_goat.data import datasets
from torch_goat.data.datasets import DATASETS
from torch_goat.data.loader import open_graph
from torch_goat.data.loader.csc import edges_of
from torch_goat.data.tables import Schema, load_tables
from torch_goat.experiments import models
from torch_goat.experiments.training.folder import CONFIG, RESULT, SCHEMA, WEIGHTS, Damaged, RunError, reading
from torch_goat.experiments.training.options import Experiment
from torch_goat.experiments.training.result import Result
from torch_goat.experiments.training.task import Task
from torch_goat.settings import nearest


class NamedGraph(NamedTuple):
    """A graph as it was trained on, with the names of its nodes and classes."""

    data: Data
    ids: tuple[str, ...]  # of the nodes, in the order of data.x
    classes: tuple[str, ...]  # in the order of the network's output; none for regression
    target: str = ""  # the name of what is predicted, where it has one
    target_mean: float = 0.0  # a prediction of a number is the network's output times the scale plus the mean
    target_scale: float = 1.0

    def node(self, name: str) -> int:
        """The number of a node, from 0."""
        name = str(name)
        try:
            return self.ids.index(name)
        except ValueError:
            close = nearest(name, self.ids) if len(self.ids) <= 100_000 else "."
            if "did you mean" not in close:  # the list of all nodes helps nobody
                close = f", whose nodes are {', '.join(self.ids[:3])}{', ...' if len(self.ids) > 3 else ''}; name one."
            raise settings.SettingsError(f"there is no node {name!r} in the graph{close}") from None


@dataclass(frozen=True)
class Run:
    """A run that is done.

    Args:
        folder: Its folder.
        experiment: What was run.
        result: What it came to.
        network: The network with the best weights, in evaluation, on the CPU.
        schema: What the columns of one's own tables became; ``None`` for a dataset that has a name.
    """

    folder: Path
    experiment: Experiment
    result: Result
    network: models.Network
    schema: Schema | None = None

    def graph(self, data_dir: str | Path | None = None) -> NamedGraph:
        """The graph that the network was trained on, with the masks of its split.

        Args:
            data_dir: The folder of the datasets.
        """
        one, schema = self.experiment, self.schema
        if one.tables is not None and schema is not None:
            own = load_tables(one.tables, one.index)
            return NamedGraph(own.data, own.ids, schema.classes, schema.target, schema.target_mean, schema.target_scale)
        if one.graph:
            data = open_graph(one.graph, unchanged=one.graph_digest)
            data = Data(**data.to_dict() | {"edge_index": edges_of(data)})
            classes = 0 if data.y.is_floating_point() else self.network.out_channels
        else:
            data = datasets.load(one.dataset, split=one.split, index=one.index, data_dir=data_dir)
            classes = DATASETS[one.dataset].classes
        return NamedGraph(data, tuple(map(str, range(data.num_nodes))), tuple(map(str, range(classes))))


def open_run(folder: str | Path) -> Run:
    """Reads a run folder; nothing in it is executed.

    Args:
        folder: A folder in which :func:`train` has finished.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise RunError(f"{folder} is no run folder: it has no {CONFIG}; name one that goat runs lists.")
    if not (folder / RESULT).is_file():
        raise RunError(f"the run in {folder} is not done: it has no {RESULT}; train it to its end first.")
    with reading(folder, CONFIG) as path:
        experiment = settings.read(Experiment, path)
    with reading(folder, RESULT) as path:
        result = Result.from_json(path.read_text(encoding="utf-8"))
    schema = None
    if experiment.tables is not None:
        with reading(folder, SCHEMA) as path:
            schema = Schema.from_json(path.read_text(encoding="utf-8"), str(path))
    arrays = open_graph(experiment.graph) if experiment.graph else None
    with reading(folder, CONFIG):
        network = _network(experiment, schema, arrays)
    try:
        with reading(folder, WEIGHTS) as path:
            network.load_state_dict(load_file(path))
    except Damaged:
        if arrays is not None:  # other arrays may be the reason, if they have another width
            open_graph(experiment.graph, unchanged=experiment.graph_digest)
        raise
    return Run(folder, experiment, result, network.eval(), schema)


def _network(experiment: Experiment, schema: Schema | None, arrays: Data | None) -> models.Network:
    degree = torch.tensor([0, 1])  # what pna layers scale by is among the weights
    if schema is not None:
        widths = schema.in_channels, schema.out_channels
        return models.build(experiment.model, *widths, degree=degree, edge_dim=schema.edge_dim)
    if arrays is not None:
        edge_dim = 0 if arrays.edge_attr is None else arrays.edge_attr.size(1)
        channels = Task(arrays, torch.device("cpu")).channels
        return models.build(experiment.model, arrays.num_features, channels, degree=degree, edge_dim=edge_dim)
    known = DATASETS.get(experiment.dataset)
    if known is None:
        raise ValueError(f"there is no dataset {experiment.dataset!r}{nearest(experiment.dataset, DATASETS)}")
    return models.build(experiment.model, known.features, known.classes or 1, degree=degree)
