import torch
from torch.nn import Module
from torch_geometric import seed_everything
from torch_geometric.data import Data

from torch_goat.experiments.training.batches import check_batches
from torch_goat.experiments.training.decisions import check_threshold
from torch_goat.experiments.training.interrupt import Interrupted, noting
from torch_goat.experiments.training.loop import Loop, Observer
from torch_goat.experiments.training.options import TrainingOptions
from torch_goat.experiments.training.processes import led, make_fabric
from torch_goat.experiments.training.result import PeakMemory, Result
from torch_goat.experiments.training.task import Task


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
    """Trains your network on your graph, in memory; :func:`train` keeps a run in a folder.

    Afterwards the model is on the device, in evaluation mode, with the weights of the best epoch; also after Ctrl-C,
    which raises :class:`Interrupted` at the end of an epoch.

    Args:
        model: Maps ``(x, edge_index)`` to one row per node: class scores or predictions.
        data: A graph with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``. Integer targets
            ``y`` are classes, floating-point targets are for regression.
        options: How to train; options about orderings need a run folder and raise an error here.
        seed: Seeds all random generators before training, if given.
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        workers: The number of threads that prepare mini-batches in advance.
        observer: Called after each epoch.
    """
    options = options or TrainingOptions()
    for key in ("record_orderings", "fixed_ordering", "orderings_files"):
        if getattr(options, key) != getattr(TrainingOptions, key):
            raise ValueError(f"{key} = {getattr(options, key)} needs a run folder; use train.")
    fabric = make_fabric(device, options.precision)
    if seed is not None:
        seed_everything(seed)
    memory = PeakMemory(fabric.device)
    task = Task(data, fabric.device, class_weights=options.class_weights, metric=options.metric)
    check_threshold(options.threshold, task.outputs if task.classification else 0)
    check_batches(task, options, fabric.world_size)
    draws = int(torch.randint(2**31, ())) if seed is None and options.batch_size else seed or 0
    loop = Loop(model, task, options, fabric, seed=led(fabric, lambda: draws), workers=workers)
    stopping = False
    with noting() as interrupts:
        for _, stopping in loop.run(observer, interrupts):
            if stopping:
                break
    result = Result.of(loop, memory.read())
    if stopping:
        raise Interrupted(
            f"stopped after epoch {result.epochs} of {options.epochs}; the model has the weights of epoch "
            f"{result.best_epoch}."
        )
    return result
