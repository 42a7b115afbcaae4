import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import sha256
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
    DIGESTS,
    ERROR,
    NAMES,
    ORDERINGS,
    RESULT,
    SCHEMA,
    UNREADABLE,
    WEIGHTS,
    Run,
    RunError,
    dump_digests,
    finished,
    ordering_file,
    usable,
)
from torch_goat.experiments.training.batches import check_batches
from torch_goat.experiments.training.checkpoint import load_checkpoint, pack_checkpoint, pack_weights
from torch_goat.experiments.training.decisions import check_threshold
from torch_goat.experiments.training.features import FittedModel, import_for
from torch_goat.experiments.training.interrupt import Interrupted, noting
from torch_goat.experiments.training.loop import Loop, Observer
from torch_goat.experiments.training.options import Experiment, TrainingOptions
from torch_goat.experiments.training.processes import led, make_fabric, processes
from torch_goat.experiments.training.result import Epoch, PeakMemory, Result
from torch_goat.experiments.training.task import Task
from torch_goat.experiments.training.threads import threads_for
from torch_goat.files import csv_text, digest_of, locked, no_link, remove_parts, replace_file
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
    best weights), ``result.json``, ``digests.json`` (the SHA-256 of the other files) and, while the run is not done,
    ``checkpoint.safetensors``. A run that is killed at any moment and started again gives the same result, on a CPU bit
    for bit. Recorded orderings are written to ``orderings/epoch-100-layer-1.safetensors``, and for tables
    ``schema.json`` describes how columns became features. :class:`Run` reads and verifies all of these.

    Ctrl-C writes a checkpoint at the end of the epoch and raises :class:`Interrupted`.

    With mini-batches, several processes started by ``torchrun`` can share a run: all call this, and the first writes.
    Tables with at most 5,000 edges are trained on one CPU thread.

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
    if experiment.tables is not None and (kept := led(fabric, lambda: _schema_of(folder))) not in (None, schema):
        graph = load_tables(experiment.tables, experiment.index, kept)  # columns as the run began to read them
        data, schema = graph.data, graph.schema
    task = Task(data, fabric.device, class_weights=options.class_weights, metric=experiment.metric)
    check_threshold(options.threshold, task.outputs if task.classification else 0)
    check_batches(task, options, fabric.world_size)
    orderings = _recorded_orderings(experiment)
    if experiment.model.fitted:
        import_for(experiment.model.name)
    seed_everything(experiment.seed)
    network = build_network(experiment, data, task)
    files = RunWriter(folder)
    with ExitStack() as stack:
        if experiment.tables is not None:
            stack.enter_context(threads_for(data.num_edges))
        done = led(fabric, lambda: _claim(stack, experiment, files, schema))
        if done is not None:
            return done
        if experiment.model.fitted:
            fit = partial(FittedModel, network, task, options, fabric, experiment.seed)
            return _fit(fit, fabric, files, observer)
        if options.fixed_ordering >= 0:
            with torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []):
                run = partial(train, graph=graph, device=device, data_dir=data_dir, observer=observer)
                with usable(folder):
                    first = no_link(folder / "ordering-run")
                orderings = _first_orderings(experiment, first, run)
        if orderings is not None:
            orderings = [ordering.to(fabric.device) for ordering in orderings]
        ahead = _workers(fabric) if workers is None else workers
        loop = Loop(network, task, options, fabric, orderings, seed=experiment.seed, workers=ahead, record=True)
        return _train(loop, files, observer)


