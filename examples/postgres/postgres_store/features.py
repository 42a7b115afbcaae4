from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, TensorAttr

from postgres_store.server import OnServer, StoreError, prepare

if TYPE_CHECKING:
    from psycopg import Connection

_TYPES = {name: np.dtype(name) for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "bool")}
_TABLES = """
    CREATE TABLE IF NOT EXISTS goat_tensor (
        id serial PRIMARY KEY, group_name text NOT NULL, attr_name text NOT NULL,
        type text NOT NULL, row_shape bigint[] NOT NULL, num_rows bigint NOT NULL, UNIQUE (group_name, attr_name));
    CREATE TABLE IF NOT EXISTS goat_row (
        tensor int REFERENCES goat_tensor ON DELETE CASCADE, number bigint, value bytea NOT NULL,
        PRIMARY KEY (tensor, number));
    ALTER TABLE goat_row ALTER COLUMN value SET STORAGE EXTERNAL
"""  # EXTERNAL: floating-point rows hardly compress
_DESCRIBE = "INSERT INTO goat_tensor (group_name, attr_name, type, row_shape, num_rows) VALUES (%s, %s, %s, %s, %s)"
_KEY = "SELECT id FROM goat_tensor WHERE group_name = %s AND attr_name = %s"
_PIECE = 10_000  # rows per COPY statement


class _Kept(NamedTuple):
    """The description of a tensor in the database."""

    id: int
    name: str  # for error messages
    type: np.dtype
    row_shape: tuple[int, ...]
    num_rows: int

    @property
    def row_bytes(self) -> int:
        return self.type.itemsize * int(np.prod(self.row_shape, dtype=np.int64))


class PostgresFeatureStore(OnServer, FeatureStore):
    """Features in a PostgreSQL database, one row of the table ``goat_row`` per node.

    A batch reads the rows of its nodes with one query per tensor. A late, incomplete or malformed result raises
    :class:`StoreError`. A tensor is written in one transaction, so a partly written one is never visible.

    Args:
        address: The address of the database, e.g. ``postgresql://user:password@host:5432/name``.
        timeout: The maximum number of seconds per query.
    """

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        found = self.server.ask("the list of tensors", "SELECT group_name, attr_name FROM goat_tensor ORDER BY id")
        return [TensorAttr(group or None, name) for group, name in found]

    def _put_tensor(self, tensor: Tensor | np.ndarray, attr: TensorAttr) -> bool:
        rows, name = np.asarray(tensor), _name(attr)
        kind = next((kind for kind, known in _TYPES.items() if known == rows.dtype), None)
        if attr.index is not None:
            raise ValueError(f"{name} can only be written as a whole; pass index=None.")
        if kind is None or rows.ndim == 0:
            raise ValueError(f"{name} must be a numeric array with one row per node, got {rows.dtype} {rows.shape}.")
        if self._kept(attr) is not None:
            raise StoreError(f"the store {self.server} already has {name}; remove it first.")

        self.server.write(f"room for {name}", _writing(rows, kind, attr))
        return True

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        kept = self._kept(attr)
        if kept is None:
            raise StoreError(f"the store {self.server} has no {_name(attr)}; add it with put_tensor.")
        asked, inverse = np.unique(_numbers(attr.index, kept), return_inverse=True)
        if len(asked) and not 0 <= asked[0] <= asked[-1] < kept.num_rows:
            wrong = asked[0] if asked[0] < 0 else asked[-1]
            raise IndexError(f"row {wrong} of {kept.name} is out of range; it has {kept.num_rows} rows.")
        found = self.server.ask(
            f"{len(asked)} rows of {kept.name}",
            "SELECT number, value FROM goat_row WHERE tensor = %s AND number = ANY(%s) ORDER BY number",
            [kept.id, asked.tolist()],
        )
        rows = self._checked(kept, asked, found)
        return torch.from_numpy(rows[inverse.reshape(-1)])

    def _checked(self, kept: _Kept, asked: np.ndarray, found: list[tuple[Any, ...]]) -> np.ndarray:
        """Validates the rows of a result and returns them in ascending order of their numbers ``[A, ...]``."""
        numbers = np.fromiter((number for number, _ in found), np.int64, len(found))
        if len(missing := np.setdiff1d(asked, numbers)):
            raise StoreError(
                f"the store {self.server} returned {len(numbers)} of {len(asked)} rows of {kept.name}; the first "
                f"missing row is {missing[0]}."
            )
        for number, value in found:
            if len(value) != kept.row_bytes:
                raise StoreError(
                    f"the store {self.server} returned {len(value)} bytes for row {number} of {kept.name}, expected "
                    f"{kept.row_bytes}: {list(kept.row_shape)} of {kept.type}."
                )
        joined = np.frombuffer(b"".join(value for _, value in found), kept.type)
        return joined.reshape(len(asked), *kept.row_shape)

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        kept = self._kept(attr)
        if kept is not None:
            query = "DELETE FROM goat_tensor WHERE id = %s RETURNING id"
            self.server.ask(f"the removal of {kept.name}", query, [kept.id])
        return kept is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        kept = self._kept(attr)
        return None if kept is None else (kept.num_rows, *kept.row_shape)

    def _kept(self, attr: TensorAttr) -> _Kept | None:
        name = _name(attr)
        found = self.server.ask(
            f"the shape of {name}",
            "SELECT id, type, row_shape, num_rows FROM goat_tensor WHERE group_name = %s AND attr_name = %s",
            [attr.group_name or "", attr.attr_name],
        )
        if not found:
            return None
        key, kind, row_shape, num_rows = found[0]
        if kind not in _TYPES or min(row_shape, default=0) < 0 or num_rows < 0:
            raise StoreError(f"the store {self.server} describes {name} as {num_rows} rows of {row_shape} {kind!r}.")
        return _Kept(key, name, _TYPES[kind], tuple(row_shape), num_rows)


