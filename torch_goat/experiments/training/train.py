import csv
import io
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric import seed_everything
from torch_geometric.data import Data

from torch_goat import settings
from torch_goat.data import datasets
from torch_goat.data.loader import open_graph
from torch_goat.data.tables import Schema, load_tables
from torch_goat.experiments import models
from torch_goat.experiments.run import (
    CHECKPOINT,
    CONFIG,
    CURVES,
    ERROR,
    ORDERINGS,
    RESULT,
    SCHEMA,
    WEIGHTS,
    Run,
    RunError,
    finished,
    ordering_file,
    usable,
)
from torch_goat.experiments.training.batches import check_batches
from torch_goat.experiments.training.checkpoint import load_checkpoint, save_checkpoint, save_weights
from torch_goat.experiments.training.interrupt import Interrupted, noting
from torch_goat.experiments.training.loop import Epoch, Loop, Observer
from torch_goat.experiments.training.options import Experiment, TrainingOptions
from torch_goat.experiments.training.processes import led, make_fabric, processes
from torch_goat.experiments.training.result import PeakMemory, Result
from torch_goat.experiments.training.task import Task
from torch_goat.files import locked, write_atomic
from torch_goat.nn.ordering import Ordering
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import TableGraph

CHECKPOINT_SECONDS = 10.0  # between two checkpoints


def train(
    experiment: Experiment,
    folder: str | Path,
    *,
    graph: "TableGraph | None" = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    workers: int | None = None,
    observer: Observer | None = None,
) -> Result:
    """Runs an experiment in a folder: from the start, from its last checkpoint, or not at all if it is done.

    The folder holds ``config.toml`` (the experiment), ``metrics.csv`` (a line per epoch), ``model.safetensors`` (the
    best weights), ``result.json`` and, while the run is not done, ``checkpoint.safetensors``. A run that is killed at
    any moment and started again gives the same result, on a CPU bit for bit. Recorded orderings are written to
    ``orderings/epoch-100-layer-1.safetensors``, and for tables ``schema.json`` describes how columns became features.
    :class:`Run` reads all of these.

    Ctrl-C writes a checkpoint at the end of the epoch and raises :class:`Interrupted`.

    With mini-batches, several processes started by ``torchrun`` can share a run: all call this, and the first writes.

    Args:
        experiment: The experiment.
        folder: Its folder, created if needed. A folder with another experiment raises :class:`RunError`.
        graph: The graph of ``experiment.tables`` and ``experiment.index``, if it has been loaded already.
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        data_dir: The folder of the datasets.
        workers: The number of threads that prepare mini-batches in advance; ``None`` chooses up to four on a GPU, and
            one on a CPU with a core to spare. It does not change any result.
        observer: Called after each epoch; a KeyboardInterrupt that it raises ends the run as Ctrl-C does.
    """
    folder, options = Path(folder), experiment.training
    fabric = make_fabric(device, options.precision) if processes().world > 1 else None
    done = finished(experiment, folder) if fabric is None else led(fabric, lambda: finished(experiment, folder))
    if done is not None:
        with suppress(OSError):  # left by a process that was killed right after it had written the result
            (folder / CHECKPOINT).unlink()
        return done
    fabric = fabric or make_fabric(device, options.precision)
    data, schema = graph_of(experiment, data_dir) if graph is None else (graph.data, graph.schema)
    task = Task(data, fabric.device, class_weights=options.class_weights)
    check_batches(task, options, fabric.world_size)
    orderings = _recorded_orderings(experiment)
    seed_everything(experiment.seed)
    network = _build(experiment, data, task)
    with ExitStack() as stack:
        done = led(fabric, lambda: _claim(stack, experiment, folder, schema))
        if done is not None:
            return done
        if options.fixed_ordering >= 0:
            with torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []):
                run = partial(train, graph=graph, device=device, data_dir=data_dir, observer=observer)
                orderings = _first_orderings(experiment, folder / "ordering-run", run)
        if orderings is not None:
            orderings = [ordering.to(fabric.device) for ordering in orderings]
        ahead = _workers(fabric) if workers is None else workers
        loop = Loop(network, task, options, fabric, orderings, seed=experiment.seed, workers=ahead, record=True)
        return _train(loop, folder, observer)


def _claim(stack: ExitStack, experiment: Experiment, folder: Path, schema: Schema | None) -> Result | None:
    """Locks the folder until the stack is closed, and removes what a failed or killed process left behind.

    Then writes the experiment, or returns the result of a process that has been faster.
    """
    with usable(folder):
        stack.enter_context(locked(folder, wait=False, what="run folder"))
        for path in [folder / ERROR, *folder.glob(".*.part"), *(folder / ORDERINGS).glob(".*.part")]:
            path.unlink(missing_ok=True)
        if (folder / CONFIG).exists():
            return finished(experiment, folder)
        if schema is not None:
            write_atomic(folder / SCHEMA, schema.to_json())
        write_atomic(folder / CONFIG, settings.dumps(experiment))
    return None


