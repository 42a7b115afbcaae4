"""The tables of a graph, with the nodes of every edge found."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.open import Sources, open_tables
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.source import Source, first_row, shown

_IDS = ("id", "node_id", "nodeid", "node")
_ENDS = (("source", "target"), ("src", "dst"), ("from", "to"), ("source_id", "target_id"), ("u", "v"))


class ReadTables(NamedTuple):
    """The tables of a graph, read."""

    sources: Sources
    nodes: pd.DataFrame
    edges: pd.DataFrame
    names: dict[str, str]  # the columns "id", "source" and "destination"
    ends: np.ndarray  # [2, E], the numbers of the edges' nodes


def _stamp(path: str) -> tuple[int, ...]:
    """Changes when a file does."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_training(tables: Tables) -> ReadTables:
    """Reads the tables of a training graph, with its target; the last ones are kept for the next run on them."""
    key = replace(tables, digest="", edge_features=False)  # neither changes what is read
    found = _read_training(key, _stamp(tables.nodes), _stamp(tables.edges) if tables.edges else ())
    if tables.digest not in ("", found.sources.digest):
        files = f"{tables.nodes} or {tables.edges}" if tables.edges else tables.nodes
        raise TableError(f"{files} changed since the run was started; put the old content back or train anew.")
    return found


@lru_cache(maxsize=1)
def _read_training(tables: Tables, *stamps: tuple[int, ...]) -> ReadTables:
    sources = open_tables(tables.nodes, tables.edges)
    sources.nodes.check(tables.target, "the target")
    for column, what in ((tables.split_column, "the split"), (tables.time_column, "the time")):
        if column:
            sources.nodes.check(column, what)
    for column in (*tables.drop, *tables.categories):
        if column not in (*sources.nodes.columns, *sources.edges.columns):
            sources.nodes.check(column, "--drop or --category")
    return read(tables, sources)


def read(tables: Tables, sources: Sources, before: Sequence[str] = ()) -> ReadTables:
    """Reads the tables and finds the nodes of the edges, which may also be nodes from before."""
    nodes, edges = sources.nodes, sources.edges
    names = {"id": _column(nodes, tables.id, _IDS, 0)}
    if names["id"] == tables.target:
        raise TableError(
            f"{nodes.path}, line 1: the column {tables.target!r} names the nodes; it cannot be the target."
        )
    ends = [
        _column(edges, given, [pair[number] for pair in _ENDS], number)
        for number, given in enumerate((tables.source, tables.destination))
    ]
    if ends[0] == ends[1]:
        raise TableError(f"{edges.path}, line 1: {ends[0]!r} is both source and destination; name two columns.")
    names |= {"source": ends[0], "destination": ends[1]}
    text = {tables.target, tables.split_column, tables.time_column, *tables.categories}
    of_nodes = nodes.read(text & set(nodes.columns), [names["id"]])
    if of_nodes.empty:
        raise TableError(f"{nodes.path}, line 1: there are columns but no row below them; a graph needs nodes.")
    of_edges = edges.read(text & set(edges.columns), ends)
    ids = pd.Index([*before, *_ids(nodes, of_nodes[names["id"]], before)], dtype=object)
    numbers_of = [_ends(edges, of_edges[column], ids, nodes, bool(len(before))) for column in ends]
    return ReadTables(sources, of_nodes, of_edges, names, np.stack(numbers_of))


def _column(source: Source, given: str, usual: Sequence[str], place: int) -> str:
    if given:
        source.check(given, "the names of nodes")
        return given
    lower = {column.lower(): column for column in reversed(source.columns)}
    found = next((lower[name] for name in usual if name in lower), None)
    if found is None and place >= len(source.columns):
        raise TableError(
            f"{source.path}, line 1: there is one column alone ({source.columns[0]!r}); edges need a source and a "
            "target."
        )
    return found or source.columns[place]


def _ids(source: Source, ids: pd.Series, before: Sequence[str]) -> list[str]:
    gone = ids.isna().to_numpy()
    if gone.any():
        raise TableError(
            f"{source.where(first_row(gone), str(ids.name))}: the node has no name; give it one or delete the row."
        )
    twice = ids.duplicated().to_numpy()
    if twice.any():
        row = first_row(twice)
        first = first_row((ids == ids.iloc[row]).to_numpy())
        raise TableError(
            f"{source.where(row, str(ids.name))}: the node {shown(ids.iloc[row])} was there before, in line "
            f"{source.line(first)}; name every node once."
        )
    again = ids.isin(set(before)).to_numpy() if len(before) else gone
    if again.any():
        row = first_row(again)
        raise TableError(
            f"{source.where(row, str(ids.name))}: the node {shown(ids.iloc[row])} is one of the training graph; name "
            "new nodes alone, or leave --join out."
        )
    return list(ids)


def _ends(source: Source, ends: pd.Series, ids: pd.Index, nodes: Source, joined: bool) -> np.ndarray:
    """The numbers of the nodes that a column of edges names ``[E]``."""
    found = ids.get_indexer(ends.astype(object))
    if (found < 0).any():
        row = first_row(found < 0)
        name, where = ends.iloc[row], source.where(row, str(ends.name))
        if pd.isna(name):
            raise TableError(f"{where}: the edge has no node at this end; fill it in or delete the row.")
        graph = "and not of the training graph" if joined else f"of {nodes.path}"
        raise TableError(
            f"{where}: the edge names {shown(name)}, which is no node {graph}; add the node or delete "
            f"such edges ({int((found < 0).sum())} in all)."
        )
    return found
