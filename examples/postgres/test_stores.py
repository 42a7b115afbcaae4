"""The stores on a real server: what they return, and the errors of a server that fails."""

import pickle
import re
import sys
from collections.abc import Iterator

import pytest
import torch
import train
from postgres_store import PostgresFeatureStore, PostgresGraphStore, StoreError
from torch import Tensor
from torch_geometric.data import Data, TensorAttr
from torch_geometric.loader import NodeLoader

from tests.postgres import PASSWORD, Postgres, free_port, tell
from torch_goat.data.loader import NeighborSampler

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'torch-goat[postgres]'")
pytestmark = pytest.mark.postgres


@pytest.fixture
def features(database: str) -> Iterator[PostgresFeatureStore]:
    store = PostgresFeatureStore(database, timeout=1.0)
    yield store
    store.close()


@pytest.fixture
def graph(database: str) -> Iterator[PostgresGraphStore]:
    store = PostgresGraphStore(database, timeout=1.0)
    yield store
    store.close()


def attribute(name: str = "x", index: object = None, group: str | None = None) -> TensorAttr:
    return TensorAttr(group, name, index)


TENSORS = {
    "x": torch.randn(30, 5),
    "y": torch.arange(30),
    "mask": torch.arange(30) % 3 == 0,
    "deep": torch.randn(30, 2, 3, dtype=torch.double),
    "half": torch.randn(30, 4).half(),
    "narrow": torch.randn(30, 0),
}
INDICES = {
    "all": None,
    "some": torch.tensor([29, 0, 7, 7, 3]),
    "none": torch.tensor([], dtype=torch.long),
    "slice": slice(3, 20, 4),
    "mask": torch.arange(30) > 25,
}


@pytest.mark.parametrize("name", TENSORS)
def test_rows_come_back_as_they_were_put(features: PostgresFeatureStore, name: str) -> None:
    features.put_tensor(TENSORS[name], attribute(name))
    for index in INDICES.values():
        found = features.get_tensor(attribute(name, index))
        expected = TENSORS[name] if index is None else TENSORS[name][index]
        assert torch.equal(torch.as_tensor(found), expected)
        assert torch.as_tensor(found).dtype == expected.dtype
    assert features.get_tensor_size(attribute(name)) == tuple(TENSORS[name].shape)


def test_tensors_are_listed_replaced_and_removed(features: PostgresFeatureStore) -> None:
    assert features.get_all_tensor_attrs() == []
    for group in (None, "paper"):
        features.put_tensor(torch.ones(3, 2), attribute(group=group))
    assert [(one.group_name, one.attr_name) for one in features.get_all_tensor_attrs()] == [(None, "x"), ("paper", "x")]
    with pytest.raises(StoreError, match="already has 'x'; remove it first"):
        features.put_tensor(torch.zeros(3, 2), attribute())
    features.update_tensor(torch.zeros(4, 1), attribute(group="paper"))
    assert features.get_tensor_size(attribute(group="paper")) == (4, 1)
    assert features.remove_tensor(attribute())
    assert not features.remove_tensor(attribute())
    with pytest.raises(StoreError, match="has no 'x'; add it with put_tensor") as caught:
        features.get_tensor(attribute())
    check_sentence(caught.value)


