from tests.data.tables.fuzz import fuzz


def test_made_up_files_are_read_or_refused_with_a_sentence() -> None:
    assert fuzz(seconds=60, seed=1, limit=150) > 0