class RunWriter:
    """Writes the files of a run folder and keeps their digests. Links in the folder are replaced, not followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.digests: dict[str, str] = {}

    def write(self, name: str, content: bytes | str) -> None:
        """Writes a file; the run folder must exist."""
        path, content = self.folder / name, content.encode() if isinstance(content, str) else content
        with usable(self.folder):
            if path.parent != self.folder:
                no_link(path.parent).mkdir(exist_ok=True)
            replace_file(path, content)
        if name != CHECKPOINT:  # which holds its own
            self.digests[name] = sha256(content).hexdigest()

    def finish(self, result: str) -> None:
        """Writes the digests and then the result: where it exists, everything does."""
        with usable(self.folder):
            for path in (self.folder / ORDERINGS).glob("epoch-*-layer-*.safetensors"):
                name = f"{ORDERINGS}/{path.name}"
                if name not in self.digests:  # from an earlier version, whose checkpoints have no digests
                    self.digests[name] = digest_of(path, most=1 << 36)
            for name in self.digests:
                os.stat(self.folder / name)  # an error if the folder was removed or emptied during training
            self.digests[RESULT] = sha256(result.encode()).hexdigest()
            replace_file(self.folder / DIGESTS, dump_digests(self.digests))
            replace_file(self.folder / RESULT, result)


def _schema_of(folder: Path) -> Schema | None:
    """The schema of a run that was stopped after a checkpoint."""
    with suppress(RunError):
        return Run(folder).schema if (folder / CHECKPOINT).exists() else None
    return None


def _claim(stack: ExitStack, experiment: Experiment, files: RunWriter, schema: Schema | None) -> Result | None:
    """Locks the folder until the stack is closed, and returns the result of a process that has been faster.

    Otherwise removes what a failed or killed process left behind and writes the experiment.
    """
    folder = files.folder
    with usable(folder):
        stack.enter_context(locked(folder, wait=False, what="run folder"))
        if (done := finished(experiment, folder)) is not None:
            return done
        (folder / ERROR).unlink(missing_ok=True)
        for place in (folder, no_link(folder / ORDERINGS)):
            remove_parts(place, NAMES)
    if schema is not None:
        files.write(SCHEMA, schema.to_json())
    files.write(CONFIG, settings.dumps(experiment))
    return None


def _fit(fit: Callable[[], FittedModel], fabric: Any, files: RunWriter, observer: Observer | None) -> Result:
    """Fits a model of the features."""
    memory, stopping = PeakMemory(fabric.device), False
    model = fit()
    try:
        if observer is not None:
            observer(model.epochs[0])
    except KeyboardInterrupt:
        stopping = True
    result = Result.of(model, memory.read())
    led(fabric, lambda: _end(model, result, files))
    if stopping:
        raise Interrupted(f"stopped, but the run had already finished ({files.folder}).")
    return result


def _train(loop: Loop, files: RunWriter, observer: Observer | None) -> Result:
    """Trains from the checkpoint, if there is one, to the result."""
    memory, leads, folder = PeakMemory(loop.fabric.device), loop.fabric.global_rank == 0, files.folder
    before = _restore(loop, files)
    if leads and not loop.epochs and 0 in loop.options.record_orderings:
        _record(loop, files)
    saved = time.monotonic()
    with noting() as interrupts:
        for epoch, stopping in loop.run(observer, interrupts):
            if leads and epoch.number in loop.options.record_orderings:
                _record(loop, files)
            if leads and (stopping or time.monotonic() - saved >= CHECKPOINT_SECONDS):
                orderings = {name: digest for name, digest in files.digests.items() if name.startswith(ORDERINGS)}
                files.write(CHECKPOINT, pack_checkpoint(loop, max(before, memory.read()), orderings))
                files.write(CURVES, _curves(loop.epochs))
                saved = time.monotonic()
            if stopping:
                raise Interrupted(
                    f"stopped after epoch {epoch.number} of {epoch.total}; run it again to continue ({folder})."
                )
        result = Result.of(loop, max(before, memory.read()))
        led(loop.fabric, lambda: _end(loop, result, files))
    if interrupts.wanted:
        raise Interrupted(f"stopped, but the run had already finished ({folder}).")
    return result


def _restore(loop: Loop, files: RunWriter) -> int:
    """Resumes from the checkpoint of the first process, if any; returns the peak memory before it was written."""
    content = led(loop.fabric, lambda: Run(files.folder).checkpoint)  # other machines may not see the run folder
    if content is None:
        return 0
    try:
        before, orderings = load_checkpoint(content, loop)
    except (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError)):
        raise  # of the device, not of the file
    except UNREADABLE as error:
        raise RunError(
            f"{files.folder / CHECKPOINT} is not a checkpoint that can be resumed "
            f"({' '.join(str(error).split())[:300].rstrip('.') or type(error).__name__}); delete it to start again."
        ) from error
    files.digests |= orderings
    return before


def _end(loop: Loop | FittedModel, result: Result, files: RunWriter) -> None:
    with usable(files.folder):
        files.write(WEIGHTS, pack_weights(loop.best))
        files.write(CURVES, _curves(loop.epochs))
        files.finish(result.to_json())
        (files.folder / CHECKPOINT).unlink(missing_ok=True)


def _workers(fabric: Any) -> int:
    """The number of threads that prepare mini-batches: a GPU should not wait for them, a CPU shares its cores."""
    cores = (os.cpu_count() or 1) // processes().here
    return max(1, min(4, cores - 1)) if fabric.device.type == "cuda" else int(cores > torch.get_num_threads())


def _curves(epochs: Sequence[Epoch]) -> str:
    """The text of ``metrics.csv``."""
    metrics = [f"{split}_{epochs[0].metric}" for split in ("train", "val", "test")]
    header = ["epoch", "train_loss", "val_loss", *metrics, "seconds"]
    return csv_text([header, *([epoch.number, *epoch[3:]] for epoch in epochs)])


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


def build_network(experiment: Experiment, data: Data, task: Task) -> models.Network:
    widths = data.num_features, task.outputs
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


def _record(loop: Loop, files: RunWriter) -> None:
    for layer, ordering in enumerate(loop.orderings(), start=1):
        files.write(ordering_file(len(loop.epochs), layer), ordering.to_bytes())


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
