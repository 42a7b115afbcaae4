import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torch_goat.experiments.information.measures import broja_informations, mutual_information
from torch_goat.experiments.information.samples import as_array, check_size, count, symbols
from torch_goat.settings import nearest

Measure = Literal["wb", "broja"]
Atom = tuple[tuple[int, ...], ...]
TOLERANCE = 1e-4  # bits, of what the optimisation behind BROJA leaves


@dataclass(frozen=True)
class Decomposition:
    """The information of two or three sources about a target, in bits, part by part.

    Every atom of the lattice belongs to one part, by how many single sources have it: none, and it is synergy, since
    only several sources together give it; one, and it is unique to that source; two or more, and it is redundancy. So
    of the mixed atoms of three sources ``{1}{2:3}``, what source 1 has alone and sources 2 and 3 have together, is
    unique to source 1, and ``{1:2}{1:3}``, ``{1:2}{1:3}{2:3}`` and the like are synergy. Two sources have none.

    Args:
        measure: ``"wb"`` (Williams and Beer) or ``"broja"``.
        atoms: The bits of each atom; ``"{1}{2}"`` is what sources 1 and 2 both have, ``"{1:2}"`` what they have only
            together.
        unique: Of each source.
        redundancy: What several sources have alike.
        synergy: What no single source has.
        total: The joint information of all sources, the sum of all parts.
        single: The information of each source alone.
    """

    measure: Measure
    atoms: dict[str, float]
    unique: tuple[float, ...]
    redundancy: float
    synergy: float
    total: float
    single: tuple[float, ...]

    @property
    def counted(self) -> float:
        """The sum over sources of what each has alone: what is counted by who looks at one neighbour at a time.

        Of two sources it is ``unique + unique + 2 * redundancy``: redundancy counts twice, synergy not at all.
        """
        return sum(self.single)

    def __str__(self) -> str:
        rows = [(f"unique {number}", value) for number, value in enumerate(self.unique, start=1)]
        rows += [("redundancy", self.redundancy), ("synergy", self.synergy), ("total", self.total)]
        rows += [("source by source", self.counted)]
        return "\n".join(f"{name:<16} {value:7.3f} bit" for name, value in rows)


def decompose(samples: Any, target: int = -1, measure: Measure = "wb") -> Decomposition:
    """Partial information decomposition of the information that two or three sources have about a target.

    The measures differ in what they call redundant. Williams and Beer compare how much two sources say about each value
    of the target, not whether they say the same: of two independent bits that are copied into the target they call 1
    bit redundant and 1 bit synergistic. BROJA calls each bit unique there. It is found by an optimisation, takes
    longer, and does not settle all atoms of three sources: where it leaves one open, that is an error.

    Args:
        samples: Samples of discrete variables, a row each ``[n, 3 or 4]``; or their joint distribution, as a ``dict``
            from outcomes to probabilities or as a ``dit.Distribution``.
        target: Which variable is the target; the others are the sources.
        measure: ``"wb"`` (Williams and Beer) or ``"broja"``.
    """
    if measure not in ("wb", "broja"):
        raise ValueError(f"measure={measure!r} is unknown{nearest(str(measure), ('wb', 'broja'))}")
    table = _table(samples, target)
    sources = table.ndim - 1
    if sources not in (2, 3):
        raise ValueError(f"a decomposition needs 2 or 3 sources, got {sources}; join or leave out variables.")
    atoms = _atoms(table, measure)
    total = float(mutual_information(table.reshape(-1, table.shape[-1])))
    left = total - sum(atoms.values())
    if not abs(left) < TOLERANCE:
        raise RuntimeError(f"the atoms of {measure} miss the joint information of {total} bits by {left}.")
    unique, redundancy, synergy = [0.0] * sources, 0.0, 0.0
    for atom, value in atoms.items():
        alone = [group[0] for group in atom if len(group) == 1]
        if not alone:
            synergy += value
        elif len(alone) == 1:
            unique[alone[0]] += value
        else:
            redundancy += value
    others = [tuple(axis for axis in range(sources) if axis != source) for source in range(sources)]
    single = tuple(float(mutual_information(table.sum(axis=axes))) for axes in others)
    named = {_name(atom): value for atom, value in atoms.items()}
    return Decomposition(measure, named, tuple(unique), redundancy, synergy, total, single)


