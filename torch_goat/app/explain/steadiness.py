"""How much of a learned order other epochs and other seeds share."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from torch_goat.app.explain.removals import Graph
from torch_goat.experiments import Experiment, Run, RunError
from torch_goat.nn import Ordering
from torch_goat.nn.agreement import kendall_tau

SAMPLE: Final = 1000  # nodes that stand for all of a large graph
SEEDS: Final = 9  # the most other runs that are opened


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau between the order of the trained network and another one.

    Args:
        number: The epoch or the seed of the other one.
        layer: The GOAT layer, from 1.
        tau: Per looked-at node and head ``[n, K]``, -1 to 1; NaN where a node has no two neighbours. Of another seed,
            whose heads are others, one column: of the order by the mean coefficient over heads.
    """

    number: int
    layer: int
    tau: Tensor

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
    """How stable the order is.

    Args:
        nodes: The nodes that were looked at ``[n]``.
        epochs: The agreement with every recorded epoch, in their order.
        seeds: The agreement with the runs that differ in their seed.
    """

    nodes: Tensor
    epochs: tuple[Agreement, ...] = ()
    seeds: tuple[Agreement, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Epochs and seeds with the tau at the first node, and the mean over all that were looked at."""
        return {
            key: [
                {"layer": one.layer, key[:-1]: one.number, "tau": _finite(one.here), "mean_tau": _finite(one.mean)}
                for one in found
            ]
            for key, found in (("epochs", self.epochs), ("seeds", self.seeds))
        }


def stability(
    run: Run,
    graph: Graph,
    orderings: Sequence[Ordering],
    others: Iterable[Path],
    nodes: Tensor | None = None,
    data_dir: str | Path | None = None,
) -> Stability:
    """Compares the orders of a trained network with those of its earlier epochs and of other seeds.

    Args:
        run: The run; what it recorded in ``orderings/`` are the epochs.
        graph: The graph that it was trained on.
        orderings: The orders of the trained network, one per GOAT layer.
        others: Run folders among which those of other seeds are looked for, as :func:`siblings` finds them.
        nodes: The nodes to look at; else a sample of all.
        data_dir: The folder of the datasets.
    """
    nodes = sample(graph.x.size(0)) if nodes is None else nodes
    if not orderings:
        return Stability(nodes)
    epochs = []
    for epoch, layer, recorded in run.orderings:
        tau = agreement(orderings[layer - 1], recorded, nodes) if layer <= len(orderings) else None
        if tau is not None:
            epochs.append(Agreement(epoch, layer, tau))
    seeds = []
    for other in _of_other_seeds(run, others):
        theirs_graph = graph if other.experiment.index == run.experiment.index else Graph.of(other.graph(data_dir).data)
        if not torch.equal(theirs_graph.edge_index, graph.edge_index):  # another graph, not another split of this one
            continue
        found = theirs_graph.run_with_orderings(other.network)[1]
        for layer, (ours, theirs) in enumerate(zip(orderings, found, strict=True), start=1):
            tau = agreement(_consensus(ours), _consensus(theirs), nodes)
            if tau is not None:
                seeds.append(Agreement(other.experiment.seed, layer, tau))
    return Stability(nodes, tuple(epochs), tuple(seeds))


def siblings(folder: Path) -> list[Path]:
    """The folders beside a run folder."""
    return sorted(path for path in folder.resolve().parent.iterdir() if path.is_dir())


def sample(num_nodes: int) -> Tensor:
    """All nodes, or some that are drawn once and for all."""
    if num_nodes <= SAMPLE:
        return torch.arange(num_nodes)
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(0))[:SAMPLE].sort().values


def agreement(first: Ordering, second: Ordering, nodes: Tensor) -> Tensor | None:
    """Kendall's tau of two orderings at some nodes ``[n, K]``; ``None`` if they do not list the same neighbours."""
    if first.token.shape != second.token.shape or not torch.equal(first.ptr, second.ptr):
        return None
    length = first.ptr.diff()[nodes]
    ptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    place = torch.arange(int(ptr[-1])) + torch.repeat_interleave(first.ptr[nodes] - ptr[:-1], length)
    tokens = [ordering.token[:, place] for ordering in (first, second)]  # [K, e]
    known, ours, theirs = (tokens[0].sort(dim=-1).values, *tokens)
    if not torch.equal(known, theirs.sort(dim=-1).values):
        return None
    return kendall_tau(torch.searchsorted(known, ours), torch.searchsorted(known, theirs), ptr)


def _consensus(ordering: Ordering) -> Ordering:
    """The order by the mean coefficient over heads, as that of one head; of one head it is its own."""
    if ordering.heads == 1:
        return ordering
    tokens = ordering.token.sort(dim=-1).values
    if not torch.equal(tokens, tokens[:1].expand_as(tokens)):  # every head keeps its own neighbours
        return ordering
    weight = ordering.weight.gather(1, ordering.token.argsort(dim=-1)).mean(dim=0)  # [E], by token
    source = ordering.source.gather(1, ordering.token.argsort(dim=-1))[0]
    target = torch.repeat_interleave(ordering.ptr.diff(), output_size=weight.numel())
    order = weight.argsort(descending=True, stable=True)
    order = order[target[order].argsort(stable=True)]
    found = (tokens[0][order], source[order], weight[order], weight[order])
    return Ordering(ordering.ptr, *(value.view(1, -1) for value in found))


def _of_other_seeds(run: Run, folders: Iterable[Path]) -> list[Run]:
    found: list[Run] = []
    for folder in folders:
        other = Run(folder)
        if len(found) == SEEDS or other.state != "done":
            continue
        try:
            experiment = other.experiment
            same = experiment.seed != run.experiment.seed and settled(experiment) == settled(run.experiment)
            if same and other.network is not None:
                found.append(other)
        except (OSError, ValueError, RunError):  # another's trouble
            continue
    return sorted(found, key=lambda one: one.experiment.seed)


def settled(experiment: Experiment) -> Experiment:
    """All of an experiment but its seed, its split and what it records."""
    return replace(experiment, seed=0, index=0, training=replace(experiment.training, record_orderings=()))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
