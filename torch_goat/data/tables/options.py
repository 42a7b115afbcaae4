from dataclasses import dataclass
from typing import Literal

from torch_goat.settings import check_fields

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Tables:
    """The files of your graph and how to read them; the ``[tables]`` section of a run's config."""

    nodes: str  #: the file of the nodes (CSV or Parquet), or a GraphML file with nodes and edges
    target: str  #: the node column to predict; nodes without a value are in no split
    edges: str = ""  #: the file of the edges; empty for GraphML
    id: str = ""  #: the column with the node ids; if empty, a column named ``id`` or similar, else the first
    source: str = ""  #: the source of an edge; if empty, a column named ``source`` or similar, else the first
    destination: str = ""  #: its destination; if empty, a column named ``target`` or similar, else the second
    task: Literal["", "classification", "regression"] = ""  #: if empty, fractions and many values mean regression
    directed: bool = False  #: whether messages are passed from source to destination only
    edge_features: bool = False  #: whether the other edge columns are features
    order_by: str = ""  #: the edge column, numbers or dates, in whose decreasing order GOAT reads neighbours
    categories: tuple[str, ...] = ()  #: columns of numbers that are category names
    drop: tuple[str, ...] = ()  #: columns that are not features
    split_column: str = ""  #: says ``train``, ``val`` or ``test``; without ``val``, some training nodes validate
    time_column: str = ""  #: numbers or dates: the earliest nodes train, the next validate, the latest test
    train: float = 0.6  #: the fraction of training nodes, drawn at random per class if no column decides
    val: float = 0.2  #: the fraction of validation nodes; the rest are test nodes
    digest: str = ""  #: the SHA-256 of the files' contents, to refuse files that changed; empty checks nothing

    def __post_init__(self) -> None:
        check_fields(self)
        if not (self.train > 0 and self.val > 0 and self.train + self.val < 1):
            raise ValueError(
                f"train = {self.train} and val = {self.val} must be above 0 and sum to less than 1; the rest is for "
                "testing."
            )
        if self.split_column and self.time_column:
            raise ValueError("split_column and time_column cannot be combined; leave one of them out.")
        for key in ("id", "split_column", "time_column", "categories", "drop"):
            value = getattr(self, key)
            if self.target in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"{key} contains {self.target!r}, which is the target; choose another column.")

    @property
    def split(self) -> str:
        """How the nodes are split: ``"random"``, ``"column"`` or ``"time"``."""
        return "column" if self.split_column else "time" if self.time_column else "random"
