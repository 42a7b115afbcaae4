import json
from dataclasses import dataclass
from typing import Any, Literal

from torch_goat import settings
from torch_goat.data.tables.options import Task

FORMAT = 1


@dataclass(frozen=True)
class Column:
    """A feature column with the statistics of the training nodes.

    Args:
        name: Its name.
        kind: ``"number"`` (standardised), ``"flag"`` (0 or 1, unchanged) or ``"category"`` (one-hot).
        mean: The mean of a number or flag, which replaces missing values.
        scale: The standard deviation of a number; 1 if it is constant.
        categories: The categories of the training nodes.
        missing: Whether values were missing, in which case an indicator column follows.
    """

    name: str
    kind: Literal["number", "flag", "category"]
    mean: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] = ()
    missing: bool = False

    @property
    def width(self) -> int:
        """Its number of input channels."""
        return (len(self.categories) if self.kind == "category" else 1) + self.missing


@dataclass(frozen=True)
class Schema:
    """How tables become the input of a network, and its output a prediction: ``schema.json`` of a run folder.

    Args:
        target: The column to predict.
        task: Whether it holds classes or numbers.
        id: The column with the node ids.
        nodes: The node features; if there are none, a constant and the log-degree are used.
        source: The column with the source of an edge.
        destination: The column with the destination of an edge.
        edges: The edge features.
        directed: Whether edges are directed.
        classes: The names of the classes, in the order of the network's output.
        target_mean: The mean of a regression target.
        target_scale: Its standard deviation.
        format: The version of this format.
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
            raise ValueError(f"format = {self.format} is not supported; this version reads format {FORMAT}.")
        if (self.task == "classification") != bool(self.classes):
            raise ValueError(f"task = {self.task!r} does not match {len(self.classes)} classes.")

    @property
    def in_channels(self) -> int:
        return sum(column.width for column in self.nodes) or 2

    @property
    def out_channels(self) -> int:
        return len(self.classes) or 1

    @property
    def edge_dim(self) -> int:
        return sum(column.width for column in self.edges)

    def to_json(self) -> str:
        return json.dumps(settings.to_table(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> "Schema":
        """Parses the output of :meth:`to_json`; ``where`` names the file in errors."""
        try:
            table: Any = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise settings.SettingsError(f"{where}: not a JSON file: {error}.") from None
        return settings.parse(cls, table, where)
