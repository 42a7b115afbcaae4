"""A graph of one's own: tables of nodes and edges as a graph to train on, and new ones to predict on."""

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.schema import Column, Schema

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import NewGraph, OwnGraph

__all__ = ["Column", "Schema", "TableError", "Tables", "apply_schema", "load_tables"]


def load_tables(tables: Tables, index: int = 0) -> "OwnGraph":
    """Reads the tables of a graph, fits a schema on the training part and applies it to all nodes.

    Args:
        tables: The files and how they are read.
        index: Which of the random splits, from 0.
    """
    _need_pandas()
    found = _load(tables, index, tuple(_stamp(path) for path in (tables.nodes, tables.edges)))
    return found._replace(data=found.data.clone())


@lru_cache(maxsize=1)  # the runs of one process tend to follow each other on one graph
def _load(tables: Tables, index: int, stamps: tuple[tuple[int, int] | None, ...]) -> "OwnGraph":
    from torch_goat.data.tables import graph

    return graph.load_graph(tables, index)


def _stamp(path: str) -> tuple[int, int] | None:
    """When a file was changed, and its size; ``None`` if it cannot be looked at."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


def apply_schema(schema: Schema, nodes: str, edges: str = "", *, join: Tables | None = None) -> "NewGraph":
    """Reads new tables as a schema says, for a network to predict on.

    Args:
        schema: What the network was trained on.
        nodes: The file of the nodes, or a GraphML file with everything.
        edges: The file of the edges; empty for GraphML.
        join: The tables of the training graph, if the new nodes are to become part of it.
    """
    _need_pandas()
    from torch_goat.data.tables import graph

    return graph.apply_schema(schema, nodes, edges, join=join)


def _need_pandas() -> None:
    """pandas is read with alone; what is trained on named datasets does without it."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise TableError("reading tables needs pandas; install torch-goat[cli].") from None
