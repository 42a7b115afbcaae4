import warnings
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.experiments.information.decompose import Measure
from torch_goat.experiments.information.discretize import quantile_bins
from torch_goat.experiments.information.measures import (
    Array,
    Correction,
    Informations,
    broja_informations,
    informations,
)
from torch_goat.experiments.information.samples import SmallSampleWarning, as_array, check_size, count, symbols
from torch_goat.experiments.information.sources import EMPTY, Groups, Pool, assign, source_symbols
from torch_goat.nn.ordering import Ordering
from torch_goat.settings import nearest

REPETITIONS = {"wb": 1000, "broja": 100}  # of permutations and of the bootstrap, unless told otherwise


@dataclass(frozen=True)
class Quantity:
    """A number of bits and how sure it is.

    Args:
        value: The estimate, corrected for bias; little or no information may come out a little below 0.
        low: The lower end of the bootstrap interval.
        high: Its upper end; 0 if that would be below, since no part is.
        p_value: How often the labels, shuffled over the nodes, gave as many bits or more.
    """

    value: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class Estimate:
    """What two groups of neighbours tell of the label, estimated on a graph, in bits.

    Args:
        unique: Of each group.
        redundancy: What both groups tell alike.
        synergy: What only both together tell.
        total: What both together tell in all; the parts sum to it.
        single: What each group tells alone.
        plug_in: The total before the correction.
        measure: ``"wb"`` or ``"broja"``.
        correction: ``"miller-madow"``, ``"shuffle"`` or ``"none"``.
        nodes: How many nodes it was estimated on.
        alphabet: The number of symbols of the two groups and of the label.
        warning: What is to be said against the estimate; empty if nothing is.
    """

    unique: tuple[Quantity, Quantity]
    redundancy: Quantity
    synergy: Quantity
    total: Quantity
    single: tuple[Quantity, Quantity]
    plug_in: float
    measure: Measure
    correction: Correction
    nodes: int
    alphabet: tuple[int, ...]
    warning: str

    @property
    def counted(self) -> float:
        """What is counted by who looks at one group at a time: redundancy twice, synergy not at all."""
        return sum(one.value for one in self.single)


def estimate(
    data: Data,
    groups: Groups | Tensor = "random",
    *,
    bins: int | None = None,
    target_bins: int | None = None,
    values: Tensor | None = None,
    pool: Pool = "mean",
    ordering: Ordering | None = None,
    measure: Measure = "wb",
    correction: Correction | None = None,
    repetitions: int | None = None,
    confidence: float = 0.95,
    nodes: Tensor | None = None,
    seed: int = 0,
) -> Estimate:
    """Estimates how the information of a neighbourhood about the label is made up, on a labelled graph.

    The neighbours of a node are put into two groups, what each group has is pooled and made a symbol, and these two
    symbols are the sources, the node's label the target. Every labelled node that has a neighbour in a group is a
    sample; a group without neighbours is a symbol of its own. What is estimated is thus the information in these
    symbols: a lower bound of what the neighbours themselves have.

    The interval is that of the bootstrap, its spread set around the estimate. The p-value is that of shuffled labels,
    whose hypothesis is that the neighbourhood tells nothing at all; so a small one of the synergy says that there is
    more than nothing would give, not that the other parts could not give it. Both take the nodes for independent
    samples, although neighbourhoods overlap.

    Args:
        data: A graph with ``x``, ``edge_index`` and ``y``: classes, or real numbers; where a label is unknown, -1 or
            NaN.
        groups: ``"random"`` (halves), ``"features"`` (two clusters), ``"order"`` (the first of an ordering against the
            rest), or the group of each edge's source, 0 or 1 or -1 for neither ``[E]``.
        bins: Into how many symbols a group's features are put; ``None`` only if they have few different values.
        target_bins: Into how many quantiles a real label is put.
        values: What to know of a neighbour ``[N]`` or ``[N, F]``, if not ``data.x``.
        pool: What of a group is taken, the ``"mean"`` or the ``"max"``.
        ordering: The ordering of ``groups="order"``, as a GOAT layer returns it.
        measure: ``"wb"`` (Williams and Beer) or ``"broja"``, which takes longer.
        correction: ``"miller-madow"`` (that of ``"wb"`` unless told), ``"shuffle"`` (takes off what shuffled labels
            give; that of ``"broja"``) or ``"none"``.
        repetitions: How many permutations, and how many bootstrap samples; 1000, for ``"broja"`` 100.
        confidence: The confidence of the interval.
        nodes: Which nodes count, as a mask ``[N]``; all that have a label if not given.
        seed: The seed of groups, clusters, permutations and bootstrap.
    """
    correction = _settings(measure, correction, repetitions, confidence, seed)
    if not isinstance(data.get("edge_index"), Tensor):
        raise ValueError("data has no edge_index, so there are no neighbours.")
    known, edge_index = _values(data, values), data.edge_index.cpu()
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < len(known):
        raise ValueError(
            f"edge_index has nodes from {int(edge_index.min())} to {int(edge_index.max())}, but there are features of "
            f"{len(known)} nodes, counted from 0; both must be of one graph."
        )
    target, labelled = _target(data, len(known), target_bins, nodes)
    group = assign(edge_index, groups, ordering, known, seed)
    group = torch.where(torch.from_numpy(labelled)[edge_index[1]], group, -1)  # the bins are those of the samples
    first, second = source_symbols(edge_index, group, known, pool, bins, seed)
    sample = labelled & ((first != EMPTY) | (second != EMPTY))
    for which, source in (("first", first), ("second", second)):
        if (source[sample] == EMPTY).all():
            raise ValueError(
                f"nobody is in the {which} group, so there is one source where two are needed; choose other groups."
            )
    variables = [np.unique(one[sample], return_inverse=True)[1].reshape(-1) for one in (first, second, target)]
    table = count(variables)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SmallSampleWarning)
        check_size(int(sample.sum()), table.shape)
    for one in caught:
        warnings.warn(str(one.message), SmallSampleWarning, stacklevel=2)
    repetitions = repetitions or REPETITIONS[measure]
    found = _quantities(variables, table, measure, correction, repetitions, confidence, np.random.default_rng(seed))
    return Estimate(
        unique=(found["unique 1"], found["unique 2"]),
        redundancy=found["redundancy"],
        synergy=found["synergy"],
        total=found["total"],
        single=(found["I(T; S1)"], found["I(T; S2)"]),
        plug_in=float(informations(table).joint),
        measure=measure,
        correction=correction,
        nodes=int(sample.sum()),
        alphabet=table.shape,
        warning=" ".join(str(one.message) for one in caught),
    )


