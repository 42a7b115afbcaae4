import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, RNNBase
from torch.nn.parameter import UninitializedParameter

from torch_goat.experiments.training.batches import FullBatch, MiniBatches, Step
from torch_goat.experiments.training.epoch_graph import EpochGraph
from torch_goat.experiments.training.interrupt import Interrupts
from torch_goat.experiments.training.options import TrainingOptions
from torch_goat.experiments.training.processes import any_of
from torch_goat.experiments.training.result import Epoch, Stopped
from torch_goat.experiments.training.task import Task
from torch_goat.nn import GOATConv
from torch_goat.nn.ordering import Ordering
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops.checks import check_finite

_NOISE_STEPS = 20


Observer = Callable[[Epoch], None]


class Loop:
    """Training, one epoch at a time: ``for epoch in loop``.

    Between two epochs the whole state is in the network, the optimiser, the random generators, :attr:`epochs`,
    :attr:`best` and :attr:`average`, and can be saved and restored.

    The network is moved to Fabric's device, and its GOAT layers replay the orderings, if given. Seed and workers are
    those of mini-batches. With ``record``, for a network whose Python code does the same in every epoch, full batches
    on one GPU are captured as a CUDA graph.
    """

    def __init__(
        self,
        network: Module,
        task: Task,
        options: TrainingOptions,
        fabric: Any,
        orderings: Sequence[Ordering] | None = None,
        *,
        seed: int = 0,
        workers: int = 0,
        record: bool = False,
    ) -> None:
        self.network, self.task, self.options, self.fabric = network, task, options, fabric
        if getattr(network, "edge_dim", 0) and task.data.edge_attr is None:
            raise ValueError(
                f"the network reads {network.edge_dim} features of each edge, but data.edge_attr is None; add them or "
                "build the network with edge_dim=0."
            )
        if options.batch_size:
            self._batches: FullBatch | MiniBatches = MiniBatches(task, network, options, fabric, seed, workers)
        else:
            self._batches = FullBatch(task, network, fabric, orderings)
        if any(isinstance(parameter, UninitializedParameter) for parameter in network.parameters()):
            with torch.no_grad():  # lazy layers take their widths from a first call
                network.to(fabric.device).eval()(*self._batches.example())
        # One kernel for all weights; with scaled gradients, Fabric can clip only before a step of several kernels.
        fused = options.precision != "16-mixed"
        # The gradient scale of 16-mixed changes between epochs, which a CUDA graph cannot follow.
        capture = record and fused and not options.batch_size and fabric.world_size == 1
        capture = capture and fabric.device.type == "cuda"
        groups, rate = _parameter_groups(network, options), options.learning_rate
        if capture and (options.warmup or options.schedule != "constant"):
            rate = torch.tensor(rate, device=fabric.device)  # type: ignore[assignment]  # which a CUDA graph reads there
        optimizer = torch.optim.Adam(groups, rate, weight_decay=options.weight_decay, fused=fused)
        self.model, self.optimizer = fabric.setup(network, optimizer)
        self._graph = EpochGraph(self.optimizer, fabric.device) if capture else None
        self._noise_step = 0
        self.epochs: list[Epoch] = []
        self.best_epoch = 0
        self.best: dict[str, Tensor] = {}  # the weights after the best epoch
        self.average: dict[str, Tensor] = {}  # the moving average of the weights, if evaluation uses it
        if options.averaging:
            for name, value in network.state_dict().items():
                if value.is_floating_point():  # counters of normalisations are not averaged
                    # In at least 32 bits: small steps would be lost to the rounding of 16 bits.
                    self.average[name] = value.to(torch.promote_types(value.dtype, torch.float), copy=True)

    def __iter__(self) -> Iterator[Epoch]:
        while not self.stopped:
            with _changed(list(self._during_epoch())):
                epoch = self._epoch()
            yield epoch

    def run(self, observer: Observer | None, interrupts: Interrupts) -> Iterator[tuple[Epoch, bool]]:
        """Yields each epoch after the observer has seen it, and whether Ctrl-C in any process stops training there."""
        for epoch in self:
            if observer is not None:
                try:
                    observer(epoch)
                except KeyboardInterrupt:
                    interrupts.wanted = True
            yield epoch, any_of(self.fabric, interrupts.wanted)

    @property
    def stopped(self) -> Stopped:
        """Why training is over, or ``""`` while it is not."""
        done, options = len(self.epochs), self.options
        if done and not math.isfinite(self.epochs[-1].train_loss):
            return "diverged"
        if done >= options.epochs:
            return "epochs"
        return "patience" if options.patience and done - self.best_epoch >= options.patience else ""

    def predict(self) -> Tensor:
        """Loads the best weights so far into the network and returns their output ``[N, C]``."""
        if not self.best:
            self._check_inputs()
            raise ValueError(
                f"the validation loss was not finite in any of {len(self.epochs)} epochs; lower the learning rate "
                f"({self.options.learning_rate}) or set clip_norm."
            )
        self.network.load_state_dict(self.best)
        return self._evaluate()

    def orderings(self) -> list[Ordering]:
        """The orderings of the network's GOAT layers with its current weights."""
        self.network.eval()
        return self._batches.orderings(self.model)

    def _epoch(self) -> Epoch:
        start = time.perf_counter()
        self._set_learning_rate(len(self.epochs) + 1)
        try:
            measured = self._measured() if self._graph is None else self._graph(self._measured)
        except ValueError:
            self._check_inputs()  # names the node in the graph, where a layer names the row of a batch
            raise
        values = measured.tolist()  # the only place that waits for the device
        values.append(time.perf_counter() - start)
        epoch = Epoch(len(self.epochs) + 1, self.options.epochs, self.task.metric, *values)
        self.epochs.append(epoch)
        if self._better(epoch):
            with self._averaged():
                self._keep(epoch.number)
        return epoch

    def _check_inputs(self) -> None:
        """Looks for features that are not finite; those in files may never have been read before."""
        check_finite("data.x", self.task.data.x)
        if getattr(self.network, "edge_dim", 0):
            check_finite("data.edge_attr", self.task.data.edge_attr)

    def _measured(self) -> Tensor:
        """The training loss of an epoch, and the validation loss and metrics after it ``[5]``."""
        loss = self._steps()
        with self._averaged():
            out = self._evaluate()
            if not self.epochs and not self.task.is_finite(out):
                self._check_inputs()
            measured = self.task.measure(out)
        return torch.cat([loss.double().view(1), measured])

    def _steps(self) -> Tensor:
        """Takes all steps of an epoch and returns their mean loss."""
        self.network.train()  # not Fabric's wrapper, which takes longer
        losses = [self._step(step) * step.share for step in self._batches.steps(len(self.epochs) + 1)]
        loss = self._shared(losses[0] if len(losses) == 1 else torch.stack(losses).sum())
        if self.average:  # after all processes agree on the weights
            weights = self.network.state_dict()
            new = [weights[name].to(value.dtype) for name, value in self.average.items()]
            torch._foreach_lerp_(list(self.average.values()), new, 1 - self.options.averaging)
        return loss

    def _step(self, step: Step) -> Tensor:
        self.optimizer.zero_grad()
        loss = step.loss(self.model)
        self.fabric.backward(loss)
        if norm := self.options.clip_norm:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=norm, error_if_nonfinite=False)
        self.optimizer.step()
        return loss.detach()

    def _set_learning_rate(self, number: int) -> None:
        """Sets the learning rate of an epoch, counted from 1."""
        rate, options = self.options.learning_rate, self.options
        if options.warmup:
            rate *= min(1.0, number / options.warmup)
        if options.schedule == "cosine":
            rate *= (1 + math.cos(math.pi * (number - 1) / options.epochs)) / 2
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _during_epoch(self) -> Iterator[tuple[Any, str, Any]]:
        """Attributes of layers that have another value in the next epoch: the layer, their name and the value.

        A CUDA graph holds the noise as a constant: it falls in steps, so that few graphs are captured.
        """
        done, end = len(self.epochs), self.options.order_noise_end
        step = min(_NOISE_STEPS, 10 * _NOISE_STEPS * done // (7 * self.options.epochs))
        if end is not None and step != self._noise_step and self._graph is not None:
            self._graph.forget()
        self._noise_step = step
        for layer in self.network.modules():
            if done and hasattr(layer, "checks"):  # the data is the same in every epoch: it is checked in the first
                yield layer, "checks", False
            if end is not None and isinstance(layer, GOATConv) and layer.order_noise:
                yield layer, "order_noise", layer.order_noise + (end - layer.order_noise) * step / _NOISE_STEPS

    def _shared(self, loss: Tensor) -> Tensor:
        """Averages the loss and the running statistics of normalisations over all processes."""
        if self.fabric.world_size == 1:
            return loss
        for buffer in self.network.buffers():
            if buffer.is_floating_point():
                buffer.copy_(self.fabric.all_reduce(buffer.clone(), reduce_op="mean"))
        return self.fabric.all_reduce(loss, reduce_op="mean")

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Gives the network the averaged weights, if there are any, and then its own again."""
        if not self.average:
            yield
            return
        weights = self.network.state_dict()
        own = {name: weights[name].clone() for name in self.average}
        with torch.no_grad():
            for name, value in self.average.items():
                weights[name].copy_(value)
            yield
            for name, value in own.items():
                weights[name].copy_(value)

    def _evaluate(self) -> Tensor:
        """The output for all splits ``[N, C]``."""
        self.network.eval()
        return self._batches.evaluate(self.model)

    def _better(self, epoch: Epoch) -> bool:
        if not math.isfinite(epoch.val_loss):  # the accuracy of scores that are NaN means nothing
            return False
        return self.best_epoch == 0 or self._value(epoch) < self._value(self.epochs[self.best_epoch - 1])

    def _value(self, epoch: Epoch) -> float:
        """The value that decides which epoch is best, the lower the better."""
        if self.options.stop_on == "loss":
            return epoch.val_loss
        return -epoch.val_metric if self.task.classification else epoch.val_metric

    def _keep(self, number: int) -> None:
        self.best_epoch = number
        weights = self.network.state_dict()
        if self.best:
            torch._foreach_copy_(list(self.best.values()), [weights[name] for name in self.best])
        else:
            self.best = {name: value.clone() for name, value in weights.items()}


def _parameter_groups(network: Module, options: TrainingOptions) -> list[dict[str, Any]]:
    """The weights, those of RNNs in a group without weight decay if they are exempt from it."""
    recurrent: list[Tensor] = []
    if not options.decay_recurrent:
        rnns = [module for module in network.modules() if isinstance(module, RaggedRNN | RNNBase)]
        recurrent = [parameter for rnn in rnns for parameter in rnn.parameters()]
    exempt = {id(parameter) for parameter in recurrent}
    rest = [parameter for parameter in network.parameters() if id(parameter) not in exempt]
    return [{"params": rest}, *([{"params": recurrent, "weight_decay": 0.0}] if recurrent else [])]


@contextmanager
def _changed(attributes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Gives attributes of modules other values, and then their own again."""
    before = [getattr(module, name) for module, name, _ in attributes]
    for module, name, value in attributes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(attributes, before, strict=True):
            setattr(module, name, value)
