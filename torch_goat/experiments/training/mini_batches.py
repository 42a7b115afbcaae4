"""How an epoch goes through a graph in mini-batches: sampled in training, exact in evaluation."""

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

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
from torch_goat.experiments.models.layers import KINDS, Sampled
from torch_goat.experiments.training.options import TrainingOptions
from torch_goat.experiments.training.passes import Step, converter
from torch_goat.experiments.training.task import Task
from torch_goat.nn.ordering import Ordering
from torch_goat.settings import SettingsError


class SeedBatches:
    """Which training nodes each step of an epoch is for: all of them once, shuffled, in steps of nearly equal size.

    It gives this process's share of each step.

    Args:
        count: The number of training nodes.
        batch_size: The most of them in a step, over all processes.
        seed: The seed of the shuffling.
        rank: Which process this is.
        world: How many there are.
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
        """The places among the training nodes of each step's nodes, over all processes, and of this one's share."""
        generator = torch.Generator().manual_seed(number_for(self._seed, epoch))
        for step in torch.randperm(self._count, generator=generator).tensor_split(self._steps):
            yield step, step.tensor_split(self._world)[self._rank]


class MiniBatches:
    """Mini-batches of sampled neighbourhoods in training, and exact inference layer by layer in evaluation.

    An epoch depends on the seed, its number and the weights before it alone, so that a run that was stopped between two
    epochs goes on as if nothing had happened.

    Args:
        task: The graph and its targets.
        network: The network. One that is no :class:`Network` is evaluated on the whole graph.
        options: How to train.
        fabric: Lightning Fabric.
        seed: The seed of every draw.
        workers: How many threads make batches ahead; with 0 they are made when they are needed.
    """

    def __init__(
        self, task: Task, network: Module, options: TrainingOptions, fabric: Any, seed: int, workers: int
    ) -> None:
        self._task, self._network, self._fabric, self._seed = task, network, fabric, seed
        self._convert = converter(fabric)
        self._rank, self._world = fabric.global_rank, fabric.world_size
        nodes = task.train_nodes
        self._batches = SeedBatches(nodes.numel(), options.batch_size, seed, self._rank, self._world)
        layers = len(network.layers) if isinstance(network, Network) else 0
        fanout = options.fanout or (-1,) * (layers or _hops(network))
        check_fanout_length(fanout, layers)
        self._reads_edges = bool(getattr(network, "edge_dim", 0))
        graph = _inputs(task.data, self._reads_edges)
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
        torch.manual_seed(number_for(self._seed, epoch, self._rank))  # of dropout
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
                return model(*self._whole())
        with self._fabric.autocast():
            return self._infer()(self._task.nodes).to(torch.get_default_dtype())

    def orderings(self, model: Module) -> list[Ordering]:
        record: list[Ordering] = []
        alone = Inference(self._network, self._blocks, self._task.data.x, self._edge_attr())  # type: ignore[arg-type]
        with self._fabric.autocast():
            alone(record=record)
        return record

    def example(self) -> tuple[Tensor, ...]:
        return self._inputs_of(self._load(torch.zeros(1, dtype=torch.long)))

    def _load(self, index: Tensor) -> Data:
        """The batch of some training nodes."""
        batch = self._loader(index)
        if self._degree is not None:
            batch.degree = self._degree[batch.n_id]
        return batch.pin_memory() if self._fabric.device.type == "cuda" else batch

    def _loss(self, batch: Data, whole: Tensor, model: Module) -> Tensor:
        batch = batch.to(self._fabric.device, non_blocking=True)
        sampled = {}
        if isinstance(self._network, Network):
            counts = (list(map(int, values)) for values in (batch.num_sampled_nodes, batch.num_sampled_edges))
            sampled = {"sampled": Sampled(batch.n_id, batch.get("degree"), *counts)}
        out = model(*self._inputs_of(batch), **sampled)[: batch.batch_size]
        # The mean over all processes of these losses is the mean over the nodes of the step.
        return self._task.loss_of(out, batch.input_id, whole) * self._world

    def _inputs_of(self, batch: Data) -> tuple[Tensor, ...]:
        batch = batch.to(self._fabric.device, non_blocking=True)
        inputs = (self._convert(batch.x), batch.edge_index)
        if not self._reads_edges:
            return inputs
        return *inputs, self._convert(batch.edge_attr)

    def _edge_attr(self) -> Tensor | None:
        return self._task.data.edge_attr if self._reads_edges else None

    def _infer(self) -> Inference:
        if self._inference is None:
            self._inference = Inference(
                self._network,  # type: ignore[arg-type]
                self._blocks,
                self._task.data.x,
                self._edge_attr(),
                part=(self._rank, self._world),
                join=self._join,
            )
        return self._inference

    def _join(self, states: Tensor) -> Tensor:
        if self._world == 1:
            return states
        return self._fabric.all_reduce(states.to(self._fabric.device), reduce_op="sum").cpu()

    def _whole(self) -> tuple[Tensor, ...]:
        task = self._task
        edges = (self._convert(task.edge_attr),) if self._reads_edges else ()
        return (self._convert(task.x), task.edge_index, *edges)


def check_batches(task: Task, options: TrainingOptions, world: int) -> None:
    """Refuses steps that the training nodes or the processes cannot be divided into."""
    if options.batch_size:
        SeedBatches(task.train_nodes.numel(), options.batch_size, 0, world=world)
    elif world > 1:
        raise SettingsError(
            f"training in full batches is one process's work, but there are {world}; set batch_size (--batch-size "
            "1024), or start it without torchrun."
        )


def check_fanout_length(fanout: tuple[int, ...], layers: int) -> None:
    """Refuses a fan-out that is not one number per layer; a network of unknown layers takes any."""
    if layers and len(fanout) != layers:
        raise SettingsError(
            f"fanout = {','.join(map(str, fanout))} has {len(fanout)} numbers, but the network has {layers} layers; "
            "name one for each."
        )


def _hops(network: Module) -> int:
    """How many hops a network that is none of ours reads, if it says so as PyG's do."""
    hops = getattr(network, "num_layers", 0)
    if not isinstance(hops, int) or hops < 1:
        raise SettingsError(
            f"how many hops {type(network).__name__} reads is not known; name the neighbours of each, as fanout = [-1, "
            "-1] for all of two hops."
        )
    return hops


def number_for(seed: int, *parts: int) -> int:
    """A seed of its own for everything that is drawn."""
    return generator_seed(seed, np.array(parts, np.int64))


def _inputs(data: Data, edges: bool) -> Data:
    """The graph without what a network does not read, so that batches do not carry it."""
    graph = data.__copy__()
    keep = {"x", "edge_index", *(("edge_attr",) if edges else ())}
    for key in list(graph.keys()):
        if key not in keep:
            del graph[key]
    return graph
