from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, GraphStore
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.utils import index_sort
from torch_geometric.utils.sparse import index2ptr

from postgres_store.server import OnServer, StoreError, prepare

if TYPE_CHECKING:
    from psycopg import Connection

_TABLES = """
    CREATE TABLE IF NOT EXISTS goat_edges (
        id serial PRIMARY KEY, edge_type text[] NOT NULL UNIQUE,
        num_sources bigint NOT NULL, num_targets bigint NOT NULL, num_edges bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS goat_neighbors (
        edges int REFERENCES goat_edges ON DELETE CASCADE, target bigint, sources bytea NOT NULL,
        PRIMARY KEY (edges, target))
"""
_DESCRIBE = "INSERT INTO goat_edges (edge_type, num_sources, num_targets, num_edges) VALUES (%s, %s, %s, %s)"
_KEY = "SELECT id FROM goat_edges WHERE edge_type = %s"
_PIECE = 10_000  # targets per query


class PostgresGraphStore(OnServer, GraphStore):
    """Edges in a PostgreSQL database, one row of the table ``goat_neighbors`` per target node with its sources.

    Edges may be added in any of PyG's layouts and are returned as ``"csc"``, grouped by target. A sampler reads all of
    them once, when it is created, in several queries. Edges are written in one transaction.

    Args:
        address: The address of the database, e.g. ``postgresql://user:password@host:5432/name``.
        timeout: The maximum number of seconds per query.
    """

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        found = self.server.ask(
            "the list of edges", "SELECT edge_type, num_sources, num_targets FROM goat_edges ORDER BY id"
        )
        return [EdgeAttr(tuple(kind) or None, "csc", size=(rows, columns)) for kind, rows, columns in found]

    def _put_edge_index(self, edge_index: tuple[Tensor, Tensor], edge_attr: EdgeAttr) -> bool:
        name = _name(edge_attr)
        if self._kept(edge_attr) is not None:
            raise StoreError(f"the store {self.server} already has {name}; remove them first.")
        self.server.write(f"room for {name}", _writing(*_by_target(edge_index, edge_attr), edge_attr))
        return True

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor]:
        kept, name, pieces = self._kept(edge_attr), _name(edge_attr), []
        if kept is None:
            raise StoreError(f"the store {self.server} has no {name}; add them with put_edge_index.")
        if edge_attr.layout != EdgeLayout.CSC:
            raise ValueError(f"{name} are only available in the layout 'csc', got {edge_attr.layout.value!r}.")
        key, num_sources, num_targets, num_edges = kept
        degree = np.zeros(num_targets, np.int64)
        for start in range(0, num_targets, _PIECE):
            end = min(start + _PIECE, num_targets)
            found = self.server.ask(
                f"the sources of the targets {start} to {end - 1} of {name}",
                "SELECT target, sources FROM goat_neighbors WHERE edges = %s AND target >= %s AND target < %s "
                "ORDER BY target",
                [key, start, end],
            )
            for target, sources in found:
                degree[target], rest = divmod(len(sources), 8)
                if rest:
                    raise StoreError(
                        f"the store {self.server} returned {len(sources)} bytes for the sources of {target} in {name}, "
                        f"expected a multiple of 8."
                    )
            pieces.append(np.frombuffer(b"".join(sources for _, sources in found), np.int64))
        source = np.concatenate([np.empty(0, np.int64), *pieces])
        if len(source) != num_edges:
            raise StoreError(f"the store {self.server} returned {len(source)} of {num_edges} {name}.")
        if len(source) and not 0 <= source.min() <= source.max() < num_sources:
            raise StoreError(f"the store {self.server} returned {name} with a source outside its {num_sources} nodes.")
        ptr = np.concatenate([np.zeros(1, np.int64), degree.cumsum()])
        return torch.from_numpy(source), torch.from_numpy(ptr)

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        kept = self._kept(edge_attr)
        if kept is not None:
            query = "DELETE FROM goat_edges WHERE id = %s RETURNING id"
            self.server.ask(f"the removal of {_name(edge_attr)}", query, [kept[0]])
        return kept is not None

    def _kept(self, edge_attr: EdgeAttr) -> tuple[int, int, int, int] | None:
        """The key of an edge type, and its numbers of sources, targets and edges."""
        found: list[Any] = self.server.ask(
            f"the size of {_name(edge_attr)}",
            "SELECT id, num_sources, num_targets, num_edges FROM goat_edges WHERE edge_type = %s",
            [_kind(edge_attr)],
        )
        return found[0] if found else None


def _kind(attr: EdgeAttr) -> list[str]:
    return list(attr.edge_type or [])


def _name(attr: EdgeAttr) -> str:
    return " ".join(["edges", *_kind(attr)])


def _by_target(edge_index: tuple[Tensor, Tensor], attr: EdgeAttr) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """The sources grouped by target ``[E]``, the offsets ``[T + 1]``, and the numbers of sources and targets."""
    source, target = (torch.as_tensor(part).long() for part in edge_index)
    if attr.layout == EdgeLayout.CSR:
        source = torch.repeat_interleave(source.diff())
    elif attr.layout == EdgeLayout.CSC:
        target = torch.repeat_interleave(target.diff())
    size = attr.size or (_count(source), _count(target))
    for what, ends, most in (("source", source, size[0]), ("target", target, size[1])):
        if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < most:
            raise ValueError(f"{_name(attr)} have a {what} that is not one of the {most} nodes.")
    target, order = index_sort(target, stable=True)
    ptr = index2ptr(target, size[1])
    return source[order].numpy(), ptr.numpy(), size


def _count(ends: Tensor) -> int:
    return int(ends.max()) + 1 if len(ends) else 0


def _writing(
    source: np.ndarray, ptr: np.ndarray, size: tuple[int, int], attr: EdgeAttr
) -> Iterator[Callable[["Connection"], object]]:
    """The steps that write edges."""

    def copy(start: int, connection: "Connection") -> None:
        (key,) = connection.execute(_KEY, [_kind(attr)]).fetchone() or (None,)
        with connection.cursor().copy("COPY goat_neighbors FROM STDIN (FORMAT BINARY)") as stream:
            stream.set_types(["int4", "int8", "bytea"])
            for target in range(start, min(start + _PIECE, len(ptr) - 1)):
                sources = source[ptr[target] : ptr[target + 1]].astype(np.int64)
                stream.write_row((key, target, sources.tobytes()))

    yield prepare(_TABLES)
    yield lambda connection: connection.execute(_DESCRIBE, [_kind(attr), *size, len(source)])
    for start in range(0, len(ptr) - 1, _PIECE):
        yield partial(copy, start)
