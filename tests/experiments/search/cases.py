"""A search that takes no time."""

from typing import Any

from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.search import Search, Space

SPACE: Space = {"hidden_channels": (2, 3, 4, 5), "dropout": (0.0, 0.2, 0.4, 0.6), "learning_rate": (0.001, 0.01, 0.1)}


def small_search(
    space: Space | None = None, epochs: int = 3, model: ModelOptions | None = None, **changes: Any
) -> Search:
    """A search over three keys of a network of a few weights."""
    training = TrainingOptions(epochs=epochs, patience=0)
    experiment = Experiment("betweenness-100", "paper", model=model or ModelOptions("gcn"), training=training)
    return Search(experiment, space or SPACE, **{"metric": "mse", **changes})
