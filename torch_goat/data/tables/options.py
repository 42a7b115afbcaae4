from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from torch_goat.settings import check_fields

SPLITS: Final = ("split_column", "time_column", "group_column", "folds")
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Tables:
    """The files of your graph and how to read them; the ``[tables]`` section of a run's config."""

    nodes: str  #: the file of the nodes (CSV or Parquet), or a GraphML file with nodes and edges
    target: str  #: the node column to predict; nodes without a value are in no split
    edges: str = ""  #: the file of the edges; empty for GraphML
    id: str = ""  #: the column with the node ids; if empty, a column named ``id`` or similar, else the first
    source: str = ""  #: the source of an edge; if empty, a column named ``source`` or similar, else the first
    destination: str = ""  #: the end of an edge; if empty, a column named ``target`` or similar, else the second
    task: Literal["", "classification", "regression"] = ""  #: if empty, fractions and many values mean regression
    positive: str | None = None  #: the positive one of two classes; by default the second in order: yes, true, 1
    directed: bool = False  #: whether messages are passed from source to destination only
    edge_features: bool = False  #: whether the other edge columns are features
    order_by: str = ""  #: the edge column, numbers or dates, in whose decreasing order GOAT reads neighbours
    categories: tuple[str, ...] = ()  #: columns to read as categories, even if they are numeric or look like free text
    drop: tuple[str, ...] = ()  #: columns to exclude from the features
    #: a column with ``train``, ``val`` and ``test``; without ``val``, some training nodes are used for validation. A
    #: pattern such as ``fold_*`` names several such columns, one split each
    split_column: str = ""
    time_column: str = ""  #: numbers or dates, from the earliest (training nodes) to the latest (test nodes)
    group_column: str = ""  #: nodes with the same value are never in two parts of a random split
    folds: int = 0  #: if not 0, the nodes are divided into this many folds, each of which is the test set of one split
    train: float = 0.6  #: the fraction of training nodes, drawn at random per class if no column decides
    val: float = 0.2  #: the fraction of validation nodes; the rest, or the fold, are test nodes
    digest: str = ""  #: the SHA-256 of the files' contents, to refuse files that changed; empty checks nothing

    def __post_init__(self) -> None:
        check_fields(self)
        if not (self.train > 0 and self.val > 0 and self.train + self.val < 1):
            raise ValueError(
                f"train = {self.train} and val = {self.val} must be above 0 and sum to less than 1; the rest is for "
                "testing."
            )
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds must be at least 2, or 0 for none, got {self.folds}.")
        if both := conflict([key for key in SPLITS if getattr(self, key)]):
            raise ValueError(f"{both[0]} and {both[1]} cannot be combined; leave one of them out.")
        for key in ("id", *SPLITS, "categories", "drop"):
            value = getattr(self, key)
            if self.target in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"{key} contains {self.target!r}, which is the target; choose another column.")

    @property
    def split(self) -> str:
        """How the nodes are split: ``"random"``, ``"folds"``, ``"column"``, ``"columns"`` or ``"time"``."""
        if self.split_column:
            return "columns" if set("*?[") & set(self.split_column) else "column"
        return "time" if self.time_column else "folds" if self.folds else "random"


def conflict(keys: Collection[str]) -> list[str]:
    """Two keys of :data:`SPLITS` that cannot be combined, if there are such among these."""
    return [] if {*keys} <= {"folds", "group_column"} else [*keys][:2] if len(keys) > 1 else []
