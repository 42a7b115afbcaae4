import io
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from torch_goat.data.tables.source import LARGEST, MISSING, Source, TableError, as_texts


class ParquetSource(Source):
    """A Parquet file; messages give the number of a row, from 1, as its line."""

    def __init__(self, path: Path, raw: bytes) -> None:
        try:
            import pyarrow
            from pyarrow import parquet, types
        except ImportError:
            raise TableError(
                f"{path} is a Parquet file, which needs pyarrow; install torch-goat[parquet] or write it as CSV."
            ) from None
        try:
            self._file = parquet.ParquetFile(io.BytesIO(raw))
            groups = [self._file.metadata.row_group(number) for number in range(self._file.metadata.num_row_groups)]
        except (pyarrow.ArrowException, OSError) as error:
            raise TableError(f"{path} is not a readable Parquet file ({' '.join(str(error).split())}).") from None
        if sum(group.total_byte_size for group in groups) > LARGEST:
            raise TableError(f"{path} unpacks to more than the limit of {LARGEST >> 20} MiB.")
        super().__init__(path, self._file.schema_arrow.names)
        fields = list(self._file.schema_arrow)
        self.durations = frozenset(field.name for field in fields if types.is_duration(field.type))
        self.texts = frozenset(
            field.name
            for field in fields
            if types.is_string(field.type)
            or types.is_large_string(field.type)
            or types.is_dictionary(field.type)
            or types.is_string_view(field.type)
        )

    def read(self, text: Collection[str], names: Collection[str] = ()) -> pd.DataFrame:
        import pyarrow
        from pyarrow import compute, types

        try:
            table = self._file.read()
        except (pyarrow.ArrowException, OSError) as error:
            raise TableError(f"{self.path} is damaged ({' '.join(str(error).split())}).") from None
        series = {}
        for name in self.columns:
            if name in self.unread and name not in {*text, *names}:
                continue  # values of any type
            column, kind = table.column(name), table.schema.field(name).type
            try:
                if types.is_dictionary(kind):
                    column = column.cast(kind := kind.value_type)
                if kind == pyarrow.float32():  # 0.1, which is not the same number in 32 and 64 bits
                    column = column.cast(pyarrow.string()).cast(pyarrow.float64())
                if types.is_duration(kind):
                    column, kind = column.cast(pyarrow.duration("ns")).cast(pyarrow.int64()), pyarrow.float64()
                    column = compute.divide(column.cast(kind), 86400e9)  # days
                number = types.is_integer(kind) or types.is_floating(kind)
                if number and name not in {*text, *names, *self.texts}:
                    series[name] = column.to_pandas()
                    continue
                if name not in names and (types.is_floating(kind) or types.is_boolean(kind) or types.is_temporal(kind)):
                    cells = column.to_pandas()
                    cells = cells.astype(str).where(cells.notna())  # as in a CSV file
                else:
                    cells = column.cast(pyarrow.string()).to_pandas()
            except pyarrow.ArrowException:
                raise TableError(
                    f"{self.path}, column {name!r}: values of type {kind} are not supported; drop the column."
                ) from None
            series[name] = as_texts(cells, [""] if name in names else MISSING)
        return pd.DataFrame(series)

    def line(self, row: int) -> int:
        return row + 1
