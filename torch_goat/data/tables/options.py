from dataclasses import dataclass
from typing import Literal

from torch_goat.settings import check_types, make_plain

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Tables:
    """A graph of one's own: where its tables are and how they are read, the ``[tables]`` table of a run's settings.

    Args:
        nodes: The file of the nodes (CSV or Parquet), or a GraphML file with everything.
        edges: The file of the edges; empty for GraphML.
        target: The column of the nodes to predict. A node without a value has no part in any split.
        id: The column that names the nodes; if empty, one called ``id`` or the like, or else the first.
        source: The column of an edge's source; if empty, one called ``source`` or the like, or else the first.
        destination: The column of an edge's destination; if empty, one called ``target`` or the like, or else the
            second.
        task: What the target is; if empty, numbers that are not whole or take many values are for regression.
        directed: Whether an edge leads from its source to its destination alone, which then reads the source.
        edge_features: Whether the other columns of the edges are features.
        categories: Columns whose numbers are the names of categories.
        drop: Columns that are no features.
        split_column: The column that says ``train``, ``val`` or ``test``; without ``val``, a part of the training
            nodes validates.
        time_column: The column of numbers or dates by which the first nodes train, the next validate and the last test.
        train: The share of the nodes that train; they are drawn at random, class by class, if no column decides.
        val: The share of the nodes that validate. The rest is for testing.
        digest: The SHA-256 of the files' contents, so that a run never goes on with others; empty checks nothing.
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
        make_plain(self)
        check_types(self)
        if not (self.train > 0 and self.val > 0 and self.train + self.val < 1):
            raise ValueError(
                f"train = {self.train} and val = {self.val} are impossible; both must be above 0, and together below "
                "1, since the rest is for testing."
            )
        if self.split_column and self.time_column:
            raise ValueError("split_column and time_column exclude each other; leave one of them out.")
        for key in ("id", "split_column", "time_column", "categories", "drop"):
            value = getattr(self, key)
            if self.target in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"{key} names {self.target!r}, which is the target; choose another column.")

    @property
    def split(self) -> str:
        """How the nodes are split: ``"random"``, ``"column"`` or ``"time"``."""
        return "column" if self.split_column else "time" if self.time_column else "random"
