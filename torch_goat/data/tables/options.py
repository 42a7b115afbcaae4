from dataclasses import dataclass
from typing import Literal

from torch_goat.settings import check_fields

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Tables:
    """The files of your graph and how to read them; the ``[tables]`` section of a run's config.

    Args:
        nodes: The file of the nodes (CSV or Parquet), or a GraphML file with nodes and edges.
        edges: The file of the edges; empty for GraphML.
        target: The node column to predict. Nodes without a value are in no split.
        id: The column with the node ids; if empty, a column named ``id`` or similar, else the first.
        source: The column with the source of an edge; if empty, a column named ``source`` or similar, else the first.
        destination: The column with the destination of an edge; if empty, a column named ``target`` or similar, else
            the second.
        task: What the target is; if empty, fractional numbers and numbers with many values mean regression.
        directed: Whether messages are passed from source to destination only.
        edge_features: Whether the other edge columns are features.
        categories: Columns of numbers that are category names.
        drop: Columns that are not features.
        split_column: The column that says ``train``, ``val`` or ``test``; without ``val``, some training nodes are
            used for validation.
        time_column: A column of numbers or dates: the earliest nodes train, the next validate, the latest test.
        train: The fraction of training nodes, drawn at random per class if no column decides.
        val: The fraction of validation nodes. The rest are test nodes.
        digest: The SHA-256 of the files' contents; files that changed since are refused. Empty checks nothing.
    """

    nodes: str
    target: str
    edges: str = ""
    id: str = ""
    source: str = ""
    destination: str = ""
    task: Literal["", "classification", "regression"] = ""
    directed: bool = False
    edge_features: bool = False
    categories: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    split_column: str = ""
    time_column: str = ""
    train: float = 0.6
    val: float = 0.2
    digest: str = ""

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
