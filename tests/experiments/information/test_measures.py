import dit
import numpy as np
import pytest
from dit.pid import PID_BROJA, PID_WB
from sklearn.metrics import mutual_info_score

from torch_goat.experiments.information.measures import broja_informations, informations, mutual_information


def tables(shape: tuple[int, ...], number: int = 3) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.multinomial(400, generator.dirichlet(np.full(np.prod(shape), 0.5)), size=number).reshape(
        -1, *shape
    )


def as_dit(table: np.ndarray) -> dit.Distribution:
    cells = [tuple(cell) for cell in np.argwhere(table > 0).tolist()]
    return dit.Distribution(cells, [float(table[cell] / table.sum()) for cell in cells])


def test_mutual_information_is_that_of_scikit_learn() -> None:
    for table in tables((4, 3)):
        expected = mutual_info_score(None, None, contingency=table) / np.log(2)
        assert float(mutual_information(table.astype(float))) == pytest.approx(expected)


def test_correction_is_miller_and_madows() -> None:
    for table in tables((4, 3)):
        occupied = [(table.sum(axis=1) > 0).sum(), (table.sum(axis=0) > 0).sum(), (table > 0).sum()]
        expected = (occupied[0] + occupied[1] - occupied[2] - 1) / (2 * table.sum() * np.log(2))
        plain, corrected = (mutual_information(table.astype(float), corrected) for corrected in (False, True))
        assert float(corrected - plain) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 2, 4)])
def test_williams_and_beer_is_dits(shape: tuple[int, ...]) -> None:
    counts = tables(shape)
    found = informations(counts.astype(float))
    for number, table in enumerate(counts):
        expected = PID_WB(as_dit(table))
        assert found.redundancy[number] == pytest.approx(expected.get_pi(((0,), (1,))))
        assert found.parts()["synergy"][number] == pytest.approx(expected.get_pi(((0, 1),)))
        assert found.parts()["unique 1"][number] == pytest.approx(expected.get_pi(((0,),)), abs=1e-9)


def test_broja_is_dits() -> None:
    counts = tables((2, 3, 2), number=2)
    found = broja_informations(counts.astype(float))
    for number, table in enumerate(counts):
        expected = PID_BROJA(as_dit(table), method="admui")
        assert found.redundancy[number] == pytest.approx(expected.get_pi(((0,), (1,))), abs=1e-3)


def test_a_value_that_never_occurs_changes_nothing() -> None:
    table = tables((2, 3, 2), 1)[0].astype(float)
    padded = np.zeros((3, 4, 4))
    padded[:2, :3, :2] = table
    for corrected in (False, True):
        for first, second in zip(informations(table, corrected), informations(padded, corrected), strict=True):
            assert float(first) == pytest.approx(float(second))