def _table(samples: Any, target: int) -> NDArray[np.float64]:
    """The joint distribution, an axis for each source and the last for the target."""
    if isinstance(samples, Mapping):
        outcomes, weight = [tuple(outcome) for outcome in samples], np.array([*samples.values()], dtype=float)
        if not outcomes or len({len(outcome) for outcome in outcomes}) != 1:
            raise ValueError("a distribution needs outcomes, all of them of the same length.")
        return _weighted(outcomes, weight, target)
    if hasattr(samples, "outcomes") and hasattr(samples, "pmf"):
        copy = samples.copy(base="linear")
        return _weighted([tuple(outcome) for outcome in copy.outcomes], np.asarray(copy.pmf, dtype=float), target)
    array = as_array(samples)
    if array.ndim != 2 or array.shape[0] == 0:
        raise ValueError(f"samples must have a row each and a column for each variable, got shape {list(array.shape)}.")
    target = _place(target, array.shape[1])
    order = [column for column in range(array.shape[1]) if column != target] + [target]
    variables = [symbols(array[:, column], f"variable {column}") for column in order]
    table = count(variables)
    if len(variables) > 2:
        check_size(array.shape[0], table.shape)
    return table / array.shape[0]


def _weighted(outcomes: list[tuple[Any, ...]], weight: NDArray[np.float64], target: int) -> NDArray[np.float64]:
    if not (weight >= 0).all() or not np.isclose(weight.sum(), 1):
        raise ValueError(f"the probabilities must be 0 or more and sum to 1, but they sum to {weight.sum()}.")
    target = _place(target, len(outcomes[0]))
    rows = [(*outcome[:target], *outcome[target + 1 :], outcome[target]) for outcome in outcomes]
    known = [
        {value: number for number, value in enumerate(dict.fromkeys(column))} for column in zip(*rows, strict=True)
    ]
    table = np.zeros([len(values) for values in known])
    for row, chance in zip(rows, weight / weight.sum(), strict=True):
        table[tuple(values[value] for values, value in zip(known, row, strict=True))] += chance
    return table


def _place(target: int, variables: int) -> int:
    if not -variables <= target < variables:
        raise ValueError(f"target={target} is not there: the variables are 0 to {variables - 1}.")
    return target % variables


def _atoms(table: NDArray[np.float64], measure: Measure) -> dict[Atom, float]:
    if measure == "broja" and table.ndim == 3:  # where dit's search may stop some thousandths of a bit too early
        found = broja_informations(table, rounds=1000).parts()
        names: dict[Atom, str] = {
            ((0,), (1,)): "redundancy", ((0,),): "unique 1", ((1,),): "unique 2", ((0, 1),): "synergy"
        }  # fmt: skip
        return _without_dust({atom: float(found[name]) for atom, name in names.items()})
    return _without_dust(_dits_atoms(table, measure))


def _dits_atoms(table: NDArray[np.float64], measure: Measure) -> dict[Atom, float]:
    try:
        import dit
        from dit.pid import PID_BROJA, PID_WB
    except ImportError as error:
        raise ImportError("decompose needs dit: pip install 'torch-goat[information]'.") from error
    cells = itertools.product(*(range(size) for size in table.shape))
    outcomes = {cell: float(table[cell]) for cell in cells if table[cell] > 0}
    joint = dit.Distribution(list(outcomes), list(outcomes.values()))
    # Of dit's ways to BROJA, alternating minimisation is the one that comes nearest to the optimum.
    found = PID_WB(joint) if measure == "wb" else PID_BROJA(joint, method="admui")
    atoms = {atom: float(found.get_pi(atom)) for atom in found._lattice}
    if any(np.isnan(value) for value in atoms.values()):
        raise ValueError(
            "measure='broja' does not settle all atoms of these three sources, since it defines unique information "
            "alone; use measure='wb' or two sources."
        )
    return atoms


def _without_dust(atoms: dict[Atom, float]) -> dict[Atom, float]:
    """Without what the optimisation leaves below zero, and negative zeros."""
    return {atom: 0.0 if -TOLERANCE < value <= 0 else value for atom, value in atoms.items()}


def _name(atom: Atom) -> str:
    return "".join("{" + ":".join(str(source + 1) for source in group) + "}" for group in atom)
