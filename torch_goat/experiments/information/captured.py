from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from torch_goat.experiments import Experiment, models
from torch_goat.experiments.information.measures import mutual_information
from torch_goat.experiments.information.samples import as_array, count, symbols
from torch_goat.experiments.run import WEIGHTS


def captured_information(prediction: Any, label: Any, *, corrected: bool = True) -> float:
    """I(prediction; label) in bits: how much of the label a model's predicted classes tell.

    Args:
        prediction: The predicted class of each node ``[n]``.
        label: Its class ``[n]``.
        corrected: Whether the bias of the sample is corrected after Miller and Madow; independent predictions then come
            out at 0 on average, a little above it or below. It is never more than the label has.
    """
    first, second = symbols(prediction, "the prediction"), symbols(label, "the label")
    if len(first) != len(second) or len(first) == 0:
        raise ValueError(f"there must be a label for each prediction, got {len(first)} and {len(second)}.")
    missing = int((as_array(label) < 0).sum())
    if missing:
        raise ValueError(f"the label of {missing} nodes is missing (below 0); leave these nodes out.")
    return min(float(mutual_information(count([first, second]), corrected)), _entropy(second))


def predicted_classes(model: Module, data: Data) -> Tensor:
    """The class of each node ``[N]`` by a trained model, in evaluation.

    Args:
        model: Maps ``(x, edge_index)`` to the scores of the classes.
        data: The graph, on any device.
    """
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    with torch.no_grad():
        scores = model(data.x.to(device), data.edge_index.to(device))
    model.train(training)
    return scores.argmax(dim=-1).cpu()


def load_network(experiment: Experiment, folder: Path, data: Data) -> models.Network:
    """The network of a run that is done, with its best weights.

    Args:
        experiment: The run's experiment.
        folder: Its folder.
        data: The graph that it was trained on.
    """
    degree = models.degree_histogram(data.edge_index, data.num_nodes)
    network = models.build(experiment.model, data.num_features, data.num_classes, degree=degree)
    network.load_state_dict(load_file(folder / WEIGHTS))
    return network


def _entropy(label: NDArray[np.int64]) -> float:
    share = np.bincount(label) / len(label)
    return float(-(share * np.log2(share)).sum())