def random_edges(num_nodes: int = 60, num_edges: int = 400) -> Tensor:
    return torch.randint(num_nodes, (2, num_edges))


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_edges_come_back_grouped_by_target(
    graph: PostgresGraphStore, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postgres_store.graph._PIECE", 7)
    data = Data(edge_index=random_edges(), num_nodes=60)
    row, column, _ = getattr(data, layout)()
    assert graph.get_all_edge_attrs() == []
    graph.put_edge_index((row, column), edge_type=None, layout=layout, size=(60, 60))
    source, ptr, order = graph.csc()
    assert order is None
    targets = torch.repeat_interleave(ptr.diff())
    expected = Data(edge_index=data.edge_index, num_nodes=60).csc()
    assert torch.equal(ptr, expected[1])
    assert sorted(zip(source.tolist(), targets.tolist(), strict=True)) == sorted(
        zip(*data.edge_index.tolist(), strict=True)
    )


def test_edges_of_several_types(graph: PostgresGraphStore) -> None:
    kinds = [("author", "writes", "paper"), ("paper", "cites", "paper")]
    for kind, size in zip(kinds, [(4, 3), (3, 3)], strict=True):
        edges = torch.tensor([[0, size[0] - 1], [2, 0]])
        graph.put_edge_index((edges[0], edges[1]), edge_type=kind, layout="coo", size=size)
    source, ptr, _ = graph.csc()
    assert source[kinds[0]].tolist() == [3, 0]
    assert ptr[kinds[0]].tolist() == [0, 1, 1, 2]
    assert source[kinds[1]].tolist() == [2, 0]
    with pytest.raises(StoreError, match="already has edges paper cites paper"):
        graph.put_edge_index((edges[0], edges[1]), edge_type=kinds[1], layout="coo", size=(3, 3))
    assert graph.remove_edge_index(edge_type=kinds[0], layout="csc")
    assert [one.edge_type for one in graph.get_all_edge_attrs()] == [kinds[1]]
    with pytest.raises(StoreError, match="has no edges author writes paper; add them with put_edge_index"):
        graph.get_edge_index(edge_type=kinds[0], layout="csc")
    with pytest.raises(ValueError, match="edges paper cites paper are only available in the layout 'csc', got 'coo'"):
        graph.get_edge_index(edge_type=kinds[1], layout="coo")


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_from_the_server_are_those_from_memory(
    features: PostgresFeatureStore, graph: PostgresGraphStore, workers: int
) -> None:
    edges = random_edges()
    data = Data(x=torch.randn(60, 5), y=torch.arange(60), edge_index=edges[:, edges[1].argsort(stable=True)])
    features.put_tensor(data.x, attribute("x"))
    features.put_tensor(data.y, attribute("y"))
    graph.put_edge_index((edges[0], edges[1]), edge_type=None, layout="coo", size=(60, 60))
    batches = []
    for source in (data, (features, graph)):
        sampler = NeighborSampler(source, [3, 2], seed=1)
        options = {"num_workers": workers} if isinstance(source, tuple) else {}
        batches.append(list(NodeLoader(source, sampler, input_nodes=torch.arange(60), batch_size=16, **options)))
    assert len(batches[0]) == 4
    for expected, found in zip(*batches, strict=True):
        for name in ("n_id", "edge_index", "x", "y"):
            assert torch.equal(found[name], expected[name])


def test_a_store_travels_without_its_connection(features: PostgresFeatureStore) -> None:
    features.put_tensor(torch.arange(3), attribute("y"))
    assert torch.equal(pickle.loads(pickle.dumps(features)).get_tensor(attribute("y")), torch.arange(3))  # noqa: S301


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM goat_row WHERE number = 4", "returned 2 of 3 rows of 'x'; the first missing row is 4"),
        (
            "UPDATE goat_row SET value = 'ab' WHERE number = 5",
            r"returned 2 bytes for row 5 of 'x', expected 20: \[5\] of float32",
        ),
        ("UPDATE goat_tensor SET type = 'f8'", r"returned 20 bytes for row 2 of 'x', expected 40: \[5\] of float64"),
        ("UPDATE goat_tensor SET type = 'O'", r"describes 'x' as 30 rows of \[5\] 'O'"),
        ("ALTER TABLE goat_row RENAME number TO id", "rejected .* 3 rows of 'x': column \"number\" does not exist"),
        ("DROP TABLE goat_row", "returned 0 of 3 rows of 'x'; the first missing row is 2"),
    ],
)
def test_a_wrong_answer_is_an_error_that_says_what_was_asked(
    features: PostgresFeatureStore, database: str, damage: str, message: str
) -> None:
    features.put_tensor(TENSORS["x"], attribute())
    tell(database, damage)
    with pytest.raises(StoreError, match=message) as caught:
        features.get_tensor(attribute(index=torch.tensor([5, 2, 4])))
    check_sentence(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM goat_neighbors WHERE target = 1", "returned 1 of 3 edges"),
        ("UPDATE goat_neighbors SET sources = 'abc' WHERE target = 1", "returned 3 bytes for the sources of 1"),
        ("UPDATE goat_neighbors SET sources = '\\x0900000000000000' WHERE target = 0", "a source outside its 2 nodes"),
    ],
)
def test_wrong_edges_are_an_error(graph: PostgresGraphStore, database: str, damage: str, message: str) -> None:
    edges = torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1])
    graph.put_edge_index(edges, edge_type=None, layout="coo", size=(2, 2))
    tell(database, damage)
    with pytest.raises(StoreError, match=message) as caught:
        graph.csc()
    check_sentence(caught.value)


def check_sentence(error: Exception) -> None:
    """One sentence that names the server without its password."""
    text = str(error)
    assert re.fullmatch(r"the store postgresql://goat:\*\*\*@127\.0\.0\.1:\d+/\w+ [^\n]*\.", text)
    assert PASSWORD not in text


def test_a_server_that_hangs_is_late_and_then_answers_again(features: PostgresFeatureStore, postgres: Postgres) -> None:
    features.put_tensor(TENSORS["x"], attribute())
    postgres.pause()
    try:
        for _ in range(2):  # on the old connection, and on a new one
            with pytest.raises(StoreError, match=r"'x'") as caught:
                features.get_tensor(attribute())
            check_sentence(caught.value)
    finally:
        postgres.resume()
    assert torch.equal(features.get_tensor(attribute()), TENSORS["x"])


def test_a_table_that_is_locked_is_late(features: PostgresFeatureStore, database: str) -> None:
    features.put_tensor(TENSORS["x"], attribute())
    with psycopg.connect(database) as connection:
        connection.execute("LOCK TABLE goat_row")
        with pytest.raises(StoreError, match="did not return 1 rows of 'x' within 1 s; increase timeout") as caught:
            features.get_tensor(attribute(index=0))
        check_sentence(caught.value)
    assert torch.equal(features.get_tensor(attribute(index=0)), TENSORS["x"][:1])


