"""What a network knows of the tables it was trained on, as ``schema.json`` in its run folder holds it."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from torch_goat import settings
from torch_goat.data.tables.options import Task

FORMAT = 1
Kind = Literal["number", "flag", "category"]


@dataclass(frozen=True)
class Column:
    """A column of features, with the statistics of the training part.

    Args:
        name: Its name.
        kind: ``"number"`` (standardised), ``"flag"`` (0 or 1, as it is) or ``"category"`` (one-hot).
        mean: The mean of a number; what stands for a missing value, of a flag too.
        scale: The standard deviation of a number; 1 if it does not vary.
        categories: The categories that were there.
        missing: Whether values were missing, so that an indicator follows.
    """

    name: str
    kind: Kind
    mean: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] = ()
    missing: bool = False

    @property
    def width(self) -> int:
        """How many inputs of the network it becomes."""
        return (len(self.categories) if self.kind == "category" else 1) + self.missing


@dataclass(frozen=True)
class Schema:
    """How tables become the input of a network, and its output a prediction.

    Args:
        target: The column that is predicted.
        task: What it is.
        id: The column that names the nodes.
        nodes: The features of the nodes; without any, a constant and the logarithm of the degree take their place.
        source: The column of an edge's source.
        destination: The column of an edge's destination.
        edges: The features of the edges.
        directed: Whether edges have a direction.
        classes: The names of the classes, in the order of the network's output.
        target_mean: The mean of a target for regression.
        target_scale: Its standard deviation.
        format: The version of this description.
    """

    target: str
    task: Task
    id: str
    nodes: tuple[Column, ...]
    source: str
    destination: str
    edges: tuple[Column, ...] = ()
    directed: bool = False
    classes: tuple[str, ...] = ()
    target_mean: float = 0.0
    target_scale: float = 1.0
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format = {self.format} is of another version, which this one cannot read.")
        if (self.task == "classification") != bool(self.classes):
            raise ValueError(f"task = {self.task!r} does not go with {len(self.classes)} classes.")

    @property
    def in_channels(self) -> int:
        """The width of the network's input."""
        return sum(column.width for column in self.nodes) or 2

    @property
    def out_channels(self) -> int:
        """The width of its output."""
        return len(self.classes) or 1

    @property
    def edge_dim(self) -> int:
        """The number of its edge features."""
        return sum(column.width for column in self.edges)

    def to_json(self) -> str:
        """The text of ``schema.json``."""
        return json.dumps(settings.to_table(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> "Schema":
        """Reads what :meth:`to_json` wrote.

        Args:
            text: The text.
            where: The file, for errors.
        """
        try:
            table: Any = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise settings.SettingsError(f"{where}: not a JSON file: {error}.") from None
        return settings.parse(cls, table, where)
