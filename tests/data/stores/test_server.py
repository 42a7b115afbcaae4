"""What needs no server to be refused."""

import sys

import pytest

from torch_goat.data.stores import PostgresFeatureStore, PostgresGraphStore


@pytest.mark.parametrize("store", [PostgresFeatureStore, PostgresGraphStore])
def test_an_address_of_something_else_is_refused_without_its_password(store: type) -> None:
    with pytest.raises(ValueError, match=r"begins with postgresql://, got 'redis://me:\*\*\*@host'"):
        store("redis://me:secret@host")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_a_time(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds"):
        PostgresFeatureStore("postgresql://host", timeout)


def test_without_a_driver_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install 'torch-goat\[postgres\]'"):
        PostgresFeatureStore("postgresql://host").get_all_tensor_attrs()


def test_the_password_is_not_in_the_name() -> None:
    assert (
        repr(PostgresGraphStore("postgresql://me:secret@host/x")) == "PostgresGraphStore('postgresql://me:***@host/x')"
    )
