"""Searches: their description in ``search.toml``, their spaces, and the rule that selects a trial.

A space maps keys, as ``--set`` names them, to the values to try; a point has one value for each key. The value of a
trial is the mean of a validation metric over its runs. The best trial is the one with the best value, the first of
equal ones. The rule is the same for random search and for Optuna's samplers.
"""

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, Literal, TypeVar

from torch_goat import settings
from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables.options import Task
from torch_goat.experiments import Experiment, Result
from torch_goat.experiments.comparison import rank_key
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.models.options import ModelOptions
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER, OF_TASK
from torch_goat.settings import SettingsError, check_known, nearest, override, plain_value

Space = dict[str, tuple[Any, ...]]
Point = dict[str, Any]
K = TypeVar("K")

ONE_SPLIT: Final = ("time", "masks")  # split protocols of user graphs with a single split
# Between and beyond the default ones, the best of which each fit finds by itself.
_PENALTIES: Final = (1000.0, 500.0, 200.0, 50.0, 20.0, 5.0, 2.0, 0.5, 0.2, 0.05, 0.02, 0.005, 0.002, 0.001)
_TRAINING_OF_FITTED: Final = frozenset({"class_weights", "metric", "threshold"})  # what fitted models read of training
_TRAINING: Final[Space] = {"learning_rate": (0.001, 0.002, 0.005, 0.01, 0.02), "weight_decay": (0.0, 5e-5, 5e-4, 5e-3)}
_MODEL: Final[Space] = {
    "hidden_channels": (16, 32, 64, 128),
    "heads": (1, 2, 4, 8),
    "activation": ("elu", "relu"),
    "dropout": (0.0, 0.2, 0.4, 0.6, 0.8),
    "attention_dropout": (0.0, 0.3, 0.6),
    "norm": ("none", "batch", "layer"),
    "residual": (False, True),
    "rnn": ("lstm", "gru"),
    "attention": ("gat", "gatv2"),
    "scalers": (("identity",), ("identity", "amplification", "attenuation")),
    "permutation_lengths": ((5,), (15,), (20,)),
    "penalties": (ModelOptions.penalties, *((penalty,) for penalty in _PENALTIES)),
    "shrinkage": (0.03, 0.05, 0.1, 0.2),
    "max_leaves": (4, 8, 16, 31, 64),
    "min_leaf_nodes": (5, 10, 20, 40, 80),
    "leaf_l2": (0.0, 0.1, 1.0, 10.0),
}
_PAPER_WIDTHS: Final = (4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Search:
    """A search, except for its number of trials. Run one at a time without pruning, the trials are reproducible."""

    experiment: Experiment  # the starting point: all settings that are not searched, and the seed of every training
    space: Space  # the values of each key
    indices: tuple[int, ...] = (0,)  # the graphs or splits of a trial; its value is the mean over them
    metric: str = "accuracy"  # of the validation nodes, to optimise
    method: Literal["tpe", "grid"] = "tpe"  # tree-structured Parzen estimators, or all points in order
    seed: int = 0  # of the sampler
    prune: bool = False  # whether to stop trials early that are worse than the median
    defaults_first: bool = False  # whether the first trial has the settings of the starting point, if in the space

    def __post_init__(self) -> None:
        one = self.experiment
        if not self.indices or len(set(self.indices)) < len(self.indices):
            raise SettingsError(f"indices must be one or more distinct numbers, got {list(self.indices)}.")
        if one.tables is None and not one.graph:
            check_known("dataset", one.dataset, DATASETS)
            check_metric(one.dataset, DATASETS[one.dataset].task, self.metric)
            for index in self.indices:
                DATASETS[one.dataset].check(one.split, index)
        elif min(self.indices) < 0 or (one.split in ONE_SPLIT and self.indices != (0,)):
            known = "index 0" if one.split in ONE_SPLIT else "indices from 0"
            raise SettingsError(f"{one.dataset} has {known} under the split {one.split!r}, got {list(self.indices)}.")
        first = next((names[0] for names in OF_TASK.values() if self.metric in names), self.metric)
        watched = one.metric or first
        if self.prune and {"rmse": "mse"}.get(self.metric, self.metric) != watched:  # both have the same order
            raise SettingsError(f"pruning uses the {watched}, not the {self.metric}; leave out --prune.")
        if self.prune and one.model.fitted:
            raise SettingsError(
                f"the model {one.model.name!r} has no epochs after which a trial could be stopped; leave out --prune."
            )

    @property
    def name(self) -> str:
        return f"{self.experiment.dataset}-{self.experiment.model.name}-{fingerprint(self)}"

    @property
    def minimize(self) -> bool:
        return self.metric in LOWER_IS_BETTER


def check_metric(name: str, task: Task, metric: str) -> None:
    """Raises an error if the task of a graph does not have a metric."""
    if metric not in OF_TASK[task]:
        raise SettingsError(f"{name} has no metric {metric!r}{nearest(metric, OF_TASK[task])}")


def fingerprint(value: Any) -> str:
    """Eight hexadecimal digits that identify all settings of a dataclass."""
    return hashlib.sha256(settings.dumps(value).encode()).hexdigest()[:8]


def search_space(experiment: Experiment) -> Space:
    """The default space of a search: the options that the model reads; of networks also learning rate and weight decay.

    It is empty for a model without options.
    """
    model, reads = experiment.model, experiment.model.reads()
    space = {key: values for key, values in _MODEL.items() if key in reads}
    if "heads" in reads:
        space["hidden_channels"] = (4, 8, 16, 32)  # of one head
    if KINDS[model.name].last and model.num_layers > 1:
        space["last"] = ("gat", "gcn", model.name)
    space |= {} if model.fitted else _TRAINING
    for key, own in settings_of(experiment, space).items():
        if own not in space[key] and isinstance(own, int | float):
            space[key] = tuple(sorted((*space[key], own)))
    return space


def settings_of(experiment: Experiment, keys: Iterable[str]) -> Point:
    """The values that an experiment has for keys of a space."""
    model, training = experiment.model, experiment.training
    found = {key: getattr(model if hasattr(model, key) else training, key) for key in keys}
    return found | ({"last": model.kinds[-1]} if found.get("last") == "" else {})


def default_point(search: Search) -> Point | None:
    """The settings of the starting point, if the search tries them first and the space has all of them."""
    point = settings_of(search.experiment, search.space)
    inside = all(value in search.space[key] for key, value in point.items())
    return point if search.defaults_first and search.method == "tpe" and inside else None


def paper_grid(model: str, task: Task) -> Space:
    """The grid of the paper's appendix, as values of keys of the ``[model]`` table.

    The paper lists the widths of the linear encoder and of both layers for GCN and GraphSAGE, and the numbers of heads
    and widths of both layers for GAT and GOAT. In classification the second layer has the width of the classes; there
    the source code of the paper adds the pooling of heads. PNA combines all aggregators and scalers. Models that the
    paper does not have (GATv2, Janossy pooling) use the grid of similar ones.
    """
    check_known("model", model, KINDS)
    if KINDS[model].fitted:
        raise SettingsError(f"the paper has no grid for the model {model!r}; leave out --grid.")
    grid: Space
    if model in ("gat", "gatv2", "goat", "goat-paper"):
        grid = {"heads": (1, 4, 8), "hidden_channels": _PAPER_WIDTHS}
        grid |= {"last_channels": _PAPER_WIDTHS} if task == "regression" else {"head_pooling": ("cat", "sum")}
    else:
        grid = {"input_channels": _PAPER_WIDTHS, "hidden_channels": _PAPER_WIDTHS}
        grid |= {"last_channels": _PAPER_WIDTHS[:-1]} if task == "regression" else {}
    if model == "pna":
        grid["aggregators"] = (("mean", "min", "max", "std"),)
        grid["scalers"] = (("identity", "amplification", "attenuation", "linear"),)
    return grid


def parse_space(texts: Iterable[str]) -> Space:
    """Reads ``"heads=1,2,4"``, ``"rnn=lstm,gru"`` or ``"permutation_lengths=[5, 5],[20, 20]"``."""
    space = {}
    for text in texts:
        key, found, values = text.partition("=")
        if not found or not values.strip():
            raise SettingsError(f"{text!r} has no values; write key=a,b,c.")
        try:
            parsed = tomllib.loads(f"values = [{values}]")["values"]
        except tomllib.TOMLDecodeError:
            parsed = [plain_value(value.strip()) for value in values.split(",")]
        space[short(key)] = tuple(tuple(value) if isinstance(value, list) else value for value in parsed)
    return space


def checked(space: Mapping[str, tuple[Any, ...]], experiment: Experiment, fixed: Iterable[str]) -> Space:
    """The space without fixed keys, after checking that the experiment accepts every value."""
    fixed = {short(key) for key in fixed}
    free = {key: tuple(values) for key, values in space.items() if key not in fixed}
    for key, values in free.items():
        if key in ("dataset", "split", "index", "seed", "name"):
            raise SettingsError(f"{key} cannot be searched; set it with its own option.")
        if len(set(values)) < len(values):
            raise SettingsError(f"{key} has duplicate values in {json.dumps(list(values))}; list each once.")
        for value in values:
            at(experiment, {key: value})
        if not has_effect(experiment, key):
            raise SettingsError(f"{key} has no effect on the model {experiment.model.name!r}; leave it out.")
    if not any(len(values) > 1 for values in free.values()):
        raise SettingsError(
            f"nothing to search for the model {experiment.model.name!r}: no key has two values; add some with --space."
        )
    return free


def has_effect(experiment: Experiment, key: str) -> bool:
    """Whether a model reads a key, as far as is known: a key that does not exist counts."""
    if hasattr(experiment.model, key):
        return key in experiment.model.reads()
    return not experiment.model.fitted or not hasattr(experiment.training, key) or key in _TRAINING_OF_FITTED


def at(experiment: Experiment, point: Point) -> Experiment:
    """The experiment at a point of the space."""
    return override(experiment, [f"{key}={json.dumps(value)}" for key, value in point.items()])  # as in TOML


def encoded(value: Any) -> Any:
    """A value as Optuna can store it: a scalar, or a tuple as text."""
    return json.dumps(value) if isinstance(value, tuple) else value


def decoded(space: Space, point: Point) -> Point:
    """A point with the values of the space instead of the encoded ones."""
    return {key: next(value for value in space[key] if encoded(value) == stored) for key, stored in point.items()}


def size(space: Space) -> int:
    return math.prod(map(len, space.values()))


def points(space: Space) -> Iterator[Point]:
    """All points in order; the last key changes fastest."""
    for values in itertools.product(*space.values()):
        yield dict(zip(space, values, strict=True))


def trial_value(results: Iterable[Result], metric: str) -> float:
    """The value of a trial: the mean of the validation metric over its runs."""
    return fmean(result.metrics["val"][metric] for result in results)


def best_first(values: Mapping[K, float], metric: str) -> list[K]:
    """The trials from the best to the worst value; equal ones stay in order, up to rounding errors of the mean."""
    return sorted(values, key=lambda trial: rank_key(round(values[trial], 12), metric))


def short(key: str) -> str:
    """A key without its section: ``"heads"`` of ``"model.heads"``."""
    return key.strip().rpartition(".")[2]
