"""How much of the label's information trained models capture, and equally large models to compare."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from torch_goat.experiments.information.decompose import mutual_information
from torch_goat.experiments.information.discretize import as_array, count, symbols
from torch_goat.experiments.models import ModelOptions, Network, degree_histogram

# The paper's layer, without the weighted mean of the neighbours, so that all that is captured passes through the RNN.
_PAPER: Final = {"mean_residual": False, "rnn_init": "uniform"}
MODELS: Final[dict[str, dict[str, Any]]] = {
    "goat-lstm": {"name": "goat", "rnn": "lstm", **_PAPER},
    "goat-gru": {"name": "goat", "rnn": "gru", **_PAPER},
    "goat-rnn": {"name": "goat", "rnn": "rnn", **_PAPER},
    **{name: {"name": name} for name in ("gcn", "sage-mean", "sage-max", "sage-lstm", "gin", "gat", "gatv2", "pna")},
}
"""The compared models, by their names in tables, with the options that distinguish them."""

PARAMETERS: Final = 2000  # the largest number of parameters of a network
EPOCHS: Final = 200


def captured_information(prediction: Any, label: Any, *, corrected: bool = True) -> float:
    """I(prediction; label) in bits: how much of the label's information the predicted classes contain, both ``[n]``.

    With Miller-Madow bias correction, independent predictions give 0 on average, and may be slightly negative. The
    result never exceeds the entropy of the label.
    """
    first, second = symbols(prediction, "the prediction"), symbols(label, "the label")
    if len(first) != len(second) or len(first) == 0:
        sizes = f"{len(first)} and {len(second)}"
        raise ValueError(f"prediction and label must have the same, nonzero length, got {sizes}.")
    if missing := int((as_array(label) < 0).sum()):
        raise ValueError(f"the labels of {missing} nodes are unknown (below 0); remove these nodes.")
    entropy = mutual_information(count([second, second]))
    return float(min(mutual_information(count([first, second]), corrected), entropy))


def predicted_classes(model: Module, data: Data) -> Tensor:
    """The class of each node ``[N]`` with the highest score of ``model(x, edge_index)`` in evaluation mode."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    with torch.no_grad():
        scores = model(data.x.to(device), data.edge_index.to(device))
    model.train(training)
    return scores.argmax(dim=-1).cpu()


def fitted(model: str, layers: int, data: Data, budget: int = PARAMETERS) -> ModelOptions:
    """The widest network of a model within a parameter budget: linear encoder, ``layers`` layers, linear output."""
    width = 0  # even, for bidirectional RNNs
    while parameters(_options(model, width + 2, layers), data) <= budget:
        width += 2
    if not width:
        raise ValueError(f"{layers} layers of {model} exceed {budget} parameters at the smallest width.")
    return _options(model, width, layers)


def parameters(options: ModelOptions, data: Data) -> int:
    """The number of parameters of a network on a graph."""
    return sum(weight.numel() for weight in network_for(data, options).parameters())


def network_for(data: Data, options: ModelOptions) -> Network:
    degree = degree_histogram(data.edge_index, data.num_nodes)
    return Network(options, data.num_features, data.num_classes, degree=degree)


def _options(model: str, width: int, layers: int) -> ModelOptions:
    own = MODELS[model] | {"input_channels": width, "last_channels": width, "num_layers": layers}
    if layers > 1:
        own |= {"hidden_channels": width} | ({"last": "goat"} if own["name"] == "goat" else {})
    return ModelOptions(**own, activation="relu", dropout=0.0)
