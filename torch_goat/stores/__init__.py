"""Graph and features in a database, behind PyG's ``GraphStore`` and ``FeatureStore``."""

from torch_goat.stores.errors import StoreError
from torch_goat.stores.features import PostgresFeatureStore
from torch_goat.stores.graph import PostgresGraphStore

__all__ = ["PostgresFeatureStore", "PostgresGraphStore", "StoreError"]
