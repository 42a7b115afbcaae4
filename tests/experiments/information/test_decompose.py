import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import dit
import numpy as np
import pytest
import torch
from dit.pid import PID_BROJA, PID_WB
from sklearn.metrics import mutual_info_score

from torch_goat.experiments.information import Decomposition, SmallSampleWarning, decompose
from torch_goat.experiments.information.decompose import broja, mutual_information, williams_beer


def gate(function: Callable[..., int], sources: int = 2) -> dict[tuple[int, ...], float]:
    """The joint distribution of independent fair bits and the output of a gate."""
    return {(*bits, function(*bits)): 0.5**sources for bits in product((0, 1), repeat=sources)}


def parts(found: Decomposition) -> list[float]:
    return [*found.unique, found.redundancy, found.synergy, found.total]


@pytest.mark.parametrize("measure", ["wb", "broja"])
@pytest.mark.parametrize(
    ("joint", "expected", "counted"),
    [
        (gate(lambda a, b: a ^ b), [0, 0, 0, 1, 1], 0),  # one neighbour at a time shows nothing
        ({(0, 0, 0): 0.5, (1, 1, 1): 0.5}, [0, 0, 1, 0, 1], 2),  # redundancy counts twice
        (gate(lambda a, b: a & b), [0, 0, 0.311, 0.5, 0.811], 2 * 0.311),
    ],
    ids=["xor", "copy", "and"],
)
def test_known_gates(joint: Any, expected: list[float], counted: float, measure: Any) -> None:
    found = decompose(joint, measure=measure)
    assert parts(found) == pytest.approx(expected, abs=1e-3)
    assert found.counted == pytest.approx(counted, abs=1e-3)
    assert f"synergy          {expected[3]:7.3f} bit" in str(found)


def test_two_copied_bits_are_unique_to_broja_and_not_to_williams_and_beer() -> None:
    both = gate(lambda a, b: 2 * a + b)
    assert parts(decompose(both, measure="broja")) == pytest.approx([1, 1, 0, 0, 2], abs=1e-3)
    # Each source gives one bit about every target value; this measure ignores that they are different bits.
    assert parts(decompose(both, measure="wb")) == pytest.approx([0, 0, 1, 1, 2], abs=1e-9)


def test_broja_is_the_least_of_a_fine_grid() -> None:
    """Binary sources have one free parameter per target value; dit finds less than half of the redundancy here."""
    table = np.array([[[2, 2], [1, 0]], [[2, 2], [2, 2]]]) / 13
    first, second = table.sum(axis=1), table.sum(axis=0)  # each with the target
    low = np.maximum(0, first[0] + second[0] - table.sum(axis=(0, 1)))
    free = np.stack(np.meshgrid(*np.linspace(low, np.minimum(first[0], second[0]), 401).T, indexing="ij"), axis=-1)
    cells = np.stack([free, first[0] - free, second[0] - free, first[1] - second[0] + free]).clip(min=1e-300)
    information = (cells * np.log2(cells / cells.sum(axis=-1, keepdims=True))).sum(axis=(0, -1))  # minus H(T)
    target = table.sum(axis=(0, 1))
    least = information.min() - (target * np.log2(target)).sum()
    found = decompose({cell: float(table[cell]) for cell in np.ndindex(2, 2, 2)}, measure="broja")
    assert sum(found.single) - least == pytest.approx(0.0069, abs=1e-5)
    assert found.redundancy == pytest.approx(0.0069, abs=1e-4)
    assert sum(parts(found)[:4]) == pytest.approx(found.total)


def test_parity_of_three_sources() -> None:
    for measure in ("wb", "broja"):
        found = decompose(gate(lambda a, b, c: a ^ b ^ c, 3), measure=measure)
        assert parts(found) == pytest.approx([0, 0, 0, 0, 1, 1], abs=1e-3)
        assert len(found.atoms) == 18
        assert found.atoms["{1:2:3}"] == pytest.approx(1, abs=1e-3)
    pair = decompose(gate(lambda a, b, c: a ^ b, 3))
    assert pair.atoms["{1:2}"] == pytest.approx(1)
    assert pair.synergy == pytest.approx(1)


def test_mixed_atoms() -> None:
    # The target is a bit that source 1 has alone and sources 2 and 3 have together: {1}{2:3}.
    hidden = {(a ^ b, a, b, a ^ b): 0.25 for a, b in product((0, 1), repeat=2)}
    found = decompose(hidden)
    assert found.atoms["{1}{2:3}"] == pytest.approx(1)
    assert parts(found) == pytest.approx([1, 0, 0, 0, 0, 1])
    assert found.counted == pytest.approx(1)
    # The target is the parity of any two: {1:2}{1:3}{2:3}, none of which is in a single source.
    any_two = {(a, (a + t) % 3, (a + 2 * t) % 3, t): 1 / 9 for a, t in product(range(3), repeat=2)}
    assert decompose(any_two).synergy == pytest.approx(np.log2(3))
    assert decompose(any_two).atoms["{1:2}{1:3}{2:3}"] == pytest.approx(np.log2(3))


