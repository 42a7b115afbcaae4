"""Starting points of training and search, for all datasets and models."""

from dataclasses import dataclass, field
from typing import Any, Final

from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables.options import Task
from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.models.options import ModelOptions
from torch_goat.settings import check_known


@dataclass(frozen=True)
class _Start:
    """Settings for a dataset that differ from the defaults of the options, which are those of the paper's code."""

    width: int = 64  # of a layer, all heads together
    heads: int = 8  # of layers with heads
    same_last: bool = False  # whether the last layer is of the same kind as the others
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


_GENERATED: Final = {"activation": "relu", "dropout": 0.0}
_REGRESSION: Final = _Start(
    16, 1, True, _GENERATED | {"input_channels": 16, "last_channels": 16}, {"weight_decay": 0.0}
)
_WEB: Final = _Start(model={"residual": True})
_ARRAYS: Final = _Start(model={"residual": True, "dropout": 0.3}, training={"epochs": 500, "patience": 100})
_TABLES: Final = _Start(
    model=_ARRAYS.model | {"norm": "layer"},
    training=_ARRAYS.training | {"stop_on": "metric", "learning_rate": 0.01, "warmup": 10},
)
_OWN_REGRESSION: Final = _Start(
    model={"residual": True, "dropout": 0.1, "last_channels": 32},
    training={"epochs": 500, "patience": 100, "weight_decay": 0.0},
)
_STARTS: Final = {
    "top2": _Start(32, 1, True, _GENERATED, {"learning_rate": 0.01, "weight_decay": 0.0}),
    "ogbn-arxiv": _Start(128, 8, False, {"norm": "batch"}, {"learning_rate": 0.01, "weight_decay": 0.0}),
    "cornell": _WEB,
    "texas": _WEB,
    "wisconsin": _WEB,
}


def starting_point(dataset: str, model: str) -> Experiment:
    """Settings for a dataset and a model, to train with or to start a search from.

    Layers have 64 channels (8 heads of 8 for layers with heads) and the defaults of :class:`ModelOptions` and
    :class:`TrainingOptions`, except:

    - ``top2``: 32 channels, one head, ReLU, no dropout, no weight decay, learning rate 0.01; GOAT in both layers.
    - Regression (``betweenness-*``, ``effective-size-*``): a linear encoder, two layers and a linear output of 16
      channels, one head, ReLU, no dropout, no weight decay; GOAT in both layers, since attention averages over the
      structure.
    - ``ogbn-arxiv``: 128 channels, batch normalisation, no weight decay, learning rate 0.01.
    - ``cornell``, ``texas``, ``wisconsin``: a residual, since neighbours there rarely share a class.
    """
    check_known("dataset", dataset, DATASETS)
    known = DATASETS[dataset]
    start = _REGRESSION if known.task == "regression" else _STARTS.get(dataset, _Start())
    return _experiment(dataset, known.default_split, model, start)


def own_starting_point(task: Task, model: str, *, arrays: bool = False) -> Experiment:
    """Settings for a user graph, the same for all models.

    Layers have 64 channels and a residual, which suits both homophilous and heterophilous graphs. For classes of tables
    there is also layer normalisation, a warm-up of the learning rate, and the validation metric instead of the loss
    decides the best epoch: the loss is often lowest long before the accuracy is highest (``benchmarks/defaults.py``).

    Args:
        task: What is predicted.
        model: The name of the model.
        arrays: Whether the graph is a folder of arrays, whose settings are those of earlier versions.
    """
    classes = _ARRAYS if arrays else _TABLES
    return _experiment("", "", model, _OWN_REGRESSION if task == "regression" else classes)


def _experiment(dataset: str, split: str, model: str, start: _Start) -> Experiment:
    check_known("model", model, KINDS)
    kind = KINDS[model]
    if kind.fitted:
        return Experiment(dataset, split, model=ModelOptions(name=model), training=TrainingOptions(**start.training))
    heads = start.heads if "heads" in kind.reads else 1
    last = model if start.same_last and kind.last else ""
    options = ModelOptions(name=model, hidden_channels=start.width // heads, heads=heads, last=last, **start.model)
    return Experiment(dataset, split, model=options, training=TrainingOptions(**start.training))
