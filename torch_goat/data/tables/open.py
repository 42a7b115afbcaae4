import hashlib
from pathlib import Path
from typing import NamedTuple

from torch_goat.data.tables.csv_source import CSVSource
from torch_goat.data.tables.errors import TableError
from torch_goat.data.tables.graphml_source import read_graphml
from torch_goat.data.tables.parquet_source import ParquetSource
from torch_goat.data.tables.raw import PARQUET, read_raw
from torch_goat.data.tables.source import Source


class Sources(NamedTuple):
    """The tables of a graph, opened."""

    nodes: Source
    edges: Source
    directed: bool  # whether the files themselves say so
    digest: str  # the SHA-256 of the files' contents


def open_tables(nodes: str, edges: str = "") -> Sources:
    """Opens the tables of a graph and finds out what they are.

    Args:
        nodes: A CSV or Parquet file of the nodes, or a GraphML file with everything.
        edges: A CSV or Parquet file of the edges; empty for GraphML.
    """
    raw = read_raw(Path(nodes))
    digest = hashlib.sha256(raw)
    if _is_xml(Path(nodes), raw):
        if edges:
            raise TableError(f"{nodes} is GraphML and holds the edges too; leave {edges} out.")
        of_nodes, of_edges = read_graphml(Path(nodes), raw)
        return Sources(of_nodes, of_edges, of_nodes.directed, digest.hexdigest())
    if not edges:
        raise TableError(f"{nodes} has nodes alone; name the file of the edges after it.")
    other = read_raw(Path(edges))
    digest.update(hashlib.sha256(other).digest())
    if _is_xml(Path(edges), other):
        raise TableError(f"{edges} is XML, not a table of edges; a GraphML file goes alone.")
    return Sources(_open(Path(nodes), raw), _open(Path(edges), other), False, digest.hexdigest())


def _is_xml(path: Path, raw: bytes) -> bool:
    start = raw[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    return path.suffix.lower() in (".graphml", ".xml") or start.startswith((b"<?xml", b"<graphml", b"<!DOCTYPE"))


def _open(path: Path, raw: bytes) -> Source:
    if raw.startswith(PARQUET):
        return ParquetSource(path, raw)
    if path.suffix.lower() in (".parquet", ".pq"):
        raise TableError(f"{path} is not a Parquet file, though its name says so.")
    return CSVSource(path, raw)
