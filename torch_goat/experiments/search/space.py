"""What is searched: values by key, as ``--set`` names the keys."""

import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from torch_goat.experiments import Experiment
from torch_goat.experiments.models.layers import KINDS
from torch_goat.settings import SettingsError, override

Space = dict[str, tuple[Any, ...]]
"""The values of every key that is searched."""

Point = dict[str, Any]
"""One value for every key."""

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
}
_WITH_HEADS: Final[Space] = {"hidden_channels": (4, 8, 16, 32)}  # of one head
_LAST: Final = ("gat", "gcn")  # where the last layer has a habit of its own; and the kind of the others


def search_space(experiment: Experiment) -> Space:
    """The values to search for an experiment's model: those options that its layers read, and Adam's.

    Args:
        experiment: Where the search begins.
    """
    model, reads = experiment.model, experiment.model.reads()
    space = {key: values for key, values in _MODEL.items() if key in reads}
    if "heads" in reads:
        space |= _WITH_HEADS
    if KINDS[model.name].last and model.num_layers > 1:
        space["last"] = (*_LAST, model.name)
    return space | _TRAINING


def parse_space(texts: Iterable[str]) -> Space:
    """Reads ``"heads=1,2,4"``, ``"rnn=lstm,gru"`` or ``"permutation_lengths=[5, 5],[20, 20]"``."""
    space = {}
    for text in texts:
        key, found, values = text.partition("=")
        if not found or not values.strip():
            raise SettingsError(f"{text!r} names no values; write it as key=a,b,c.")
        try:
            parsed = tomllib.loads(f"values = [{values}]")["values"]
        except tomllib.TOMLDecodeError:
            parsed = [_plain(value.strip()) for value in values.split(",")]
        space[short(key)] = tuple(tuple(value) if isinstance(value, list) else value for value in parsed)
    return space


def checked(space: Mapping[str, tuple[Any, ...]], experiment: Experiment, fixed: Iterable[str]) -> Space:
    """The space without what is fixed; a value that the experiment cannot have is refused.

    Args:
        space: The values by key.
        experiment: Where the search begins.
        fixed: Keys that keep the experiment's value.
    """
    fixed = {short(key) for key in fixed}
    free = {key: tuple(values) for key, values in space.items() if key not in fixed}
    for key, values in free.items():
        if key in ("dataset", "split", "index", "seed", "name"):
            raise SettingsError(f"{key} cannot be searched; it has an option of its own.")
        if len(set(values)) < len(values):
            raise SettingsError(f"{key} has a value twice in {_text(list(values))}.")
        for value in values:
            at(experiment, {key: value})
    if not any(len(values) > 1 for values in free.values()):
        raise SettingsError("there is nothing to search: no key has two values; see --space.")
    return free


def at(experiment: Experiment, point: Point) -> Experiment:
    """The experiment at a point of the space."""
    return override(experiment, [f"{key}={_text(value)}" for key, value in point.items()])


def encoded(value: Any) -> Any:
    """A value as Optuna can store it: a plain one, or the text of several."""
    return _text(value) if isinstance(value, tuple) else value


def decoded(space: Space, point: Point) -> Point:
    """A point with the space's own values in place of encoded ones."""
    return {key: next(value for value in space[key] if encoded(value) == stored) for key, stored in point.items()}


def size(space: Space) -> int:
    """The number of points."""
    return math.prod(map(len, space.values()))


def points(space: Space) -> Iterator[Point]:
    """All points; the last key changes fastest."""
    for values in itertools.product(*space.values()):
        yield dict(zip(space, values, strict=True))


def short(key: str) -> str:
    """A key without its section: ``"heads"`` of ``"model.heads"``."""
    return key.strip().rpartition(".")[2]


def _plain(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _text(value: Any) -> str:
    """A value as TOML writes it, which is as JSON does."""
    return json.dumps(value)
