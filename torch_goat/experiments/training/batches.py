"""How an epoch passes through a graph: as one full batch, or in sampled mini-batches with exact evaluation."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from torch_goat.data.loader import CSC, Blocks, NeighborSampler, neighbor_loader
from torch_goat.data.loader.draws import generator_seed
from torch_goat.experiments.models import Network
from torch_goat.experiments.models.inference import Inference
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.models.layers import Sampled
from torch_goat.experiments.training.options import TrainingOptions
from torch_goat.experiments.training.task import Task
from torch_goat.nn.ordering import Ordering
from torch_goat.settings import SettingsError


class Step(NamedTuple):
    """One step of the optimiser."""

    loss: Callable[[Module], Tensor]  # computes the loss of a model, for its backward pass
    share: float  # of the epoch's training nodes


class FullBatch:
    """One step per epoch, on all nodes; GOAT layers replay the orderings, if given."""

    def __init__(self, task: Task, network: Module, fabric: Any, orderings: Sequence[Ordering] | None) -> None:
        self._task = task
        self._replay: dict[str, Any] = {} if orderings is None else {"orderings": orderings}
        self._replay |= {"order_by": task.order_by.to(task.x.device)} if _ordered(network) else {}
        self._inputs = _whole_graph(task, network, _converter(fabric))  # converted once, not in every epoch

    def steps(self, epoch: int) -> Iterator[Step]:
        """The steps of an epoch, counted from 1."""
        yield Step(lambda model: self._task.loss(model(*self._inputs, **self._replay)), 1.0)

    def evaluate(self, model: Module) -> Tensor:
        """The output of a model in evaluation mode, at least for the nodes of all splits ``[N, C]``."""
        with torch.no_grad():
            return model(*self._inputs, **self._replay)

    def orderings(self, model: Module) -> list[Ordering]:
        """The orderings of all nodes in the model's GOAT layers."""
        with torch.no_grad():
            return list(model(*self._inputs, return_orderings=True, **self._replay)[1])

    def example(self) -> tuple[Tensor, ...]:
        """An input of the model."""
        return self._inputs


