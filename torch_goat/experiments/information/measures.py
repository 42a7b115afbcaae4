r"""Information of tables of counts, many tables at a time.

A table ``[..., S1, S2, T]`` counts how often two sources and the target had each combination of symbols; axes before
these are different tables, as bootstrap and permutations make them. Everything is in bits.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Correction = Literal["none", "miller-madow", "shuffle"]
ROUNDS, SWEEPS = 200, 20  # of the search behind BROJA; they leave less than a thousandth of a bit


class Informations(NamedTuple):
    """What two sources say of the target, alone, in common and together; each ``[...]``."""

    first: Array  # I(T; S1)
    second: Array  # I(T; S2)
    joint: Array  # I(T; S1, S2)
    redundancy: Array

    def parts(self) -> dict[str, Array]:
        """The parts of the decomposition with the informations that they follow from, by name."""
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
    r"""What a source says of each value of the target, :math:`I(S; T = t) = D(p(s \mid t) \,\|\, p(s))`.

    Its mean over the target's values is :math:`I(S; T)`. Values that never occur have 0.

    Args:
        counts: Tables ``[..., S, T]``.
        corrected: Whether to take off the bias of the plug-in estimate after Miller and Madow. The correction of
            :math:`H(S \mid t)` is that of its own sample, the one of :math:`H(S)` is shared by all values, so that the
            mean is the usual corrected :math:`I(S; T)`.

    Returns:
        ``[..., T]``.
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
    """I(S; T) of tables ``[..., S, T]``; the arguments are those of :func:`specific_information`."""
    weight = counts.sum(axis=-2) / counts.sum(axis=(-2, -1))[..., None]
    information: Array = (weight * specific_information(counts, corrected)).sum(axis=-1)
    return information


def informations(counts: Array, corrected: bool = False) -> Informations:
    r"""The informations of two sources, their redundancy by Williams and Beer:

    .. math:: I_{\min} = \sum_t p(t) \min_i I(S_i; T = t).

    In the minimum a corrected :math:`I(S_i; T = t)` below 0 counts as 0, the least that it can be.

    Args:
        counts: Tables ``[..., S1, S2, T]``.
        corrected: Whether biases are corrected after Miller and Madow.
    """
    alone = [specific_information(counts.sum(axis=axis), corrected) for axis in (-2, -3)]  # of S1, of S2
    *lead, first, second, target = counts.shape
    joint = mutual_information(counts.reshape(*lead, first * second, target), corrected)
    weight = counts.sum(axis=(-3, -2)) / counts.sum(axis=(-3, -2, -1))[..., None]
    means = [(weight * one).sum(axis=-1) for one in (*alone, np.minimum(*alone).clip(min=0))]
    return Informations(means[0], means[1], joint, means[2])


def broja_informations(counts: Array, rounds: int = ROUNDS) -> Informations:
    r"""The informations of two sources, their redundancy by BROJA.

    Of all distributions in which each source tells of the target what it does here, the one is taken in which both
    together tell least; what each has alone beyond that is unique. It is found by turns: the distribution of the
    sources that fits best, for which the least telling one follows from scaling it to the margins given each value of
    the target.

    Args:
        counts: Tables ``[..., S1, S2, T]``.
        rounds: How often it takes its turns.
    """
    joint = counts / counts.sum(axis=(-3, -2, -1), keepdims=True)
    first, second = joint.sum(axis=-2, keepdims=True), joint.sum(axis=-3, keepdims=True)  # each with the target
    possible = (first > 0) & (second > 0)
    found = first * second / np.maximum(joint.sum(axis=(-3, -2), keepdims=True), 1e-300)
    for _ in range(rounds):
        found = np.where(possible, found.sum(axis=-1, keepdims=True), 0.0)
        for _ in range(SWEEPS):
            found = found * _ratio(first, found.sum(axis=-2, keepdims=True))
            found = found * _ratio(second, found.sum(axis=-3, keepdims=True))
    plain, least = informations(counts), informations(found).joint
    return plain._replace(redundancy=np.maximum(plain.first + plain.second - least, 0.0))


def _ratio(wanted: Array, there: Array) -> Array:
    return np.divide(wanted, there, out=np.zeros_like(there), where=there > 0)