def _name(attr: TensorAttr) -> str:
    if not isinstance(attr.attr_name, str):
        raise ValueError(f"attr_name must be a string, got {attr.attr_name!r}.")
    return repr(attr.attr_name if not attr.group_name else f"{attr.group_name}.{attr.attr_name}")


def _writing(rows: np.ndarray, kind: str, attr: TensorAttr) -> Iterator[Callable[["Connection"], object]]:
    """The steps that write a tensor."""
    described = [attr.group_name or "", attr.attr_name, kind, list(rows.shape[1:]), len(rows)]

    def copy(start: int, connection: "Connection") -> None:
        (key,) = connection.execute(_KEY, described[:2]).fetchone() or (None,)
        with connection.cursor().copy("COPY goat_row FROM STDIN (FORMAT BINARY)") as stream:
            stream.set_types(["int4", "int8", "bytea"])
            for number, row in enumerate(rows[start : start + _PIECE], start):
                stream.write_row((key, number, row.tobytes()))

    yield prepare(_TABLES)
    yield lambda connection: connection.execute(_DESCRIBE, described)
    for start in range(0, len(rows), _PIECE):
        yield partial(copy, start)


def _numbers(index: Any, kept: _Kept) -> np.ndarray:
    """Converts an index of a ``TensorAttr`` to row numbers ``[A]``."""
    if index is None:
        return np.arange(kept.num_rows)
    if isinstance(index, slice):
        return np.arange(kept.num_rows)[index]
    numbers = np.atleast_1d(np.asarray(index))
    if numbers.dtype == bool:
        if numbers.shape != (kept.num_rows,):
            raise IndexError(f"the mask for {kept.name} has shape {list(numbers.shape)}, expected [{kept.num_rows}].")
        return numbers.nonzero()[0]
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise IndexError(f"the index of {kept.name} must be a list of integers, got {numbers.dtype} {numbers.shape}.")
    return numbers.astype(np.int64)