class SeedBatches:
    """The training nodes of each step of an epoch: all of them once, shuffled, in steps of nearly equal size.

    A step has at most ``batch_size`` nodes, over all ``world`` processes.
    """

    def __init__(self, count: int, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        if batch_size > count:
            raise SettingsError(
                f"batch_size = {batch_size} is more than the {count} training nodes of the graph; choose a smaller "
                "one, or 0 for full batches."
            )
        self._count, self._seed, self._rank, self._world = count, seed, rank, world
        self._steps = math.ceil(count / batch_size)
        if count // self._steps < world:
            raise SettingsError(
                f"{world} processes are too many for {count} training nodes in {self._steps} steps of at most "
                f"{batch_size}: some would have no node; start fewer or choose a larger batch_size."
            )

    def of(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """For each step, the positions of its nodes among the training nodes, and those of this process's share."""
        generator = torch.Generator().manual_seed(number_for(self._seed, epoch))
        for step in torch.randperm(self._count, generator=generator).tensor_split(self._steps):
            yield step, step.tensor_split(self._world)[self._rank]


class MiniBatches:
    """Mini-batches of sampled neighbourhoods in training, and exact inference layer by layer in evaluation.

    An epoch depends only on the seed, its number and the weights before it, so that a run resumed between two epochs
    continues exactly. The methods are those of :class:`FullBatch`. A network that is not a :class:`Network` is
    evaluated on the whole graph. The workers are threads that prepare batches in advance; without any, each batch is
    prepared when it is needed.
    """

    def __init__(
        self, task: Task, network: Module, options: TrainingOptions, fabric: Any, seed: int, workers: int
    ) -> None:
        self._task, self._network, self._fabric, self._seed = task, network, fabric, seed
        self._convert = _converter(fabric)
        nodes = task.train_nodes
        self._batches = SeedBatches(nodes.numel(), options.batch_size, seed, fabric.global_rank, fabric.world_size)
        layers = len(network.layers) if isinstance(network, Network) else 0
        fanout = options.fanout or (-1,) * (layers or _hops(network))
        if layers and len(fanout) != layers:
            raise SettingsError(
                f"fanout = {','.join(map(str, fanout))} has {len(fanout)} numbers, but the network has {layers} "
                "layers; give one for each layer."
            )
        self._edge_attr = task.data.edge_attr if getattr(network, "edge_dim", 0) else None
        self._order_by = task.order_by if _ordered(network) else None
        graph = task.data.__copy__()  # without what the network does not read, so that batches do not carry it
        for key in set(graph.keys()) - {"x", "edge_index", "" if self._edge_attr is None else "edge_attr"}:
            del graph[key]
        self._loader = neighbor_loader(graph, fanout, input_nodes=nodes, seed=seed)
        # Threads, since processes would copy batches to each other; PyG's own sampler draws in the order of its calls.
        self._workers = 0 if isinstance(self._loader, NeighborLoader) else workers
        sampler = self._loader.node_sampler
        self._sampler = sampler if isinstance(sampler, NeighborSampler) else None
        self._blocks = Blocks(CSC.of(graph) if self._sampler is None else self._sampler.csc)
        self._inference: Inference | None = None
        kinds = network.options.kinds if isinstance(network, Network) else ()
        self._degree = self._blocks.degree if any(KINDS[kind].whole == "degree" for kind in kinds) else None

    def steps(self, epoch: int) -> Iterator[Step]:
        torch.manual_seed(number_for(self._seed, epoch, self._fabric.global_rank))  # of dropout
        if self._sampler is not None:  # else a batch of one node would have the same neighbours in every epoch
            self._sampler.seed = number_for(self._seed, epoch)
        count, steps = self._task.train_nodes.numel(), self._batches.of(epoch)
        if not self._workers:
            for whole, mine in steps:
                yield Step(partial(self._loss, self._load(mine), whole), whole.numel() / count)
            return
        with ThreadPoolExecutor(self._workers) as pool:
            ahead = deque((whole, pool.submit(self._load, mine)) for whole, mine in islice(steps, 2 * self._workers))
            while ahead:
                whole, batch = ahead.popleft()
                ahead.extend((new, pool.submit(self._load, mine)) for new, mine in islice(steps, 1))
                yield Step(partial(self._loss, batch.result(), whole), whole.numel() / count)

    def evaluate(self, model: Module) -> Tensor:
        if not isinstance(self._network, Network):
            with torch.no_grad():
                return model(*_whole_graph(self._task, self._network, self._convert))
        if self._inference is None:
            part = (self._fabric.global_rank, self._fabric.world_size)
            self._inference = self._infer(self._network, part=part, join=self._sum if part[1] > 1 else None)
        with self._fabric.autocast():
            return self._inference(self._task.nodes).to(torch.get_default_dtype())

    def orderings(self, model: Module) -> list[Ordering]:
        record: list[Ordering] = []
        with self._fabric.autocast():
            self._infer(self._network)(record=record)  # type: ignore[arg-type]
        return record

    def example(self) -> tuple[Tensor, ...]:
        return self._inputs(self._load(torch.zeros(1, dtype=torch.long)).to(self._fabric.device))

    def _infer(self, network: Network, **options: Any) -> Inference:
        return Inference(network, self._blocks, self._task.data.x, self._edge_attr, self._order_by, **options)

    def _sum(self, states: Tensor) -> Tensor:
        return self._fabric.all_reduce(states.to(self._fabric.device), reduce_op="sum").cpu()

    def _load(self, index: Tensor) -> Data:
        """The batch of some training nodes."""
        batch = self._loader(index)
        if self._degree is not None:
            batch.degree = self._degree[batch.n_id]
        if self._order_by is not None:
            batch.order_by = self._order_by[batch.e_id]
        return batch.pin_memory() if self._fabric.device.type == "cuda" else batch

    def _loss(self, batch: Data, whole: Tensor, model: Module) -> Tensor:
        batch = batch.to(self._fabric.device, non_blocking=True)
        sampled = {}
        if isinstance(self._network, Network):
            counts = (list(map(int, values)) for values in (batch.num_sampled_nodes, batch.num_sampled_edges))
            sampled = {"sampled": Sampled(batch.n_id, batch.get("degree"), *counts), "order_by": batch.get("order_by")}
        out = model(*self._inputs(batch), **sampled)[: batch.batch_size]
        # The mean of these losses over all processes is the mean over the nodes of the step.
        return self._task.loss_of(out, batch.input_id, whole) * self._fabric.world_size

    def _inputs(self, batch: Data) -> tuple[Tensor, ...]:
        edges = () if self._edge_attr is None else (self._convert(batch.edge_attr),)
        return (self._convert(batch.x), batch.edge_index, *edges)


def check_batches(task: Task, options: TrainingOptions, world: int) -> None:
    """Raises an error if the training nodes cannot be divided into steps, or the steps among processes."""
    if options.batch_size:
        SeedBatches(task.train_nodes.numel(), options.batch_size, 0, world=world)
    elif world > 1:
        raise SettingsError(
            f"full batches are trained by one process, but there are {world}; set batch_size (--batch-size 1024), or "
            "start without torchrun."
        )


def number_for(seed: int, *parts: int) -> int:
    """A separate seed for each kind of random draw."""
    return generator_seed(seed, np.array(parts, np.int64))


def _ordered(network: Module) -> bool:
    """Whether a network reads neighbours in a given order."""
    return isinstance(network, Network) and network.options.given_order


def _converter(fabric: Any) -> Callable[[Any], Tensor]:
    """A function that converts features to the floating-point type of training."""
    dtype = fabric.strategy.precision.convert_input(torch.zeros(1)).dtype
    return lambda value: value.to(dtype)


def _whole_graph(task: Task, network: Module, convert: Callable[[Any], Tensor]) -> tuple[Tensor, ...]:
    """The network's input on the whole graph, with edge features if its ``edge_dim`` says that it reads them."""
    edges = (convert(task.edge_attr),) if getattr(network, "edge_dim", 0) else ()
    return (convert(task.x), task.edge_index, *edges)


def _hops(network: Module) -> int:
    """The number of hops that a network reads, from its ``num_layers`` as in PyG's networks."""
    hops = getattr(network, "num_layers", 0)
    if not isinstance(hops, int) or hops < 1:
        raise SettingsError(
            f"{type(network).__name__} has no num_layers, so the number of hops it reads is unknown; set fanout, for "
            "example fanout = [-1, -1] for all neighbours over two hops."
        )
    return hops
