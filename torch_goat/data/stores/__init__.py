"""Graph and features in a database, behind PyG's ``GraphStore`` and ``FeatureStore``."""

from torch_goat.data.stores.errors import StoreError
from torch_goat.data.stores.features import PostgresFeatureStore
from torch_goat.data.stores.graph import PostgresGraphStore

__all__ = ["PostgresFeatureStore", "PostgresGraphStore", "StoreError"]