def _settings(
    measure: str, correction: Correction | None, repetitions: int | None, confidence: float, seed: int
) -> Correction:
    if measure not in REPETITIONS:
        raise ValueError(f"measure={measure!r} is unknown{nearest(str(measure), REPETITIONS)}")
    correction = correction or ("miller-madow" if measure == "wb" else "shuffle")
    if correction not in get_args(Correction):
        raise ValueError(f"correction={correction!r} is unknown{nearest(str(correction), get_args(Correction))}")
    if measure == "broja" and correction == "miller-madow":
        raise ValueError("correction='miller-madow' is not defined for measure='broja'; use 'shuffle' or 'none'.")
    if repetitions is not None and repetitions < 10:
        raise ValueError(f"repetitions={repetitions} is too few for an interval and a p-value; use 10 or more.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} is impossible; it must be between 0 and 1.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed} is impossible; it must be from 0 to {2**32 - 1}.")
    return correction


def _target(
    data: Data, num_nodes: int, bins: int | None, nodes: Tensor | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The label of each node as a symbol, and which nodes have one."""
    if not isinstance(data.get("y"), Tensor):
        raise ValueError("data has no labels (data.y), so there is no target.")
    y = as_array(data.y)
    if y.size != num_nodes:
        raise ValueError(f"data.y must have one label for each of the {num_nodes} nodes, got {list(y.shape)}.")
    y = y.reshape(-1)
    known = np.isfinite(y) if y.dtype.kind == "f" else y >= 0
    if nodes is not None:
        if nodes.shape != (num_nodes,) or as_array(nodes).dtype != bool:
            raise ValueError(f"nodes must be a mask of the {num_nodes} nodes, got {nodes.dtype} {list(nodes.shape)}.")
        known = known & as_array(nodes)
    if not known.any():
        raise ValueError("no node has a label: all of data.y is missing (-1 or NaN).")
    if bins is not None and y.dtype.kind != "f":
        raise ValueError(f"target_bins={bins} is for real labels, but data.y has classes; leave it out.")
    target = np.zeros(y.size, dtype=np.int64)
    target[known] = (
        symbols(y[known], "the label data.y", "with target_bins=") if bins is None else quantile_bins(y[known], bins)
    )
    if (target[known] == target[known][0]).all():
        raise ValueError("all nodes have the same label, so there is nothing to tell.")
    return target, known


def _values(data: Data, values: Tensor | None) -> Tensor:
    found = data.get("x") if values is None else values
    if not isinstance(found, Tensor):
        raise ValueError("data has no features (data.x); pass values=, a node's degree for instance.")
    if not bool(found.isfinite().all()):
        raise ValueError("the features have NaN or infinity; replace them first.")
    return found.detach().cpu().float().view(found.size(0), -1)


def _quantities(
    variables: list[NDArray[np.int64]],
    table: Array,
    measure: Measure,
    correction: Correction,
    repetitions: int,
    confidence: float,
    generator: np.random.Generator,
) -> dict[str, Quantity]:
    def measured(tables: Array) -> Informations:
        return informations(tables, correction == "miller-madow") if measure == "wb" else broja_informations(tables)

    estimated = measured(table[None])
    shuffled = measured(_shuffled(variables, table.shape, repetitions, generator))
    total = int(table.sum())
    drawn = generator.multinomial(total, table.ravel() / total, size=repetitions).reshape(-1, *table.shape)
    resampled = measured(drawn.astype(float))
    bias = shuffled if correction == "shuffle" else None
    quantities = {}
    for name, (value,) in estimated.parts().items():
        null, again = shuffled.parts()[name], resampled.parts()[name]
        low, high = np.quantile(again, [(1 - confidence) / 2, (1 + confidence) / 2])
        off = 0.0 if bias is None else float(bias.parts()[name].mean())
        quantities[name] = Quantity(
            value=float(value) - off,
            low=float(value - off - (high - again.mean())),
            high=max(0.0, float(value - off + (again.mean() - low))),
            p_value=float((1 + (null >= value - 1e-12).sum()) / (1 + repetitions)),
        )
    return quantities


def _shuffled(
    variables: list[NDArray[np.int64]], shape: tuple[int, ...], repetitions: int, generator: np.random.Generator
) -> Array:
    """Tables with the labels shuffled over the nodes ``[repetitions, ...]``."""
    first, second, target = variables
    pair = (first * shape[1] + second) * shape[2]
    cells = int(np.prod(shape))
    tables = np.empty((repetitions, cells))
    for number in range(repetitions):
        tables[number] = np.bincount(pair + generator.permutation(target), minlength=cells)
    return tables.reshape(-1, *shape)
