"""The information of two groups of neighbours about the label, estimated on a labelled graph."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import lexsort, scatter

from torch_goat.experiments.information.decompose import Array, Measure, Terms, broja, williams_beer
from torch_goat.experiments.information.discretize import (
    SmallSampleWarning,
    as_array,
    check_size,
    cluster,
    count,
    quantile_bins,
    symbols,
)
from torch_goat.nn import Ordering
from torch_goat.ops.checks import check_choice

Groups = Literal["random", "features", "order"]
Pool = Literal["mean", "max", "sum"]
Correction = Literal["none", "miller-madow", "shuffle"]
REPETITIONS = {"wb": 1000, "broja": 100}  # defaults for permutations and bootstrap samples
MAX_VALUES = 32  # distinct values of a source that need no binning
EMPTY = 0  # the symbol of a group without neighbours


@dataclass(frozen=True)
class Quantity:
    """An estimated number of bits with a bootstrap interval and a permutation p-value."""

    value: float  # bias-corrected, may be slightly negative
    low: float
    high: float  # at least 0
    p_value: float  # share of label permutations that gave at least as many bits


@dataclass(frozen=True)
class Estimate:
    """The estimated information of two groups of neighbours about the label, in bits."""

    unique: tuple[Quantity, Quantity]  # of each group
    redundancy: Quantity  # shared by both groups
    synergy: Quantity  # only given by both groups together
    total: Quantity  # the sum of the parts above
    single: tuple[Quantity, Quantity]  # the information of each group alone
    plug_in: float  # the total before bias correction
    measure: Measure
    correction: Correction
    nodes: int  # in the sample
    alphabet: tuple[int, ...]  # number of symbols of the two groups and of the label
    warning: str  # the text of the SmallSampleWarning, or ""

    @property
    def counted(self) -> float:
        """The sum of the information of each group alone, which counts redundancy twice and synergy not at all."""
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
    """Decomposes the information that the neighbours of a node give about its label, on a labelled graph.

    The neighbours of each node are split into two groups. The pooled features of each group are discretized to a
    symbol; these symbols are the two sources, and the label is the target. Every labelled node with a neighbour in a
    group is a sample; a group without neighbours has its own symbol. The estimate is a lower bound on the information
    in the neighbours themselves, because it only covers these symbols.

    The interval is a bootstrap interval centred on the estimate. The p-value comes from permuted labels, so its null
    hypothesis is that the neighbourhood gives no information at all: a small p-value of the synergy does not mean that
    the other parts could not explain it. Both treat nodes as independent samples, although neighbourhoods overlap.

    Args:
        data: A graph with ``x``, ``edge_index`` and ``y``, which holds classes or real numbers; unknown labels are -1
            or NaN.
        groups: ``"random"`` (random halves), ``"features"`` (two k-means clusters), ``"order"`` (the first neighbour
            of an ordering and the rest), or the group of the source of each edge ``[E]``: 0, 1, or -1 for neither.
        bins: The number of symbols per group; ``None`` requires that there are few distinct pooled values.
        target_bins: The number of quantile bins for real labels.
        values: Neighbour features ``[N]`` or ``[N, F]`` to use instead of ``data.x``.
        pool: How to pool the features of a group, ``"mean"``, ``"max"`` or ``"sum"``.
        ordering: The ordering for ``groups="order"``, as returned by a GOAT layer; its first head is used.
        measure: ``"wb"`` (Williams and Beer) or the slower ``"broja"``.
        correction: The bias correction: ``"miller-madow"`` (default for ``"wb"``), ``"shuffle"`` (subtracts the mean
            over permuted labels; default for ``"broja"``) or ``"none"``.
        repetitions: The number of permutations and of bootstrap samples; 1000 by default, 100 for ``"broja"``.
        confidence: The confidence level of the interval.
        nodes: A mask of the nodes to use ``[N]``; all labelled nodes by default.
        seed: The seed for groups, clusters, permutations and bootstrap.
    """
    correction = _check_options(measure, correction, repetitions, confidence, seed)
    if not isinstance(data.get("edge_index"), Tensor):
        raise ValueError("data has no edge_index, so nodes have no neighbours.")
    features, edge_index = _features(data, values), data.edge_index.cpu()
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < len(features):
        raise ValueError(
            f"edge_index refers to nodes {int(edge_index.min())} to {int(edge_index.max())}, "
            f"but there are features for {len(features)} nodes."
        )
    target, labelled = target_symbols(data, len(features), target_bins, nodes)
    group = neighbor_groups(edge_index, groups, ordering, features, seed)
    group = torch.where(torch.from_numpy(labelled)[edge_index[1]], group, -1)  # so that only samples determine the bins
    first, second = _source_symbols(edge_index, group, features, pool, bins, seed)
    sample = labelled & ((first != EMPTY) | (second != EMPTY))
    for which, source in (("first", first), ("second", second)):
        if (source[sample] == EMPTY).all():
            raise ValueError(f"the {which} group has no members, but two sources are needed; choose other groups.")
    variables = [np.unique(one[sample], return_inverse=True)[1].reshape(-1) for one in (first, second, target)]
    table = count(variables)
    warning = check_size(int(sample.sum()), table.shape)
    if warning:
        warnings.warn(warning, SmallSampleWarning, stacklevel=2)
    repetitions = repetitions or REPETITIONS[measure]
    found = _quantities(variables, table, measure, correction, repetitions, confidence, np.random.default_rng(seed))
    return Estimate(
        unique=(found["unique 1"], found["unique 2"]),
        redundancy=found["redundancy"],
        synergy=found["synergy"],
        total=found["total"],
        single=(found["I(T; S1)"], found["I(T; S2)"]),
        plug_in=float(williams_beer(table).joint),
        measure=measure,
        correction=correction,
        nodes=int(sample.sum()),
        alphabet=table.shape,
        warning=warning,
    )


def _check_options(
    measure: str, correction: Correction | None, repetitions: int | None, confidence: float, seed: int
) -> Correction:
    check_choice("measure", measure, *REPETITIONS)
    correction = correction or ("miller-madow" if measure == "wb" else "shuffle")
    check_choice("correction", correction, *get_args(Correction))
    if measure == "broja" and correction == "miller-madow":
        raise ValueError("correction='miller-madow' is not defined for measure='broja'; use 'shuffle' or 'none'.")
    if repetitions is not None and repetitions < 10:
        raise ValueError(f"repetitions must be at least 10, got {repetitions}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be between 0 and {2**32 - 1}, got {seed}.")
    return correction


def _features(data: Data, values: Tensor | None) -> Tensor:
    found = data.get("x") if values is None else values
    if not isinstance(found, Tensor):
        raise ValueError("data has no features (data.x); pass values=, for example node degrees.")
    if not bool(found.isfinite().all()):
        raise ValueError("the features contain NaN or infinity; replace them first.")
    return found.detach().cpu().float().view(found.size(0), -1)


def target_symbols(
    data: Data, num_nodes: int, bins: int | None, nodes: Tensor | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The label of each node as a symbol, and a mask of the labelled nodes."""
    if not isinstance(data.get("y"), Tensor):
        raise ValueError("data has no labels (data.y).")
    y = as_array(data.y)
    if y.size != num_nodes:
        raise ValueError(f"data.y must have one label for each of the {num_nodes} nodes, got shape {list(y.shape)}.")
    y = y.reshape(-1)
    known = np.isfinite(y) if y.dtype.kind == "f" else y >= 0
    if nodes is not None:
        if nodes.shape != (num_nodes,) or nodes.dtype != torch.bool:
            raise ValueError(f"nodes must be a mask of shape [{num_nodes}], got {nodes.dtype} {list(nodes.shape)}.")
        known = known & as_array(nodes)
    if not known.any():
        raise ValueError("no node has a label: all of data.y is unknown (-1 or NaN).")
    if bins is not None and y.dtype.kind != "f":
        raise ValueError(f"target_bins={bins} needs real labels, but data.y contains classes; omit it.")
    target = np.zeros(y.size, dtype=np.int64)
    target[known] = (
        symbols(y[known], "the label data.y", "with target_bins=") if bins is None else quantile_bins(y[known], bins)
    )
    if (target[known] == target[known][0]).all():
        raise ValueError("all nodes have the same label, so there is no information to decompose.")
    return target, known


