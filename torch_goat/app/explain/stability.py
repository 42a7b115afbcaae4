"""Agreement of a learned order with those of earlier epochs and other seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.app.explain.removals import forward
from torch_goat.experiments import Run, RunError
from torch_goat.experiments.comparison import without_repetition
from torch_goat.experiments.models import Network
from torch_goat.nn import Ordering

SAMPLE: Final = 1000  # nodes that are compared in a large graph
MAX_SEEDS: Final = 9  # other seeds that are compared


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau between the order of the trained network and that of an epoch or of another seed.

    Heads of different seeds do not correspond to each other, so the orders by the mean coefficient over heads are
    compared there, as a single head.
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


@dataclass(frozen=True)
class Stability:
    """The agreement of a learned order with recorded epochs, and with runs that differ only in their seed."""

    nodes: Tensor  # [n], the compared ones
    epochs: tuple[Agreement, ...] = ()
    seeds: tuple[Agreement, ...] = ()
    given: bool = False  # whether the order is given instead, so that there is nothing to compare

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
    seeds = []
    for other, network in _other_seeds(run, others):
        same_split = other.experiment.index == run.experiment.index
        other_data = data if same_split else other.graph(data_dir).data
        if not torch.equal(other_data.edge_index, data.edge_index):  # another graph, not another split of this one
            continue
        _, found = forward(network, other_data)
        for layer, (ours, theirs) in enumerate(zip(orderings, found, strict=True), start=1):
            tau = _agreement(_mean_order(ours), _mean_order(theirs), nodes)
            if tau is not None:
                seeds.append(Agreement(other.experiment.seed, layer, tau))
    return Stability(nodes, tuple(epochs), tuple(seeds))


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


def _mean_order(ordering: Ordering) -> Ordering:
    """The order by the mean coefficient over heads, as an ordering of one head."""
    if ordering.heads == 1:
        return ordering
    tokens, position = ordering.token.sort(dim=-1)
    if not torch.equal(tokens, tokens[:1].expand_as(tokens)):  # every head keeps other neighbours
        return ordering
    weight = ordering.weight.gather(1, position).mean(dim=0)  # [E], by token
    source = ordering.source.gather(1, position)[0]
    target = torch.repeat_interleave(ordering.ptr.diff(), output_size=weight.numel())
    order = weight.argsort(descending=True, stable=True)
    order = order[target[order].argsort(stable=True)]
    found = (tokens[0][order], source[order], weight[order], weight[order])
    return Ordering.unchecked(ordering.ptr, *(value.view(1, -1) for value in found))


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
