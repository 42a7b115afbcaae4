from collections.abc import Callable

import torch
from torch.nn import Module
from torch_geometric import seed_everything
from torch_geometric.data import Data

from torch_goat.experiments.training.fabric import make_fabric
from torch_goat.experiments.training.interrupt import Interrupted, Interrupts
from torch_goat.experiments.training.loop import Epoch, Loop
from torch_goat.experiments.training.options import TrainingOptions
from torch_goat.experiments.training.processes import any_of, led
from torch_goat.experiments.training.result import PeakMemory, Result
from torch_goat.experiments.training.task import Task

Observer = Callable[[Epoch], None]


def fit(
    model: Module,
    data: Data,
    options: TrainingOptions | None = None,
    *,
    seed: int | None = None,
    device: str = "auto",
    workers: int = 0,
    observer: Observer | None = None,
) -> Result:
    """Trains a network of yours on a graph of yours, in memory; :func:`train` keeps a run in a folder.

    Afterwards the model is on the device, in evaluation, with the weights of the best epoch; so it is after Ctrl-C,
    which raises :class:`Interrupted` at the end of an epoch.

    Args:
        model: Maps ``(x, edge_index)`` to one row per node: scores of the classes, or predictions.
        data: A graph with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``. Targets ``y``
            of a whole number type are classes, real numbers are for regression.
        options: How to train; the options on orderings need a run folder and are refused here.
        seed: Seeds every random generator before training, and mini-batches, if given.
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        workers: How many threads make mini-batches ahead.
        observer: Called after each epoch.
    """
    options = options or TrainingOptions()
    for key, off in (("record_orderings", ()), ("fixed_ordering", -1), ("orderings_files", ())):
        if getattr(options, key) != off:
            raise ValueError(f"{key} = {getattr(options, key)} needs a run folder; use train.")
    fabric = make_fabric(device, options.precision)
    if seed is not None:
        seed_everything(seed)
    memory = PeakMemory(fabric.device)
    task = Task(data, fabric.device, class_weights=options.class_weights)
    draws = int(torch.randint(2**31, ())) if seed is None and options.batch_size else seed or 0
    loop = Loop(model, task, options, fabric, seed=led(fabric, lambda: draws), workers=workers)
    stopping = False
    with Interrupts() as interrupts:
        for epoch in loop:
            if observer is not None:
                with interrupts.noted():
                    observer(epoch)
            stopping = any_of(fabric, interrupts.wanted)
            if stopping:
                break
    result = Result.of(loop, memory.read())
    if stopping:
        raise Interrupted(
            f"stopped after epoch {len(loop.epochs)} of {options.epochs}; the model has the weights of epoch "
            f"{result.best_epoch}."
        )
    return result
