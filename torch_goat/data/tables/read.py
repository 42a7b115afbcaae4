"""The parsed tables of a graph, with the end points of every edge resolved."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from torch_goat.data.tables.csv_source import CSVSource
from torch_goat.data.tables.graphml_source import GraphMLReader
from torch_goat.data.tables.options import Tables
from torch_goat.data.tables.parquet_source import ParquetSource
from torch_goat.data.tables.source import PARQUET, Problems, Source, TableError, digest_contents, first_row, read_bytes
from torch_goat.data.tables.splits import check_split, split_columns

_IDS = ("id", "node_id", "nodeid", "node")
_ENDS = (
    ("source", "target"),
    ("source", "destination"),
    ("src", "dst"),
    ("from", "to"),
    ("source_id", "target_id"),
    ("u", "v"),
)


class ParsedTables(NamedTuple):
    """The parsed files of a graph."""

    nodes: Source
    edges: Source
    digest: str  # SHA-256 of the contents
    names: dict[str, str]  # the columns, as "id", "source" and "destination"
    ends: np.ndarray  # [2, num_edges], node numbers
    problems: tuple[str, ...]  # to be raised with those of the values


def open_tables(nodes: str, edges: str = "") -> tuple[Source, Source, str]:
    """Opens tables of nodes and edges (CSV or Parquet), or a GraphML file with both; also returns their digest."""
    problems, opened, other = Problems(), [], b""
    with problems:
        raw = read_bytes(Path(nodes))
        if _is_xml(Path(nodes), raw):
            if edges:
                raise TableError(f"{nodes} is GraphML and already contains the edges; leave out {edges}.")
            return *GraphMLReader(Path(nodes)).read(raw), digest_contents(raw)
        if not edges:
            raise TableError(f"{nodes} contains only nodes; add the file of the edges after it.")
        opened.append(_open(Path(nodes), raw))
    if edges:
        with problems:
            other = read_bytes(Path(edges))
            if _is_xml(Path(edges), other):
                raise TableError(f"{edges} is XML, not a table of edges; pass a GraphML file on its own.")
            opened.append(_open(Path(edges), other))
    problems.check()
    return opened[0], opened[1], digest_contents(raw, other)


def _is_xml(path: Path, raw: bytes) -> bool:
    start = raw[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    return path.suffix.lower() in (".graphml", ".xml") or start.startswith((b"<?xml", b"<graphml", b"<!DOCTYPE"))


def _open(path: Path, raw: bytes) -> Source:
    if raw.startswith(PARQUET):
        return ParquetSource(path, raw)
    if path.suffix.lower() in (".parquet", ".pq"):
        raise TableError(f"{path} is not a Parquet file, despite its name.")
    return CSVSource(path, raw)


def parse_training(tables: Tables) -> ParsedTables:
    """Parses the tables of a training graph; the last ones are kept, for other splits and runs on the same files."""
    key = replace(tables, digest="", edge_features=False)  # neither affects parsing
    found = _parse_training(key, _stamp(tables.nodes), _stamp(tables.edges))
    if tables.digest not in ("", found.digest):
        files = f"{tables.nodes} or {tables.edges}" if tables.edges else tables.nodes
        raise TableError(f"{files} changed since the run was started; restore the file or start a new run.")
    return found


def _stamp(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=1)
def _parse_training(tables: Tables, *stamps: tuple[int, ...]) -> ParsedTables:
    nodes, edges, digest = open_tables(tables.nodes, tables.edges)
    problems = Problems()
    with problems:
        nodes.check(tables.target, "the target")
    with problems:
        check_split(tables, nodes)
    for column in (*tables.drop, *tables.categories):
        if column not in edges.columns:
            with problems:
                nodes.check(column, "--drop or --category")
    nodes.unread = edges.unread = frozenset(tables.drop) - {tables.order_by}
    return parse(tables, nodes, edges, digest, problems)


def parse(
    tables: Tables, nodes: Source, edges: Source, digest: str, problems: Problems, known: Sequence[str] = ()
) -> ParsedTables:
    """Parses the tables and resolves the end points of the edges, which may also be nodes ``known`` before."""
    names: dict[str, str] = {}
    with problems:
        names["id"] = _find_column(nodes, tables.id, _IDS, 0)
        if names["id"] == tables.target:
            raise TableError(
                f"{nodes.path}, line 1: the column {tables.target!r} holds the node ids; it cannot be the target."
            )
    ends: list[str] = []
    with problems:
        lower = {column.lower() for column in edges.columns}
        pairs = [pair for pair in _ENDS if lower.issuperset(pair)] or _ENDS
        for number, given in enumerate((tables.source, tables.destination)):
            ends.append(_find_column(edges, given, [pair[number] for pair in pairs], number))
        if ends[0] == ends[1]:
            raise TableError(f"{edges.path}, line 1: {ends[0]!r} is both source and destination; name two columns.")
        names |= {"source": ends[0], "destination": ends[1]}
    with problems:
        if tables.order_by:
            edges.check(tables.order_by, "the order of neighbours")
        if tables.order_by in ends:
            raise TableError(
                f"{edges.path}, line 1: {tables.order_by!r} holds ends of the edges; order by another column."
            )
    if len(names) < 3:  # without them nothing else can be checked
        problems.check()
    text = {tables.target, tables.time_column, tables.group_column, *tables.categories}
    text.update(split_columns(tables, nodes.columns))
    unread = Problems(problems.found)
    with unread:
        nodes.frame = nodes.read(text & set(nodes.columns), [names["id"]])
        if nodes.frame.empty:
            raise TableError(f"{nodes.path}, line 1: there are no rows below the header; a graph needs nodes.")
    with unread:
        edges.frame = edges.read(text & set(edges.columns), ends)
    if len(unread.found) > len(problems.found):
        unread.check()
    of_nodes = nodes.frame[names["id"]]
    _check_ids(nodes, of_nodes, known, problems)
    ids = pd.Index([*known, *of_nodes.dropna()], dtype=object).unique()
    if not (tables.source or tables.destination) and all(lower.isdisjoint(pair) for pair in _ENDS):
        columns = f"{ends[0]!r} and {ends[1]!r}"
        note = f"{edges.path}: no column is named source or target; edges are read from the columns {columns}."
        edges.notes += (note,)
        if isinstance(edges, CSVSource) and ids.isin(ends).sum() == len(ends):
            reason = f"the columns {columns} have the names of nodes, so the header seems to be missing"
            problems.found.append(f"{edges.path}, line 1: {reason}; begin the file with a line such as source,target.")
    numbers = np.zeros((2, len(edges.frame)), dtype=np.int64)
    for number, column in enumerate(ends):
        with problems:
            numbers[number] = _resolve(edges, edges.frame.pop(column), ids, nodes, bool(len(known)))
    return ParsedTables(nodes, edges, digest, names, numbers, tuple(problems.found))


def _find_column(source: Source, given: str, usual: Sequence[str], place: int) -> str:
    """The column that was given, else one with a usual name, else the one at ``place``."""
    if given:
        source.check(given, "the node ids" if usual is _IDS else "the ends of edges")
        return given
    lower = {column.lower(): column for column in reversed(source.columns)}
    found = next((lower[name] for name in usual if name in lower), None)
    if found is None and place >= len(source.columns):
        raise TableError(
            f"{source.path}, line 1: found only one column ({source.columns[0]!r}); edges need a source and a target."
        )
    return found or source.columns[place]


def _check_ids(source: Source, ids: pd.Series, known: Sequence[str], problems: Problems) -> None:
    twice, again = ids.duplicated() & ids.notna(), ids.isin(set(known))
    with problems:
        if ids.isna().any():
            raise source.error(ids.isna(), ids, "the node has no id; add one or delete the row.")
    with problems:
        if twice.any():
            line = source.line(first_row(ids == ids.iloc[first_row(twice)]))
            raise source.error(twice, ids, f"duplicate node {{cell}}, first seen in line {line}; list every node once.")
    with problems:
        if again.any():
            reason = "the node {cell} is already in the training graph; list only new nodes, or leave out --join."
            raise source.error(again, ids, reason)


def _resolve(source: Source, ends: pd.Series, ids: pd.Index, nodes: Source, joined: bool) -> np.ndarray:
    """The node numbers of a column of end points ``[num_edges]``."""
    found = np.append(ids.get_indexer(ends.cat.categories.astype(object)), -1)[ends.cat.codes]
    unknown = found < 0
    if unknown.any():
        graph = f"{nodes.path} or the training graph" if joined else f"{nodes.path}"
        reason = f"the edge names {{cell}}, which is not a node of {graph}; add the node or delete such edges"
        if pd.isna(ends.iloc[first_row(unknown)]):
            raise source.error(unknown, ends, "the edge has no node at this end; fill it in or delete the row.")
        raise source.error(unknown, ends, f"{reason} ({int(unknown.sum())} in total).")
    return found
