import json
from dataclasses import dataclass
from typing import Any, Literal

from torch_goat import settings
from torch_goat.data.tables.options import Task

FORMAT = 1


@dataclass(frozen=True)
class Column:
    """A feature column with the statistics of the training nodes, or of all if no training node has a value."""

    name: str
    #: standardised, 0 or 1 (unchanged), one-hot, or standardised after conversion to days since 1970-01-01 or to hours
    #: since midnight
    kind: Literal["number", "flag", "category", "date", "time"]
    mean: float = 0.0  #: of all kinds but categories; replaces missing values
    scale: float = 1.0  #: the standard deviation of a number, date or time; 1 if it is constant
    categories: tuple[str, ...] = ()  #: of the same nodes
    missing: bool = False  #: whether values were missing, in which case an indicator channel follows

    @property
    def width(self) -> int:
        return (len(self.categories) if self.kind == "category" else 1) + self.missing

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the input channels: ``"age"``, ``"town = Ulm"``, ``"age is missing"``."""
        shown = [f"{self.name} = {one}" for one in self.categories] if self.kind == "category" else [self.name]
        return (*shown, *([f"{self.name} is missing"] if self.missing else []))


@dataclass(frozen=True)
class Schema:
    """How tables become the input of a network, and its output a prediction: ``schema.json`` of a run folder."""

    target: str  #: the column to predict
    task: Task
    id: str  #: the column with the node ids
    nodes: tuple[Column, ...]  #: the node features; if there are none, a constant and the log-degree are used
    source: str  #: the column with the source of an edge
    destination: str  #: the column with the destination of an edge
    edges: tuple[Column, ...] = ()  #: the edge features
    order_by: str = ""  #: the edge column in whose decreasing order neighbours are read; empty if it is learned
    directed: bool = False
    classes: tuple[str, ...] = ()  #: in the order of the network's output
    target_mean: float = 0.0  #: of a regression target
    target_scale: float = 1.0  #: its standard deviation
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