def _train(loop: Loop, folder: Path, observer: Observer | None) -> Result:
    """Trains from the checkpoint, if there is one, to the result."""
    memory, leads = PeakMemory(loop.fabric.device), loop.fabric.global_rank == 0
    before = _restore(loop, folder)
    if leads and not loop.epochs and 0 in loop.options.record_orderings:
        _record(loop, folder)
    saved = time.monotonic()
    with noting() as interrupts:
        for epoch, stopping in loop.run(observer, interrupts):
            if leads and epoch.number in loop.options.record_orderings:
                _record(loop, folder)
            if leads and (stopping or time.monotonic() - saved >= CHECKPOINT_SECONDS):
                with usable(folder):
                    save_checkpoint(folder / CHECKPOINT, loop, max(before, memory.read()))
                    write_atomic(folder / CURVES, _curves(loop.epochs))
                saved = time.monotonic()
            if stopping:
                raise Interrupted(
                    f"stopped after epoch {epoch.number} of {epoch.total}; run it again to continue ({folder})."
                )
        result = Result.of(loop, max(before, memory.read()))
        led(loop.fabric, lambda: _end(loop, result, folder))
    if interrupts.wanted:
        raise Interrupted(f"stopped, but the run had already finished ({folder}).")
    return result


def _restore(loop: Loop, folder: Path) -> int:
    """Resumes from the checkpoint of the first process, if any; returns the peak memory before it was written."""
    path = folder / CHECKPOINT
    if loop.fabric.world_size == 1:
        return load_checkpoint(path, loop) if path.exists() else 0
    content = led(loop.fabric, lambda: path.read_bytes() if path.exists() else b"")
    if not content:
        return 0
    with tempfile.TemporaryDirectory() as place:  # other machines may not see the run folder
        copy = Path(place) / CHECKPOINT
        copy.write_bytes(content)
        return load_checkpoint(copy, loop)


def _end(loop: Loop, result: Result, folder: Path) -> None:
    with usable(folder):
        save_weights(folder / WEIGHTS, loop.best)
        write_atomic(folder / CURVES, _curves(loop.epochs))
        write_atomic(folder / RESULT, result.to_json())  # last: where it exists, everything does
        (folder / CHECKPOINT).unlink(missing_ok=True)


def _workers(fabric: Any) -> int:
    """The number of threads that prepare mini-batches: a GPU should not wait for them, a CPU shares its cores."""
    cores = (os.cpu_count() or 1) // processes().here
    return max(1, min(4, cores - 1)) if fabric.device.type == "cuda" else int(cores > torch.get_num_threads())


def _curves(epochs: Sequence[Epoch]) -> str:
    """The text of ``metrics.csv``."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    metrics = [f"{split}_{epochs[0].metric}" for split in ("train", "val", "test")]
    table.writerow(["epoch", "train_loss", "val_loss", *metrics, "seconds"])
    table.writerows([epoch.number, *epoch[3:]] for epoch in epochs)
    return text.getvalue()


def graph_of(experiment: Experiment, data_dir: str | Path | None) -> tuple[Data, Schema | None]:
    """Loads the graph to train on, and the schema of its features if it is read from tables."""
    if experiment.graph:
        return open_graph(experiment.graph, unchanged=experiment.graph_digest), None
    if experiment.tables is not None:
        loaded = load_tables(experiment.tables, experiment.index)
        return loaded.data, loaded.schema
    place = None if data_dir is None else Path(data_dir)
    return _load(experiment.dataset, experiment.split, experiment.index, place), None


@lru_cache(maxsize=1)  # consecutive runs of a process are often on the same graph
def _load(dataset: str, split: str, index: int, data_dir: Path | None) -> Data:
    return datasets.load(dataset, split=split, index=index, data_dir=data_dir)


def _build(experiment: Experiment, data: Data, task: Task) -> models.Network:
    classes = data.get("num_classes") if task.classification else None
    widths = data.num_features, int(classes or task.channels)
    pna = "pna" in experiment.model.kinds
    degree = models.degree_histogram(task.edge_index, data.num_nodes) if pna else None
    return models.Network(experiment.model, *widths, degree=degree, edge_dim=data.num_edge_features)


def _recorded_orderings(experiment: Experiment) -> list[Ordering] | None:
    """Checks the options about orderings against the model's GOAT layers, and loads ``orderings_files`` if set."""
    options, layers = experiment.training, experiment.model.num_orderings
    for key in ("record_orderings", "fixed_ordering", "orderings_files"):
        if layers == 0 and getattr(options, key) != getattr(TrainingOptions, key):
            raise SettingsError(
                f"{key} = {getattr(options, key)} needs GOAT layers, but the model {experiment.model.name!r} has none; "
                "leave it out."
            )
    if options.orderings_files and len(options.orderings_files) != layers:
        raise SettingsError(
            f"orderings_files has {len(options.orderings_files)} files, but the model has {layers} GOAT layers; give "
            "one for each."
        )
    for path in options.orderings_files:
        if not Path(path).is_file():
            raise SettingsError(f"orderings_files: there is no file {path!r}; record_orderings writes such files.")
    return [Ordering.load(path) for path in options.orderings_files] or None


def _record(loop: Loop, folder: Path) -> None:
    orderings = loop.orderings()
    with usable(folder):
        for layer, ordering in enumerate(orderings, start=1):
            ordering.save(ordering_file(folder, len(loop.epochs), layer))


def _first_orderings(experiment: Experiment, folder: Path, run: Callable[..., Result]) -> list[Ordering]:
    """The orderings after a first training of ``fixed_ordering`` epochs, in a run folder of its own."""
    options, epoch = experiment.training, experiment.training.fixed_ordering
    free = replace(options, epochs=max(epoch, 1), patience=0, fixed_ordering=-1, record_orderings=(epoch,))
    result = run(replace(experiment, training=free), folder)
    if result.epochs < epoch:
        raise RunError(f"the training in {folder} {result.stopped} at epoch {result.epochs}: no ordering to hold.")
    held = [ordering for at, _, ordering in Run(folder).orderings if at == epoch]
    if not held:
        raise RunError(f"the run in {folder} is done, but its orderings are gone; remove it to train it again.")
    return held
