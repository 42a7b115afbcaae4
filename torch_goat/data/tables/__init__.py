"""Your own graph from tables of nodes and edges (CSV, Parquet, GraphML): to train on, and to predict on."""

from typing import TYPE_CHECKING, Any

from torch_goat.data.tables.folder import find_tables as find_tables
from torch_goat.data.tables.folder import write_tables as write_tables
from torch_goat.data.tables.options import Tables as Tables
from torch_goat.data.tables.options import Task as Task
from torch_goat.data.tables.schema import Column as Column
from torch_goat.data.tables.schema import Schema as Schema
from torch_goat.data.tables.source import TableError as TableError
from torch_goat.data.tables.source import digest_tables as digest_tables

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import NewGraph, TableGraph


def load_tables(tables: Tables, index: int = 0, schema: Schema | None = None) -> "TableGraph":
    """Reads the tables of a graph, fits a schema on the training nodes and encodes all nodes with it.

    All problems of both tables are raised as one :class:`TableError`.

    Args:
        tables: The files and how to read them; the last ones are kept, so that another index needs no parsing.
        index: Which random split, fold or split column, from 0.
        schema: The schema of a run on these tables, to use instead of a new one.
    """
    return _graph().load_tables(tables, index, schema)


def apply_schema(schema: Schema, nodes: str, edges: str = "", *, join: Tables | None = None) -> "NewGraph":
    """Encodes new tables with the schema of a trained network, to predict on them.

    Args:
        schema: The schema the network was trained with.
        nodes: The file of the nodes, or a GraphML file with nodes and edges.
        edges: The file of the edges; empty for GraphML.
        join: The tables of the training graph, to add the new nodes to it.
    """
    return _graph().apply_schema(schema, nodes, edges, join=join)


def _graph() -> Any:
    """The module that makes graphs of tables, which needs pandas."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise TableError("reading tables needs pandas; install torch-goat[cli].") from None
    from torch_goat.data.tables import graph

    return graph
