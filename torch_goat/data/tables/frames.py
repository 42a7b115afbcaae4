"""Tables in memory (pandas, polars, Arrow) as Parquet files, which keep the types of their columns."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_goat.data.tables.source import PARQUET, TableError
from torch_goat.files import write_atomic


def table_file(table: Any, path: Path) -> str:
    """The file of a table: its own if it is the name of a file, else ``path``, to which a table in memory is written.

    A named index of a pandas DataFrame is a column. A file that exists must have the same contents.
    """
    if isinstance(table, str | os.PathLike):
        return str(Path(table).resolve())
    content = _to_parquet(table, path.stem)
    if not path.exists():
        write_atomic(path, content)
    elif path.read_bytes() != content:
        raise TableError(f"the folder {path.parent} already holds other {path.stem}; choose another.")
    return str(path.resolve())


def category_columns(table: Any) -> list[str]:
    """The columns of a pandas DataFrame with the type ``category``; those of texts are categories in any table."""
    columns = zip(table.columns, table.dtypes, strict=True) if _is_pandas(table) else ()
    return [str(name) for name, kind in columns if kind == "category"]


def class_values(nodes: str, target: str, classes: Sequence[str]) -> list[Any]:
    """The classes as values of the target column: numbers, booleans or dates if it has such a type in Parquet."""
    kind = _column_type(nodes, target)
    if kind is None:
        return list(classes)
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(kind) or types.is_date(kind):
        return list(pyarrow.array(classes).cast(kind).to_pandas().to_numpy())
    if types.is_boolean(kind):
        return [name.lower() in ("true", "1") for name in classes]
    if types.is_integer(kind):
        return [int(name) for name in classes]
    return [float(name) for name in classes] if types.is_floating(kind) else list(classes)


def node_name(nodes: str, column: str, node: Any) -> str:
    """The name of a node from its value in the id column, as this column of the table is read."""
    kind = None if isinstance(node, str) else _column_type(nodes, column)
    if kind is None:
        return str(node)
    import pandas as pd
    import pyarrow

    try:
        found = pyarrow.array(pd.Series([node]), from_pandas=True).cast(kind).cast(pyarrow.string())
    except (pyarrow.ArrowException, TypeError, ValueError):  # no such value
        return str(node)
    return str(found[0])


def _column_type(file: str, column: str) -> Any:
    """The Arrow type of the values in a column of a Parquet file; ``None`` for other files."""
    with open(file, "rb") as opened:
        if opened.read(len(PARQUET)) != PARQUET:
            return None
    from pyarrow import parquet, types

    kind = parquet.read_schema(file).field(column).type
    return kind.value_type if types.is_dictionary(kind) else kind


def _to_parquet(table: Any, name: str) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise TableError(
            "tables in memory are kept as Parquet, which needs pyarrow; install torch-goat[parquet]."
        ) from None
    if not hasattr(table, "__arrow_c_stream__") and hasattr(table, "to_pandas"):
        table = table.to_pandas()
    if _is_pandas(table):
        table = _from_pandas(table, name)
    elif hasattr(table, "__arrow_c_stream__"):  # polars, Arrow
        table = pyarrow.table(table)
    else:
        raise TableError(
            f"{name} must be a DataFrame, an Arrow table or the name of a file, got {type(table).__name__}."
        )
    content = io.BytesIO()
    try:
        parquet.write_table(table.replace_schema_metadata(None), content)  # so that equal tables are equal files
    except pyarrow.ArrowException as error:
        reason = " ".join(str(error).split())[:200]
        raise TableError(f"{name} cannot be written as Parquet ({reason}); convert or drop the column.") from None
    return content.getvalue()


def _is_pandas(table: Any) -> bool:
    return type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "columns")


def _from_pandas(frame: Any, name: str) -> Any:
    import pyarrow

    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns, names = [], [str(column) for column in frame.columns]
    for number, column in enumerate(names):
        try:
            columns.append(pyarrow.array(frame.iloc[:, number], from_pandas=True))
        except (pyarrow.ArrowException, TypeError, ValueError):
            raise TableError(
                f"{name}, column {column!r}: the values have several types or none that a table can hold; convert "
                "them, for example with astype(str), or drop the column."
            ) from None
    return pyarrow.Table.from_arrays(columns, names=names)
