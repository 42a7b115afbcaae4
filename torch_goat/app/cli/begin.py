"""Where a training or a search begins: on a dataset, on tables or on arrays of one's own, with a recipe or without."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from torch_goat import settings
from torch_goat.app.cli.options import Given
from torch_goat.app.cli.own import (
    array_experiment,
    check_there,
    is_own,
    make_tables,
    own_experiment,
    read_own,
    with_options,
)
from torch_goat.data.datasets import DATASETS
from torch_goat.data.loader import open_graph
from torch_goat.data.loader.folder import is_graph_folder
from torch_goat.data.tables.options import Task
from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.search import starting_point
from torch_goat.experiments.training.task import task_of
from torch_goat.settings import SettingsError, nearest

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import TableGraph

Model = Annotated[str | None, typer.Option("--model", help="goat (the default), gat, gcn, sage-lstm, ...")]
Split = Annotated[str | None, typer.Option("--split", help="The split protocol; else the dataset's own.")]
Recipe = Annotated[
    Path | None,
    typer.Option("--recipe", metavar="FILE", help="Settings to begin with, as goat tune or a run writes them."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="The folder; else one in runs/.")]


class Beginning(NamedTuple):
    """An experiment before ``--set``, and of tables what was read from them."""

    experiment: Experiment
    graph: "TableGraph | None" = None

    @property
    def task(self) -> Task:
        """What is predicted."""
        if self.graph is not None:
            return self.graph.schema.task
        if self.experiment.graph:
            return task_of(open_graph(self.experiment.graph))
        return DATASETS[self.experiment.dataset].task

    def with_papers_options(self) -> "Beginning":
        """With the options' own defaults, which are the paper's; unbalanced classes still weigh the same."""
        training = TrainingOptions(class_weights=self.experiment.training.class_weights)
        model = ModelOptions(self.experiment.model.name)
        return self._replace(experiment=replace(self.experiment, model=model, training=training))

    def with_options(self, assignments: Sequence[str]) -> Experiment:
        """The experiment with what ``--set`` sets."""
        if self.graph is None:
            return settings.override(self.experiment, assignments)
        return with_options(self.experiment, assignments)


def begin(
    dataset: str, edges: str, given: Given, model: str | None, split: str | None, recipe: Path | None, index: int | None
) -> Beginning:
    """The settings before ``--set``, those of a recipe or those that suit the data; tables are read, and told about.

    Args:
        dataset: The name of a dataset, or the nodes, or the folder, of a graph of one's own.
        edges: The edges of a graph of one's own, if they have a file of their own.
        given: How that graph is to be read.
        model: The model's name; ``goat`` if there is no recipe either, which brings its own.
        split: The split protocol of a dataset, if another than its own.
        recipe: The recipe's file.
        index: Which graph or split, if it was named.
    """
    if is_graph_folder(dataset) and not edges:
        named = [option for option, value in (("--split", split), ("--index", index)) if value is not None]
        if wrong := [*given.options, *named]:
            raise SettingsError(
                f"{wrong[0]} is not for a folder of arrays, which has its targets and masks; leave it out."
            )
        return Beginning(array_experiment(Path(dataset), model, recipe))
    if is_own(dataset, edges):
        if split is not None:
            raise SettingsError("--split is of named datasets; use --fractions, --split-column or --time-column.")
        tables, graph = read_own(make_tables(dataset, edges, **given.values), index or 0)
        return Beginning(own_experiment(tables, graph, model, recipe), graph)
    check_there(dataset, given.options)
    return Beginning(_named(dataset, model, split, recipe))


def _named(dataset: str, model: str | None, split: str | None, recipe: Path | None) -> Experiment:
    """The settings for a dataset, or for what a recipe names if none is named."""
    if recipe is not None:
        if model is not None:
            raise SettingsError(f"the recipe {recipe} brings its own model; leave --model {model} out.")
        experiment = settings.read(Experiment, recipe)
        experiment = replace(experiment, dataset=dataset or experiment.dataset)
        if (experiment.tables is not None or experiment.graph) and not dataset:
            return experiment
        experiment = replace(experiment, tables=None, graph="", graph_digest=None)
        if experiment.dataset not in DATASETS:
            raise SettingsError(f"there is no dataset {experiment.dataset!r}{nearest(experiment.dataset, DATASETS)}")
    elif dataset:
        experiment = starting_point(dataset, model or "goat")
    else:
        raise SettingsError("name a dataset (goat datasets lists them) or a --recipe.")
    experiment = replace(experiment, split=split or experiment.split or DATASETS[experiment.dataset].default_split)
    DATASETS[experiment.dataset].check(experiment.split)
    return experiment
