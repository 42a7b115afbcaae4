from torch_goat.data.datasets import DataError


class TableError(DataError):
    """A table that cannot be read or does not fit; the message names the file, and the line and column if it can."""