def neighbor_groups(
    edge_index: Tensor, groups: Groups | Tensor, ordering: Ordering | None, features: Tensor, seed: int
) -> Tensor:
    """The group of each edge's source among the neighbours of its target ``[E]``: 0, 1, or -1 for neither."""
    source, target = edge_index
    if isinstance(groups, Tensor):
        allowed = torch.isin(groups, torch.tensor([-1, 0, 1], dtype=groups.dtype)).all()
        if groups.shape != source.shape or groups.is_floating_point() or not allowed:
            raise ValueError(
                f"groups must contain 0, 1 or -1 for each of the {source.numel()} edges, got {groups.dtype} of shape "
                f"{list(groups.shape)}."
            )
        return torch.where(source == target, -1, groups)
    check_choice("groups", groups, *get_args(Groups))
    if (groups == "order") != (ordering is not None):
        raise ValueError("groups='order' and ordering= must be passed together.")
    if ordering is not None:
        group = _first_and_rest(ordering, source, target, len(features))
    elif groups == "features":
        group = torch.from_numpy(cluster(features, 2, seed))[source]
    else:
        group = torch.full_like(target, -1)
        group[source != target] = _halves(target[source != target], seed)
    return torch.where(source == target, -1, group)


def _halves(target: Tensor, seed: int) -> Tensor:
    """Splits every neighbourhood into random halves; the first is the smaller one."""
    key = torch.rand(target.numel(), dtype=torch.double, generator=torch.Generator().manual_seed(seed))
    order = lexsort([key, target])  # neighbourhood by neighbourhood
    degree = torch.bincount(target)
    start = (degree.cumsum(0) - degree)[target[order]]
    place = torch.arange(target.numel()) - start
    group = torch.empty_like(target)
    group[order] = (place >= degree[target[order]] // 2).long()
    return group


def _first_and_rest(ordering: Ordering, source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    if ordering.num_nodes != num_nodes:
        raise ValueError(f"the ordering has {ordering.num_nodes} nodes, but the graph has {num_nodes}.")
    node = torch.repeat_interleave(ordering.ptr.diff())  # [E'], with self loops
    neighbor = ordering.source[0]
    other = node != neighbor
    node, neighbor = node[other].cpu(), neighbor[other].cpu()
    ordered = node * num_nodes + neighbor
    pairs = target * num_nodes + source
    if not torch.equal(torch.unique(ordered), torch.unique(pairs[source != target])):
        raise ValueError("the ordering belongs to another graph: its neighbourhoods differ from data.edge_index.")
    leads = torch.ones_like(node, dtype=torch.bool)
    leads[1:] = node[1:] != node[:-1]
    return (~torch.isin(pairs, ordered[leads])).long()


def _source_symbols(
    edge_index: Tensor, group: Tensor, features: Tensor, pool: Pool, bins: int | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pooled features of the two groups of every node as symbols; both groups share the bins."""
    check_choice("pool", pool, *get_args(Pool))
    present, pooled = zip(*(_pooled(edge_index[:, group == number], features, pool) for number in (0, 1)), strict=True)
    rows = np.concatenate([part[mask] for part, mask in zip(pooled, present, strict=True)])
    if len(rows) == 0:
        raise ValueError(
            "no labelled node has a neighbour in either group; choose other groups or a graph with more edges."
        )
    symbol = _discretized(rows, bins, seed) + 1
    first, second = (np.full(len(features), EMPTY) for _ in range(2))
    split = int(present[0].sum())
    first[present[0]], second[present[1]] = symbol[:split], symbol[split:]
    return first, second


def _pooled(edge_index: Tensor, features: Tensor, pool: Pool) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which nodes have a neighbour ``[N]``, and their pooled features ``[N, F]``."""
    source, target = edge_index
    num_nodes = len(features)
    size = torch.bincount(target, minlength=num_nodes)
    if pool != "max":  # without a copy of the features for every edge
        ones = torch.ones(target.numel(), dtype=features.dtype)
        adjacency = torch.sparse_coo_tensor(
            torch.stack([target, source]), ones, (num_nodes, num_nodes), check_invariants=False
        )
        rows = torch.sparse.mm(adjacency, features)
        rows = rows / size.clamp(min=1).view(-1, 1) if pool == "mean" else rows
    else:
        rows = scatter(features[source], target, dim=0, dim_size=num_nodes, reduce="max")
    return as_array(size > 0), as_array(rows)


def _discretized(rows: NDArray[Any], bins: int | None, seed: int) -> NDArray[np.int64]:
    if bins is not None:
        return quantile_bins(rows[:, 0], bins) if rows.shape[1] == 1 else cluster(rows, bins, seed)
    largest = np.abs(rows).max(axis=0)  # rounding errors of means are relative to it
    digits = (rows / np.where(largest > 0, largest, 1)).round(6)
    distinct, symbol = np.unique(digits, axis=0, return_inverse=True)
    if len(distinct) > MAX_VALUES:
        raise ValueError(
            f"the pooled features are continuous ({len(distinct)} distinct values; without bins at most {MAX_VALUES} "
            "are allowed); pass bins=."
        )
    return symbol.reshape(-1)


def _quantities(
    variables: list[NDArray[np.int64]],
    table: Array,
    measure: Measure,
    correction: Correction,
    repetitions: int,
    confidence: float,
    generator: np.random.Generator,
) -> dict[str, Quantity]:
    def terms(tables: Array) -> Terms:
        return williams_beer(tables, correction == "miller-madow") if measure == "wb" else broja(tables)

    estimated = terms(table[None]).parts()
    *sources, target = variables
    shuffled = (generator.permutation(target) for _ in range(repetitions))
    permuted = terms(np.stack([count([*sources, labels]) for labels in shuffled])).parts()
    total = int(table.sum())
    drawn = generator.multinomial(total, table.ravel() / total, size=repetitions).reshape(-1, *table.shape)
    resampled = terms(drawn.astype(float)).parts()
    quantities = {}
    for name, (value,) in estimated.items():
        null, again = permuted[name], resampled[name]
        low, high = np.quantile(again, [(1 - confidence) / 2, (1 + confidence) / 2])
        bias = float(null.mean()) if correction == "shuffle" else 0.0
        quantities[name] = Quantity(
            value=float(value) - bias,
            low=float(value - bias - (high - again.mean())),
            high=max(0.0, float(value - bias + (again.mean() - low))),
            p_value=float((1 + (null >= value - 1e-12).sum()) / (1 + repetitions)),
        )
    return quantities
