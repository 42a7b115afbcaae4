class StoreError(RuntimeError):
    """A store that cannot be reached, that answers late, or with something else than it was asked for."""