def test_a_lost_connection_is_an_error_and_then_another_is_made(features: PostgresFeatureStore, database: str) -> None:
    features.put_tensor(TENSORS["y"], attribute("y"))
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'torch-goat'"
    tell(database, end)
    with pytest.raises(StoreError, match=r"closed the connection during the request for the shape of 'y'") as caught:
        features.get_tensor(attribute("y"))
    check_sentence(caught.value)
    assert torch.equal(features.get_tensor(attribute("y")), TENSORS["y"])


def test_a_worker_hands_on_what_its_store_says(
    features: PostgresFeatureStore, graph: PostgresGraphStore, database: str
) -> None:
    features.put_tensor(torch.randn(60, 2), attribute())
    source, target = random_edges()
    graph.put_edge_index((source, target), edge_type=None, layout="coo", size=(60, 60))
    stores = features, graph
    loader = NodeLoader(
        stores, NeighborSampler(stores, [2]), input_nodes=torch.arange(60), batch_size=60, num_workers=1
    )
    tell(database, "DELETE FROM goat_row WHERE number = 4")
    with pytest.raises(StoreError, match=r"returned 59 of 60 rows of 'x'; the first missing row is 4"):
        next(iter(loader))


def test_a_server_that_cannot_be_reached(postgres: Postgres) -> None:
    elsewhere = postgres.address.replace(str(postgres.port), str(free_port()))
    for wrong in (elsewhere, postgres.address.replace("business", "concern"), postgres.address + "_not"):
        with pytest.raises(StoreError, match="cannot be reached to request the list of tensors: ") as caught:
            PostgresFeatureStore(wrong).get_all_tensor_attrs()
        check_sentence(caught.value)
        assert "concern" not in str(caught.value)


def test_what_fails_half_way_leaves_nothing(features: PostgresFeatureStore) -> None:
    features.put_tensor(TENSORS["x"], attribute("x"))

    def fail(connection: object) -> None:
        raise RuntimeError("half way")

    pieces = [lambda connection: connection.execute("DELETE FROM goat_tensor"), fail]
    with pytest.raises(RuntimeError, match="half way"):
        features.server.write("an end", pieces)
    assert torch.equal(features.get_tensor(attribute("x")), TENSORS["x"])


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.tensor([30]), "row 30 of 'x' is out of range; it has 30 rows"),
        (torch.tensor([-1, 3]), "row -1 of 'x' is out of range"),
        (torch.ones(3, dtype=torch.bool), r"the mask for 'x' has shape \[3\], expected \[30\]"),
        (torch.tensor([0.5]), "must be a list of integers, got float32"),
    ],
)
def test_rows_that_are_not_there_are_not_asked_for(features: PostgresFeatureStore, index: Tensor, message: str) -> None:
    features.put_tensor(TENSORS["x"], attribute())
    with pytest.raises(IndexError, match=message):
        features.get_tensor(attribute(index=index))


def test_what_cannot_be_put_is_refused(features: PostgresFeatureStore, graph: PostgresGraphStore) -> None:
    with pytest.raises(ValueError, match="'x' can only be written as a whole; pass index=None"):
        features.put_tensor(torch.ones(2, 2), attribute(index=torch.tensor([0, 1])))
    with pytest.raises(ValueError, match="'x' must be a numeric array with one row per node, got complex64"):
        features.put_tensor(torch.ones(2, dtype=torch.complex64), attribute())
    with pytest.raises(ValueError, match="edges have a target that is not one of the 2 nodes"):
        graph.put_edge_index((torch.tensor([0]), torch.tensor([2])), edge_type=None, layout="coo", size=(2, 2))
    assert features.get_all_tensor_attrs() == []
    assert graph.get_all_edge_attrs() == []


@pytest.mark.parametrize("store", [PostgresFeatureStore, PostgresGraphStore])
def test_an_address_of_another_database_is_refused_without_its_password(store: type) -> None:
    with pytest.raises(ValueError, match=r"must start with postgresql://, got 'redis://me:\*\*\*@host'"):
        store("redis://me:secret@host")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_positive_and_finite(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds"):
        PostgresFeatureStore("postgresql://host", timeout)


def test_without_a_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install 'torch-goat\[postgres\]'"):
        PostgresFeatureStore("postgresql://host").get_all_tensor_attrs()


def test_the_password_is_not_in_the_representation() -> None:
    store = PostgresGraphStore("postgresql://me:secret@host/x")
    assert repr(store) == "PostgresGraphStore('postgresql://me:***@host/x')"


def test_training_on_the_server_learns_and_uploads_once(
    features: PostgresFeatureStore, graph: PostgresGraphStore
) -> None:
    for _ in range(2):
        train.upload("top2", features, graph)
    losses = train.train(features, graph, epochs=6)
    assert losses[-1] < 0.9 * losses[0]
