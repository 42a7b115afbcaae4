"""The example of the documentation, on a real server."""

import runpy
from pathlib import Path

import pytest

from torch_goat.data.stores import PostgresFeatureStore, PostgresGraphStore

pytestmark = pytest.mark.postgres
EXAMPLE = Path(__file__).parents[3] / "examples" / "store.py"


def test_the_example_learns_from_the_server_and_uploads_once(database: str) -> None:
    example = runpy.run_path(str(EXAMPLE))
    features, graph = PostgresFeatureStore(database), PostgresGraphStore(database)
    for _ in range(2):
        example["upload"]("top2", features, graph)
    losses = example["train"](features, graph, epochs=6)
    assert losses[-1] < 0.9 * losses[0]
    for store in (features, graph):
        store.close()
