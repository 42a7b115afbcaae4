import pytest

from torch_goat.experiments.search.storage import masked, one_line


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://host/name", "postgresql://host/name"),
        ("postgresql://me@host:5432/name", "postgresql://me@host:5432/name"),
        ("postgresql://me:secret@host:5432/name", "postgresql://me:***@host:5432/name"),
        ("postgresql+psycopg://me:se:cret@host/name", "postgresql+psycopg://me:***@host/name"),
        ("postgresql://me:se@cr/et@host/name", "postgresql://me:***@host/name"),
        ("postgresql://host/name?user=me&password=secret&x=1", "postgresql://host/name?user=me&password=***&x=1"),
        ("postgresql://:secret@host", "postgresql://:***@host"),
        ("sqlite:///trials.db", "sqlite:///trials.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert masked(address) == shown


def test_an_error_is_shown_in_a_line_and_without_the_password() -> None:
    error = ValueError("cannot read 'a%20b' or 'a b' of u:a%20b@h.\nDETAIL: more of a b")
    assert one_line(error, "postgresql://u:a%20b@h") == "cannot read '***' or '***' of u:***@h"
    assert one_line(ValueError(), "postgresql://h") == "ValueError"
