from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import Tensor

from torch_goat.app.explain.explanation import Effect, Explanation, Interaction, Prediction, Reading, in_units, truths
from torch_goat.app.explain.removals import Graph, Removal, neighbors, outputs_without
from torch_goat.app.explain.steadiness import sample, siblings, stability
from torch_goat.experiments import NamedGraph, Run, RunError
from torch_goat.experiments.models import Network
from torch_goat.nn import Ordering

STRONGEST: Final = 20  # neighbours whose interactions are looked at


def explain(
    run: Run, node: str, *, data_dir: str | Path | None = None, others: Iterable[Path] | None = None
) -> Explanation:
    """Explains what a trained network says of a node.

    Every neighbour is left out in turn, its edges to the node being absent from every layer, and so are the pairs among
    the 20 whose absence changes most. See :func:`~torch_goat.app.explain.outputs_without` for what exactly is left out.

    Args:
        run: The run.
        node: The node's name.
        data_dir: The folder of the datasets.
        others: Run folders among which those of other seeds are looked for; the ones beside the run if ``None``.
    """
    check_sorts(run)
    named = run.graph(data_dir)
    number = named.node(node)
    graph = Graph.of(named.data)
    out, orderings = graph.run_with_orderings(run.network)
    said = _Said.of(out[number], named)
    effects = contributions(run.network, named, out, [number])[number]
    looked_at = torch.cat([torch.tensor([number]), sample(graph.x.size(0))])
    return Explanation(
        node=number,
        graph=named,
        prediction=Prediction(
            value=float(said.chosen if named.classes else said.score),
            probability=float(said.remains(out[number])) if named.classes else float("nan"),
            truth=float(truths(named)[number]),
        ),
        readings=tuple(readings(orderings, number)),
        effects=tuple(effects),
        interactions=tuple(_interactions(run.network, graph, number, effects[:STRONGEST], said)),
        stability=stability(
            run, graph, orderings, siblings(run.folder) if others is None else others, looked_at, data_dir
        ),
    )


def contributions(network: Network, named: NamedGraph, out: Tensor, nodes: Sequence[int]) -> dict[int, list[Effect]]:
    """What every neighbour of some nodes contributes, the strongest first, by node.

    Args:
        network: The network, in evaluation.
        named: The graph.
        out: The network's output on it ``[N, C]``.
        nodes: The nodes.
    """
    graph = Graph.of(named.data)
    around = {node: neighbors(graph, node).tolist() for node in nodes}
    removals = [Removal(node, (source,)) for node, sources in around.items() for source in sources]
    parts = outputs_without(network, graph, removals).split([len(sources) for sources in around.values()])
    found = {}
    for (node, sources), left in zip(around.items(), parts, strict=True):
        said = _Said.of(out[node], named)
        values = zip(sources, said.change(left).tolist(), said.remains(left).tolist(), strict=True)
        found[node] = sorted((Effect(*one) for one in values), key=lambda effect: -abs(effect.contribution))
    return found


def readings(orderings: Sequence[Ordering], node: int) -> list[Reading]:
    """How every head of every GOAT layer reads a node's neighbourhood."""
    return [
        Reading(
            layer,
            head + 1,
            tuple(ordering.neighbors(node, head).tolist()),
            tuple(ordering.weights(node, head).tolist()),
        )
        for layer, ordering in enumerate(orderings, start=1)
        for head in range(ordering.heads)
    ]


def check_sorts(run: Run) -> None:
    """Refuses a run that was trained with orders of somebody else's."""
    options = run.experiment.training
    if options.fixed_ordering >= 0 or options.orderings_files:
        raise RunError(
            f"the run in {run.folder} was trained with orders held fixed, which its network alone does not know; "
            "explain one that sorts by itself."
        )


class _Said(NamedTuple):
    """The output at a node, and what changes of it are measured in."""

    score: Tensor  # []
    chosen: int  # the predicted class, or the column of the target
    named: NamedGraph

    @classmethod
    def of(cls, out: Tensor, named: NamedGraph) -> "_Said":
        """Of an output ``[C]``."""
        chosen = int(out.argmax()) if named.classes else 0
        return cls(_score(out, chosen, named), chosen, named)

    def change(self, left: Tensor) -> Tensor:
        """How much lower outputs ``[R, C]`` are ``[R]``."""
        return self.score - _score(left, self.chosen, self.named)

    def remains(self, left: Tensor) -> Tensor:
        """The probability of the class, or the number, in outputs ``[..., C]``."""
        return left.softmax(dim=-1)[..., self.chosen] if self.named.classes else _score(left, 0, self.named)


def _interactions(
    network: Network, graph: Graph, node: int, strongest: Sequence[Effect], said: _Said
) -> list[Interaction]:
    pairs = list(combinations(strongest, 2))
    left = outputs_without(network, graph, [Removal(node, (a.neighbor, b.neighbor)) for a, b in pairs])
    found = [
        Interaction(a.neighbor, b.neighbor, both - a.contribution - b.contribution)
        for (a, b), both in zip(pairs, said.change(left).tolist(), strict=True)
    ]
    return sorted(found, key=lambda one: -abs(one.value))


def _score(out: Tensor, chosen: int, named: NamedGraph) -> Tensor:
    """The log-odds of a class, which do not saturate, or the number, in outputs ``[..., C]``."""
    out = out.double()
    if not named.classes:
        return in_units(named, out[..., chosen])
    others = torch.arange(out.size(-1)) != chosen
    return out[..., chosen] - out[..., others].logsumexp(dim=-1)
