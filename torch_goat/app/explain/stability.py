"""Agreement of a learned order with those of earlier epochs and other seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.app.explain.removals import forward
from torch_goat.experiments import Run, RunError
from torch_goat.experiments.models import Network
from torch_goat.experiments.training.options import without_repetition
from torch_goat.nn import Ordering

SAMPLE: Final = 1000  # nodes that are compared in a large graph
MATCHED: Final = 100  # of these, nodes by which the heads of two seeds are matched, and which are then not compared
MAX_SEEDS: Final = 9  # other seeds that are compared
LITTLE: Final = 0.5  # an agreement of the best heads below which an order means little


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau between the order of the trained network and that of an epoch or of another seed.

    Heads of different seeds do not correspond to each other: they are matched so that all pairs together agree most. If
    the RNN reads both directions, a reversed order is the same order there.
    """

    number: int  # the epoch or the seed
    layer: int  # from 1
    tau: Tensor  # [n, K], from -1 to 1; NaN for fewer than two neighbours

    @property
    def here(self) -> float:
        """The mean over heads at the first node."""
        return float(self.tau[0].mean())

    @property
    def mean(self) -> float:
        """The mean over nodes and heads."""
        return float(self.tau.nanmean())

    @property
    def best(self) -> float:
        """The mean over nodes of the head that agrees most."""
        return float(self.tau.nanmean(dim=0).max())


@dataclass(frozen=True)
class Stability:
    """The agreement of a learned order with recorded epochs, and with runs that differ only in their seed."""

    nodes: Tensor  # [n], the compared ones
    epochs: tuple[Agreement, ...] = ()
    seeds: tuple[Agreement, ...] = ()
    given: bool = False  # whether the order is given instead, so that there is nothing to compare
    reversible: bool = True  # whether a reversed order of another seed counts as the same

    @property
    def meaning(self) -> str:
        """What the agreement with other seeds says of the order, in a sentence; empty without other seeds."""
        known = [one for one in self.seeds if math.isfinite(one.best)]
        if not known:
            return ""
        best, mean = fmean(one.best for one in known), fmean(one.mean for one in known)
        taus = f"mean tau {best:.2f}, and {mean:.2f} over all heads; unrelated orders have about 0"
        if best < LITTLE:
            return f"Even the best heads of other seeds agree little ({taus}): the order means little."
        return f"The best heads of other seeds agree with this order ({taus})."

    def to_dict(self) -> dict[str, Any]:
        """The agreement at the first node and the mean over all compared nodes, for every epoch and seed."""
        return {
            key: [
                {"layer": one.layer, key[:-1]: one.number, "tau": _finite(one.here), "mean_tau": _finite(one.mean)}
                for one in found
            ]
            for key, found in (("epochs", self.epochs), ("seeds", self.seeds))
        }


def stability(
    run: Run,
    data: Data,
    orderings: Sequence[Ordering],
    others: Iterable[Run] | None = None,
    nodes: Tensor | None = None,
    data_dir: str | Path | None = None,
) -> Stability:
    """Compares the orders of a trained network with those of its recorded epochs and of other seeds.

    Args:
        run: The run.
        data: The graph that it was trained on.
        orderings: The orders of the trained network, one per GOAT layer.
        others: Runs to search for other seeds; by default those in the same parent folder.
        nodes: The nodes to compare; by default a sample of all nodes.
        data_dir: The folder of the datasets.
    """
    nodes = sample(data.num_nodes) if nodes is None else nodes
    if not orderings or run.experiment.model.given_order:
        return Stability(nodes, given=bool(orderings))
    epochs = []
    for epoch, layer, recorded in run.orderings:
        tau = _agreement(orderings[layer - 1], recorded, nodes) if layer <= len(orderings) else None
        if tau is not None:
            epochs.append(Agreement(epoch, layer, tau))
    if others is None:
        others = map(Run, sorted(run.folder.resolve().parent.iterdir()))
    seeds, reversible = [], run.experiment.model.bidirectional
    for other, network in _other_seeds(run, others):
        same_split = other.experiment.index == run.experiment.index
        other_data = data if same_split else other.graph(data_dir).data
        if not torch.equal(other_data.edge_index, data.edge_index):  # another graph, not another split of this one
            continue
        _, found = forward(network, other_data)
        for layer, (ours, theirs) in enumerate(zip(orderings, found, strict=True), start=1):
            tau = _matched(ours, theirs, nodes, reversible)
            if tau is not None:
                seeds.append(Agreement(other.experiment.seed, layer, tau))
    return Stability(nodes, tuple(epochs), tuple(seeds), reversible=reversible)


def sample(num_nodes: int) -> Tensor:
    """All nodes, or a fixed random sample of a large graph."""
    if num_nodes <= SAMPLE:
        return torch.arange(num_nodes)
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(0))[:SAMPLE].sort().values


def _agreement(first: Ordering, second: Ordering, nodes: Tensor) -> Tensor | None:
    """Kendall's tau of two orderings at some nodes ``[n, K]``; ``None`` if they have different neighbours."""
    if not torch.equal(first.ptr, second.ptr):
        return None
    try:
        return _at(first, nodes).kendall_tau(_at(second, nodes))
    except ValueError:
        return None


def _at(ordering: Ordering, nodes: Tensor) -> Ordering:
    length = ordering.ptr.diff()[nodes]
    ptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    place = torch.arange(int(ptr[-1])) + torch.repeat_interleave(ordering.ptr[nodes] - ptr[:-1], length)
    values = (ordering.token, ordering.source, ordering.score, ordering.weight)
    return Ordering.unchecked(ptr, *(value[:, place] for value in values))


def _matched(first: Ordering, second: Ordering, nodes: Tensor, reversible: bool) -> Tensor | None:
    """:func:`_agreement` of the heads of ``first`` with those of ``second`` that they are matched with.

    If orders are ``reversible``, those of two heads that mostly disagree are compared in reverse.
    """
    heads = torch.arange(first.heads)
    mean = torch.zeros(first.heads, first.heads, dtype=torch.double)  # of pairs of heads
    for shift in range(first.heads):
        other = (heads + shift) % first.heads
        tau = _agreement(first, _heads(second, other), nodes[1::2][:MATCHED])
        if tau is None:
            return None
        mean[heads, other] = tau.nanmean(dim=0).nan_to_num()
    match = torch.from_numpy(linear_sum_assignment(mean.abs() if reversible else mean, maximize=True)[1])
    tau = _agreement(first, _heads(second, match), nodes)
    if tau is None:
        return None
    tau[1::2][:MATCHED] = torch.nan  # where any two orders would seem to agree
    return torch.where(reversible & (mean[heads, match] < 0), -tau, tau)


def _heads(ordering: Ordering, heads: Tensor) -> Ordering:
    values = (ordering.token, ordering.source, ordering.score, ordering.weight)
    return Ordering.unchecked(ordering.ptr, *(value[heads] for value in values))


def _other_seeds(run: Run, others: Iterable[Run]) -> list[tuple[Run, Network]]:
    found: list[tuple[Run, Network]] = []
    wanted = without_repetition(run.experiment)
    for other in others:
        if len(found) == MAX_SEEDS:
            break
        try:
            if other.experiment.seed != run.experiment.seed and without_repetition(other.experiment) == wanted:
                found.append((other, other.network))
        except (OSError, ValueError, RunError):  # a damaged run is of no concern here
            continue
    return sorted(found, key=lambda one: one[0].experiment.seed)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
