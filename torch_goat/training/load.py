"""A run folder read back: the network as it was trained, and the graph that it was trained on."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch_geometric.data import Data

from torch_goat import datasets, models, settings
from torch_goat.datasets import DATASETS
from torch_goat.settings import nearest
from torch_goat.training.folder import CONFIG, RESULT, WEIGHTS, RunError
from torch_goat.training.options import Experiment
from torch_goat.training.result import Result


class NamedGraph(NamedTuple):
    """A graph as it was trained on, with the names of its nodes and classes."""

    data: Data
    ids: tuple[str, ...]  # of the nodes, in the order of data.x
    classes: tuple[str, ...]  # in the order of the network's output; none for regression

    def node(self, name: str) -> int:
        """The number of a node, from 0."""
        try:
            return self.ids.index(name)
        except ValueError:
            close = nearest(name, self.ids) if len(self.ids) <= 100_000 else "."
            close = close if "did you mean" in close else "."  # the list of all nodes helps nobody
            raise settings.SettingsError(f"there is no node {name!r} in the graph{close}") from None


@dataclass(frozen=True)
class Run:
    """A run that is done.

    Args:
        folder: Its folder.
        experiment: What was run.
        result: What it came to.
        network: The network with the best weights, in evaluation, on the CPU.
    """

    folder: Path
    experiment: Experiment
    result: Result
    network: models.Network

    def graph(self, data_dir: str | Path | None = None) -> NamedGraph:
        """The graph that the network was trained on, with the masks of its split.

        Args:
            data_dir: The folder of the datasets.
        """
        one = self.experiment
        data = datasets.load(one.dataset, split=one.split, index=one.index, data_dir=data_dir)
        ids, classes = range(data.num_nodes), range(DATASETS[one.dataset].classes)
        return NamedGraph(data, tuple(map(str, ids)), tuple(map(str, classes)))


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
    try:
        experiment = settings.read(Experiment, folder / CONFIG)
        result = Result.from_json((folder / RESULT).read_text(encoding="utf-8"))
        network = _network(experiment)
        network.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"the run folder {folder} is damaged ({reason}); train it anew in another folder.") from error
    return Run(folder, experiment, result, network.eval())


def _network(experiment: Experiment) -> models.Network:
    known = DATASETS.get(experiment.dataset)
    if known is None:
        raise ValueError(f"there is no dataset {experiment.dataset!r}{nearest(experiment.dataset, DATASETS)}")
    # The degrees that pna layers scale by are among the weights.
    return models.build(experiment.model, known.features, known.classes or 1, degree=torch.tensor([0, 1]))
