class DataError(RuntimeError):
    """Raw files that are missing, damaged or not what they should be, or a cache that cannot be written."""
