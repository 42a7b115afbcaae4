"""How an epoch goes through a graph: the whole of it at once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from torch_goat.experiments.training.task import Task
from torch_goat.nn.ordering import Ordering


class Step(NamedTuple):
    """One step of the optimiser."""

    loss: Callable[[Module], Tensor]  # of the model, for its backward pass
    share: float  # of the epoch's training nodes


class Passes(Protocol):
    """The ways through a graph of one epoch after the other."""

    def steps(self, epoch: int) -> Iterator[Step]:
        """The steps of an epoch, from 1."""

    def evaluate(self, model: Module) -> Tensor:
        """The output of a model that is in evaluation, at least for the nodes of all splits ``[N, C]``."""

    def orderings(self, model: Module) -> list[Ordering]:
        """The orderings by which the model's GOAT layers read the neighbours of all nodes."""

    def example(self) -> tuple[Tensor, ...]:
        """An input of the model."""


def converter(fabric: Any) -> Callable[[Any], Tensor]:
    """What gives features the type that is trained in, whatever type they come in.

    Args:
        fabric: Lightning Fabric.
    """
    kind = fabric.strategy.precision.convert_input(torch.zeros(1)).dtype
    return lambda value: value.to(kind)


class WholeGraph:
    """Full batches: one step an epoch, on all nodes.

    Args:
        task: The graph and its targets.
        network: The network.
        fabric: Lightning Fabric.
        orderings: Orderings that the network's GOAT layers hold to.
    """

    def __init__(self, task: Task, network: Module, fabric: Any, orderings: Sequence[Ordering] | None) -> None:
        self._task, self._replay = task, {} if orderings is None else {"orderings": orderings}
        edges = (task.edge_attr,) if getattr(network, "edge_dim", 0) else ()  # for a network that says it reads them
        convert = converter(fabric)  # once, not in every epoch
        self._inputs = (convert(task.x), task.edge_index, *map(convert, edges))

    def steps(self, epoch: int) -> Iterator[Step]:
        yield Step(lambda model: self._task.loss(model(*self._inputs, **self._replay)), 1.0)

    def evaluate(self, model: Module) -> Tensor:
        with torch.no_grad():
            return model(*self._inputs, **self._replay)

    def orderings(self, model: Module) -> list[Ordering]:
        with torch.no_grad():
            return list(model(*self._inputs, return_orderings=True, **self._replay)[1])

    def example(self) -> tuple[Tensor, ...]:
        return self._inputs