@pytest.mark.slow
def test_broja_of_three_sources_may_be_undefined() -> None:
    with pytest.raises(ValueError, match="leaves atoms of these three sources undefined"):
        decompose(gate(lambda a, b, c: a & b & c, 3), measure="broja")


@pytest.mark.parametrize("target", [0, 1, 2, -1])
def test_samples_distributions_and_dit_agree(target: int) -> None:
    rows = np.array(list(product((0, 1), (3, 7), (5, 6))) * 10)
    rows[:, 2] = 5 + (rows[:, 0] & (rows[:, 1] == 7))
    joint: dict[tuple[int, ...], float] = {}
    for row in rows.tolist():
        joint[tuple(row)] = joint.get(tuple(row), 0) + 1 / len(rows)
    found = [
        decompose(rows, target),
        decompose(torch.from_numpy(rows), target),
        decompose(joint, target),
        decompose(dit.Distribution(list(joint), list(joint.values())), target),
    ]
    for one in found[1:]:
        assert parts(one) == pytest.approx(parts(found[0]))


def bits(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(2, size=(rows, columns))


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (bits(100, 2), {}, "needs 2 or 3 sources, got 1"),
        (bits(200, 5), {}, "needs 2 or 3 sources, got 4"),
        (np.random.default_rng(0).normal(size=(50, 3)), {}, "variable 0 is continuous .* bin it first"),
        (np.array([[0, 1, np.nan], [1, 1, 0]]), {}, "variable 2 contains NaN or infinity"),
        (np.array([["a", "b", "c"]]), {}, "variable 0 must contain integers"),
        (bits(100, 3), {"target": 3}, "target=3 is out of range: the variables are 0 to 2"),
        (bits(100, 3), {"measure": "brojo"}, "measure must be .* got 'brojo'"),
        (np.arange(90).reshape(30, 3), {}, "30 x 30 x 30 symbols make 27000 combinations, but .* only 30 samples"),
        (bits(10, 3)[0], {}, r"got shape \[3\]"),
        ({(0, 0, 0): 0.5, (1, 1, 1): 0.6}, {}, "sum to 1, but they sum to 1.1"),
        ({(0, 0, 0): 0.5, (1, 1): 0.5}, {}, "all of the same length"),
    ],
)
def test_bad_input(samples: Any, options: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        decompose(samples, **options)


def test_a_small_sample_triggers_a_warning() -> None:
    with pytest.warns(SmallSampleWarning, match="12 samples for 2 x 2 x 2 symbols, 8 combinations"):
        decompose(np.array(list(product((0, 1), repeat=3)) + [(0, 0, 0)] * 4))


def test_without_dit_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dit", None)
    with pytest.raises(ImportError, match=r"three sources needs dit: pip install 'torch-goat\[information\]'\."):
        decompose(gate(lambda a, b, c: a ^ b ^ c, 3))


def random_tables(shape: tuple[int, ...], number: int = 3) -> np.ndarray:
    generator = np.random.default_rng(0)
    chance = generator.dirichlet(np.full(np.prod(shape), 0.5))
    return generator.multinomial(400, chance, size=number).reshape(-1, *shape)


def as_dit(table: np.ndarray) -> dit.Distribution:
    cells = [tuple(cell) for cell in np.argwhere(table > 0).tolist()]
    return dit.Distribution(cells, [float(table[cell] / table.sum()) for cell in cells])


def test_mutual_information_is_that_of_scikit_learn_and_corrected_as_by_miller_and_madow() -> None:
    for table in random_tables((4, 3)):
        plain, corrected = (mutual_information(table.astype(float), corrected) for corrected in (False, True))
        assert float(plain) == pytest.approx(mutual_info_score(None, None, contingency=table) / np.log(2))
        occupied = [(table.sum(axis=1) > 0).sum(), (table.sum(axis=0) > 0).sum(), (table > 0).sum()]
        expected = (occupied[0] + occupied[1] - occupied[2] - 1) / (2 * table.sum() * np.log(2))
        assert float(corrected - plain) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("measure", "dits", "shape", "tolerance"),
    [
        (williams_beer, PID_WB, (2, 2, 2), 1e-9),
        (williams_beer, PID_WB, (3, 2, 4), 1e-9),
        (broja, lambda joint: PID_BROJA(joint, method="admui"), (2, 3, 2), 1e-3),
    ],
)
def test_measures_are_dits(measure: Any, dits: Any, shape: tuple[int, ...], tolerance: float) -> None:
    counts = random_tables(shape)
    found = measure(counts.astype(float)).parts()
    for number, table in enumerate(counts):
        expected = dits(as_dit(table))
        for name, atom in {"redundancy": ((0,), (1,)), "synergy": ((0, 1),), "unique 1": ((0,),)}.items():
            assert found[name][number] == pytest.approx(expected.get_pi(atom), abs=tolerance)


def test_a_value_that_never_occurs_changes_nothing() -> None:
    table = random_tables((2, 3, 2), 1)[0].astype(float)
    padded = np.zeros((3, 4, 4))
    padded[:2, :3, :2] = table
    for corrected in (False, True):
        for first, second in zip(williams_beer(table, corrected), williams_beer(padded, corrected), strict=True):
            assert float(first) == pytest.approx(float(second))
