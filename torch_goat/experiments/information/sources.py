"""Two groups of neighbours as two discrete sources."""

from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_goat.experiments.information.discretize import cluster, quantile_bins
from torch_goat.experiments.information.samples import as_array
from torch_goat.nn.ordering import Ordering
from torch_goat.settings import nearest

Groups = Literal["random", "features", "order"]
Pool = Literal["mean", "max"]
MOST = 32  # different values of a source that may go without bins
EMPTY = 0  # the symbol of a group that nobody is in


def assign(edge_index: Tensor, groups: Groups | Tensor, ordering: Ordering | None, values: Tensor, seed: int) -> Tensor:
    """The group of every edge's source in the neighbourhood of its target ``[E]``: 0, 1, or -1 for neither.

    Args:
        edge_index: The edges ``[2, E]``.
        groups: ``"random"`` halves every neighbourhood at random, ``"features"`` separates the neighbours by two
            clusters of all nodes, ``"order"`` sets the first neighbour of an ordering against the rest; or the groups
            themselves.
        ordering: An ordering of this graph's neighbourhoods; its first head is read.
        values: What the clusters are of ``[N, F]``.
        seed: The seed of clusters and halves.
    """
    source, target = edge_index
    if isinstance(groups, Tensor):
        if (
            groups.shape != source.shape
            or groups.is_floating_point()
            or not bool(((groups >= -1) & (groups <= 1)).all())
        ):
            raise ValueError(
                f"groups must have 0, 1 or -1 for each of the {source.numel()} edges, got {groups.dtype} of shape "
                f"{list(groups.shape)}."
            )
        return torch.where(source == target, -1, groups)
    if groups not in get_args(Groups):
        raise ValueError(f"groups={groups!r} is unknown{nearest(str(groups), get_args(Groups))}")
    if (groups == "order") != (ordering is not None):
        raise ValueError("groups='order' and ordering= belong together; pass both or neither.")
    if ordering is not None:
        group = _by_order(ordering, source, target, len(values))
    elif groups == "features":
        group = torch.from_numpy(cluster(values, 2, seed))[source]
    else:
        group = torch.full_like(target, -1)
        group[source != target] = _halves(target[source != target], seed)  # who is no neighbour takes no place
    return torch.where(source == target, -1, group)


def _halves(target: Tensor, seed: int) -> Tensor:
    """A half of every neighbourhood at random, the first half being the smaller one."""
    key = torch.rand(target.numel(), dtype=torch.double, generator=torch.Generator().manual_seed(seed))
    order = torch.argsort(key)
    order = order[torch.argsort(target[order], stable=True)]  # neighbourhood by neighbourhood
    degree = torch.bincount(target)
    start = (degree.cumsum(0) - degree)[target[order]]
    place = torch.arange(target.numel()) - start
    group = torch.empty_like(target)
    group[order] = (place >= degree[target[order]] // 2).long()
    return group


def _by_order(ordering: Ordering, source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    if ordering.num_nodes != num_nodes:
        raise ValueError(f"the ordering is of {ordering.num_nodes} nodes, but the graph has {num_nodes}.")
    node = torch.repeat_interleave(ordering.ptr.diff())  # [E'], with self loops
    neighbor = ordering.source[0]
    other = node != neighbor
    node, neighbor = node[other].cpu(), neighbor[other].cpu()
    ordered = node * num_nodes + neighbor
    pairs = target * num_nodes + source
    wanted = torch.unique(pairs[source != target])
    if not torch.equal(torch.unique(ordered), wanted):
        raise ValueError("the ordering is of another graph: its neighbourhoods are not those of data.edge_index.")
    leads = torch.ones_like(node, dtype=torch.bool)
    leads[1:] = node[1:] != node[:-1]
    return (~torch.isin(pairs, ordered[leads])).long()


def source_symbols(
    edge_index: Tensor, group: Tensor, values: Tensor, pool: Pool, bins: int | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two sources of every node as symbols, 0 for a group without neighbours.

    What the neighbours of a group have is pooled; both groups share the bins.

    Args:
        edge_index: The edges ``[2, E]``.
        group: The group of each edge ``[E]``.
        values: What a neighbour has ``[N, F]``.
        pool: ``"mean"`` or ``"max"``.
        bins: Into how many symbols: quantiles of a single number, clusters of several; ``None`` takes the different
            values as they are and refuses more than a few.
        seed: The seed of the clusters.
    """
    if pool not in get_args(Pool):
        raise ValueError(f"pool={pool!r} is unknown{nearest(str(pool), get_args(Pool))}")
    present, pooled = zip(*(_pooled(edge_index[:, group == number], values, pool) for number in (0, 1)), strict=True)
    rows = np.concatenate([part[mask] for part, mask in zip(pooled, present, strict=True)])
    if len(rows) == 0:
        raise ValueError(
            "no labelled node has a neighbour in a group, so that neighbours tell nothing; choose other groups or a "
            "graph with more edges."
        )
    symbol = _discrete(rows, bins, seed) + 1
    first, second = (np.full(len(values), EMPTY) for _ in range(2))
    split = int(present[0].sum())
    first[present[0]], second[present[1]] = symbol[:split], symbol[split:]
    return first, second


def _pooled(edge_index: Tensor, values: Tensor, pool: Pool) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    source, target = edge_index
    size = torch.bincount(target, minlength=len(values))
    if pool == "mean":
        ones = torch.ones(target.numel(), dtype=values.dtype)
        shape = (len(values), len(values))
        adjacency = torch.sparse_coo_tensor(torch.stack([target, source]), ones, shape, check_invariants=False)
        rows = torch.sparse.mm(adjacency, values) / size.clamp(min=1).view(-1, 1)
    else:
        rows = torch.zeros_like(values)
        index = target.view(-1, 1).expand(-1, values.size(1))
        rows.scatter_reduce_(0, index, values[source], "amax", include_self=False)
    return as_array(size > 0), as_array(rows)


def _discrete(rows: NDArray[Any], bins: int | None, seed: int) -> NDArray[np.int64]:
    if bins is None:
        # Means of the same values may differ in their last digits: those of the largest one.
        largest = np.abs(rows).max(axis=0)
        digits = (rows / np.where(largest > 0, largest, 1)).round(6)
        distinct, symbol = np.unique(digits, axis=0, return_inverse=True)
        if len(distinct) > MOST:
            raise ValueError(
                f"what the groups have is continuous ({len(distinct)} different values, {MOST} at most go without "
                "bins); pass bins=."
            )
        return symbol.reshape(-1)
    return quantile_bins(rows[:, 0], bins) if rows.shape[1] == 1 else cluster(rows, bins, seed)
