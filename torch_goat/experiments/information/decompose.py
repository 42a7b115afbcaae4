r"""Partial information decomposition of two or three discrete sources and a target, in bits.

Two sources are decomposed for many tables at a time. A table ``[..., S1, S2, T]`` counts how often each combination of
the symbols of two sources and the target occurs; leading axes are separate tables, such as bootstrap samples.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from torch_goat.experiments.information.discretize import SmallSampleWarning, as_array, check_size, count, symbols
from torch_goat.ops.checks import check_choice

Array = NDArray[np.float64]
Measure = Literal["wb", "broja"]
Atom = tuple[tuple[int, ...], ...]
TOLERANCE = 1e-4  # bits, the numerical error of BROJA
ROUNDS, SWEEPS = 200, 20  # iterations of BROJA; the error is then below a thousandth of a bit


@dataclass(frozen=True)
class Decomposition:
    """The information of two or three sources about a target, in bits.

    Every atom of the lattice is assigned to one part by the number of single sources in it: none (synergy, available
    only from several sources together), one (unique to that source), or several (redundancy). For three sources, the
    mixed atom ``{1}{2:3}``, which source 1 has alone and sources 2 and 3 only together, is unique to source 1;
    ``{1:2}{1:3}``, ``{1:2}{1:3}{2:3}`` and similar atoms are synergy. Two sources have no mixed atoms.
    """

    measure: Measure
    atoms: dict[str, float]  # "{1}{2}" is shared by sources 1 and 2, "{1:2}" needs both
    unique: tuple[float, ...]  # of each source
    redundancy: float  # shared by several sources
    synergy: float  # not in any single source
    total: float  # the joint information of all sources, which is the sum of all parts
    single: tuple[float, ...]  # the information of each source alone

    @property
    def counted(self) -> float:
        """The sum of the information of each source alone, as seen by looking at one neighbour at a time.

        For two sources it is ``unique + unique + 2 * redundancy``: it counts redundancy twice and synergy not at all.
        """
        return sum(self.single)

    def __str__(self) -> str:
        rows = [(f"unique {number}", value) for number, value in enumerate(self.unique, start=1)]
        rows += [("redundancy", self.redundancy), ("synergy", self.synergy), ("total", self.total)]
        rows += [("source by source", self.counted)]
        return "\n".join(f"{name:<16} {value:7.3f} bit" for name, value in rows)


def decompose(samples: Any, target: int = -1, measure: Measure = "wb") -> Decomposition:
    """Decomposes the information of two or three sources about a target.

    The measures differ in what they call redundant. Williams and Beer compare how much each source says about each
    value of the target, not whether the sources say the same: if two independent bits are copied into the target, they
    call 1 bit redundant and 1 bit synergistic, while BROJA calls each bit unique. BROJA is an optimization and slower;
    for three sources it may leave atoms undefined, which raises an error.

    Args:
        samples: Samples of discrete variables, one row each ``[n, 3 or 4]``; or their joint distribution, as a ``dict``
            from outcomes to probabilities or as a ``dit.Distribution``.
        target: The index of the target variable; all others are sources.
        measure: ``"wb"`` (Williams and Beer) or ``"broja"``.
    """
    check_choice("measure", measure, *get_args(Measure))
    table = _table(samples, target)
    sources = table.ndim - 1
    if sources not in (2, 3):
        raise ValueError(f"a decomposition needs 2 or 3 sources, got {sources}; join or remove variables.")
    atoms = _two_sources(table, measure) if sources == 2 else _three_sources(table, measure)
    atoms = {atom: 0.0 if -TOLERANCE < value <= 0 else value for atom, value in atoms.items()}
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
    named = {
        "".join("{" + ":".join(str(source + 1) for source in group) + "}" for group in atom): value
        for atom, value in atoms.items()
    }
    return Decomposition(measure, named, tuple(unique), redundancy, synergy, total, single)


class Terms(NamedTuple):
    """The information terms of two sources, from which all parts follow; each ``[...]``."""

    first: Array  # I(T; S1)
    second: Array  # I(T; S2)
    joint: Array  # I(T; S1, S2)
    redundancy: Array

    def parts(self) -> dict[str, Array]:
        """The parts of the decomposition and the information of each source, by name."""
        return {
            "unique 1": self.first - self.redundancy,
            "unique 2": self.second - self.redundancy,
            "redundancy": self.redundancy,
            "synergy": self.joint - self.first - self.second + self.redundancy,
            "total": self.joint,
            "I(T; S1)": self.first,
            "I(T; S2)": self.second,
        }


def specific_information(counts: Array, corrected: bool = False) -> Array:
    r"""The specific information of each target value, :math:`I(S; T = t) = D(p(s \mid t) \,\|\, p(s))` ``[..., T]``.

    Its mean over the target values is :math:`I(S; T)`. Values that never occur have 0. The Miller-Madow correction of
    :math:`H(S \mid t)` uses the samples with that target value, the one of :math:`H(S)` is shared by all values, so
    that the mean is the usual corrected :math:`I(S; T)`.
    """
    total = counts.sum(axis=(-2, -1), keepdims=True)
    per_value = counts.sum(axis=-2, keepdims=True)  # [..., 1, T]
    source = counts.sum(axis=-1, keepdims=True) / total  # [..., S, 1]
    given = counts / np.maximum(per_value, 1e-300)
    ratio = np.divide(given, source, out=np.ones_like(given), where=counts > 0)
    information = (given * np.log2(ratio)).sum(axis=-2)
    if corrected:
        size = per_value[..., 0, :]
        own = ((counts > 0).sum(axis=-2) - 1) / np.maximum(size, 1)
        shared = ((source[..., 0] > 0).sum(axis=-1, keepdims=True) - 1) / total[..., 0]
        information = np.where(size > 0, information - (own - shared) / (2 * np.log(2)), 0.0)
    return information


def mutual_information(counts: Array, corrected: bool = False) -> Array:
    """I(S; T) of tables ``[..., S, T]``, optionally with Miller-Madow bias correction."""
    weight = counts.sum(axis=-2) / counts.sum(axis=(-2, -1))[..., None]
    information: Array = (weight * specific_information(counts, corrected)).sum(axis=-1)
    return information


def williams_beer(counts: Array, corrected: bool = False) -> Terms:
    r"""The terms of tables ``[..., S1, S2, T]`` with the redundancy of Williams and Beer,

    .. math:: I_{\min} = \sum_t p(t) \min_i I(S_i; T = t).

    With ``corrected``, all terms are Miller-Madow corrected, and in the minimum a negative value counts as 0.
    """
    alone = [specific_information(counts.sum(axis=axis), corrected) for axis in (-2, -3)]  # of S1, of S2
    *lead, first, second, target = counts.shape
    joint = mutual_information(counts.reshape(*lead, first * second, target), corrected)
    weight = counts.sum(axis=(-3, -2)) / counts.sum(axis=(-3, -2, -1))[..., None]
    means = [(weight * one).sum(axis=-1) for one in (*alone, np.minimum(*alone).clip(min=0))]
    return Terms(means[0], means[1], joint, means[2])


def broja(counts: Array, rounds: int = ROUNDS) -> Terms:
    """The terms of tables ``[..., S1, S2, T]`` with the redundancy of BROJA.

    Among all distributions with the same p(s1, t) and p(s2, t), BROJA uses the one with the least joint information;
    what a source has beyond the other one there is unique. Alternating minimization finds it: the best p(s1, s2), then
    the closest distribution with the given margins, by iterative proportional fitting.
    """
    joint = counts / counts.sum(axis=(-3, -2, -1), keepdims=True)
    first, second = joint.sum(axis=-2, keepdims=True), joint.sum(axis=-3, keepdims=True)  # p(s1, t), p(s2, t)
    possible = (first > 0) & (second > 0)
    found = first * second / np.maximum(joint.sum(axis=(-3, -2), keepdims=True), 1e-300)
    for _ in range(rounds):
        found = np.where(possible, found.sum(axis=-1, keepdims=True), 0.0)
        for _ in range(SWEEPS):
            found = found * _ratio(first, found.sum(axis=-2, keepdims=True))
            found = found * _ratio(second, found.sum(axis=-3, keepdims=True))
    plain, least = williams_beer(counts), williams_beer(found).joint
    return plain._replace(redundancy=np.maximum(plain.first + plain.second - least, 0.0))


def _ratio(numerator: Array, denominator: Array) -> Array:
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0)


def _table(samples: Any, target: int) -> Array:
    """The joint distribution, with one axis per source and the target last."""
    if isinstance(samples, Mapping):
        return _distribution([*samples], np.array([*samples.values()], dtype=float), target)
    if hasattr(samples, "outcomes") and hasattr(samples, "pmf"):
        linear = samples.copy(base="linear")
        return _distribution([*linear.outcomes], np.asarray(linear.pmf, dtype=float), target)
    array = as_array(samples)
    if array.ndim != 2 or array.shape[0] == 0:
        raise ValueError(f"samples must have one row each and one column per variable, got shape {list(array.shape)}.")
    columns = _target_last(list(range(array.shape[1])), target)
    table = count([symbols(array[:, column], f"variable {column}") for column in columns])
    message = check_size(len(array), table.shape) if len(columns) > 2 else ""
    if message:
        warnings.warn(message, SmallSampleWarning, stacklevel=3)
    return table / len(array)


def _distribution(outcomes: list[Any], probability: Array, target: int) -> Array:
    if not outcomes or len({len(outcome) for outcome in outcomes}) != 1:
        raise ValueError("a distribution must have outcomes, all of the same length.")
    if not (probability >= 0).all() or not np.isclose(probability.sum(), 1):
        raise ValueError(f"probabilities must be nonnegative and sum to 1, but they sum to {probability.sum()}.")
    variables = []
    for column in _target_last(list(zip(*outcomes, strict=True)), target):
        number = {value: place for place, value in enumerate(dict.fromkeys(column))}
        variables.append(np.array([number[value] for value in column]))
    return count(variables, probability / probability.sum())


def _target_last(variables: list[Any], target: int) -> list[Any]:
    if not -len(variables) <= target < len(variables):
        raise ValueError(f"target={target} is out of range: the variables are 0 to {len(variables) - 1}.")
    target %= len(variables)
    return [*variables[:target], *variables[target + 1 :], variables[target]]


def _two_sources(table: Array, measure: Measure) -> dict[Atom, float]:
    parts = (williams_beer(table) if measure == "wb" else broja(table, rounds=1000)).parts()
    atoms: dict[Atom, str] = {
        ((0,), (1,)): "redundancy", ((0,),): "unique 1", ((1,),): "unique 2", ((0, 1),): "synergy"
    }  # fmt: skip
    return {atom: float(parts[name]) for atom, name in atoms.items()}


def _three_sources(table: Array, measure: Measure) -> dict[Atom, float]:
    try:
        import dit
        from dit.pid import PID_BROJA, PID_WB
    except ImportError as error:
        raise ImportError("decomposing three sources needs dit: pip install 'torch-goat[information]'.") from error
    outcomes = {cell: float(table[cell]) for cell in np.ndindex(table.shape) if table[cell] > 0}
    joint = dit.Distribution(list(outcomes), list(outcomes.values()))
    # Alternating minimization is the most accurate of dit's methods for BROJA.
    found = PID_WB(joint) if measure == "wb" else PID_BROJA(joint, method="admui")
    atoms = {atom: float(found.get_pi(atom)) for atom in found._lattice}
    if any(np.isnan(value) for value in atoms.values()):
        raise ValueError(
            "measure='broja' leaves atoms of these three sources undefined, because it defines only unique "
            "information; use measure='wb' or two sources."
        )
    return atoms
