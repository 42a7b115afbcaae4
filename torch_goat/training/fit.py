from collections.abc import Callable

from torch.nn import Module
from torch_geometric import seed_everything
from torch_geometric.data import Data

from torch_goat.training.fabric import make_fabric
from torch_goat.training.interrupt import Interrupted, Interrupts
from torch_goat.training.loop import Epoch, Loop
from torch_goat.training.options import TrainingOptions
from torch_goat.training.result import PeakMemory, Result
from torch_goat.training.task import Task

Observer = Callable[[Epoch], None]


def fit(
    model: Module,
    data: Data,
    options: TrainingOptions | None = None,
    *,
    seed: int | None = None,
    device: str = "auto",
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
        seed: Seeds every random generator before training, if given.
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        observer: Called after each epoch.
    """
    options = options or TrainingOptions()
    for key, off in (("record_orderings", ()), ("fixed_ordering", -1), ("orderings_files", ())):
        if getattr(options, key) != off:
            raise ValueError(f"{key} = {getattr(options, key)} needs a run folder; use torch_goat.training.train.")
    fabric = make_fabric(device, options.precision)
    if seed is not None:
        seed_everything(seed)
    memory = PeakMemory(fabric.device)
    loop = Loop(model, Task(data, fabric.device, class_weights=options.class_weights), options, fabric)
    with Interrupts() as interrupts:
        for epoch in loop:
            if observer is not None:
                with interrupts.noted():
                    observer(epoch)
            if interrupts.wanted:
                break
    result = Result.of(loop, memory.read())
    if interrupts.wanted:
        raise Interrupted(
            f"stopped after epoch {len(loop.epochs)} of {options.epochs}; the model has the weights of epoch "
            f"{result.best_epoch}."
        )
    return result
