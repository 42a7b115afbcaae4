"""PyG's ``GraphStore`` and ``FeatureStore`` in a PostgreSQL database."""

from postgres_store.features import PostgresFeatureStore
from postgres_store.graph import PostgresGraphStore
from postgres_store.server import StoreError

__all__ = ["PostgresFeatureStore", "PostgresGraphStore", "StoreError"]
