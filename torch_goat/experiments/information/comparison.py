"""Models side by side: the same network around each layer, the same number of parameters, the same search."""

from dataclasses import replace
from itertools import product
from typing import Any, Final

from torch_geometric.data import Data

from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions, build, degree_histogram

# The paper's layer: with the weighted mean of the neighbours beside it, an RNN could not be credited with anything.
_RNN_ALONE: Final = {"mean_residual": False, "rnn_init": "uniform"}
MODELS: Final[dict[str, dict[str, Any]]] = {
    "goat-lstm": {"name": "goat", "rnn": "lstm", **_RNN_ALONE},
    "goat-gru": {"name": "goat", "rnn": "gru", **_RNN_ALONE},
    "goat-rnn": {"name": "goat", "rnn": "rnn", **_RNN_ALONE},
    **{name: {"name": name} for name in ("gcn", "sage-mean", "sage-max", "sage-lstm", "gin", "gat", "gatv2", "pna")},
}
"""The models that are compared, by the name that tables give them, with what sets each apart."""

PARAMETERS: Final = 2000  # the most that a network may have
LAYERS: Final = (1, 2)
LEARNING_RATES: Final = (0.003, 0.01, 0.03)
EPOCHS: Final = 200


def network_options(model: str, width: int, layers: int) -> ModelOptions:
    """A linear encoder, the layers and a linear output, all of one width, with ReLU and without dropout.

    Args:
        model: A key of ``MODELS``.
        width: The width.
        layers: How many layers.
    """
    own = dict(MODELS[model])
    if layers > 1:
        own["hidden_channels"] = width
        if own["name"] == "goat":
            own["last"] = "goat"
    return ModelOptions(
        **own, input_channels=width, last_channels=width, num_layers=layers, activation="relu", dropout=0.0
    )


def parameters(options: ModelOptions, data: Data) -> int:
    """How many parameters a network has on a graph."""
    degree = degree_histogram(data.edge_index, data.num_nodes)
    network = build(options, data.num_features, data.num_classes, degree=degree)
    return sum(weight.numel() for weight in network.parameters())


def fitted(model: str, layers: int, data: Data, budget: int = PARAMETERS) -> ModelOptions:
    """The widest network of a model within a budget of parameters; widths are even, as two directions need them.

    Args:
        model: A key of ``MODELS``.
        layers: How many layers.
        data: The graph, for the width of the input and the number of classes.
        budget: The most parameters.
    """
    width = 2
    if parameters(network_options(model, width, layers), data) > budget:
        raise ValueError(f"{layers} layers of {model} do not fit into {budget} parameters, however narrow.")
    while parameters(network_options(model, width + 2, layers), data) <= budget:
        width += 2
    return network_options(model, width, layers)


def candidates(model: str, dataset: str, data: Data, epochs: int = EPOCHS) -> list[Experiment]:
    """The points of the search, the same for every model: depths and learning rates.

    Args:
        model: A key of ``MODELS``.
        dataset: The dataset's name.
        data: Its graph.
        epochs: For how long each is trained.
    """
    training = TrainingOptions(epochs=epochs, patience=0, weight_decay=0.0)
    return [
        Experiment(dataset, model=fitted(model, layers, data), training=replace(training, learning_rate=learning_rate))
        for layers, learning_rate in product(LAYERS, LEARNING_RATES)
    ]
