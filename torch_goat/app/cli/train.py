from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from torch_goat.app.cli.begin import Model, Out, Recipe, Split, begin
from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.options import (
    BatchSize,
    DataDir,
    Device,
    Edges,
    Fanout,
    Given,
    Precision,
    Set,
    Workers,
    of_yours,
    reads_tables,
    refuse_set,
    with_batches,
    with_precision,
)
from torch_goat.app.cli.own import check_there, compare, is_own, recording, show_next
from torch_goat.app.cli.progress import RunProgress, duration
from torch_goat.data.datasets import DATASETS
from torch_goat.data.loader.folder import is_graph_folder
from torch_goat.experiments import Epoch, Experiment, Observer, Result, TensorBoard, finished
from torch_goat.experiments import train as run
from torch_goat.experiments.search import fingerprint
from torch_goat.experiments.training.metrics import show
from torch_goat.experiments.training.processes import processes
from torch_goat.settings import SettingsError

REPEATS = 3  # runs of each model in a comparison
REASONS = {"epochs": "all that were asked for", "patience": "then no better one came", "diverged": "then it diverged"}


@reads_tables()
def train(
    *,
    given: Given,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="[DATASET|NODES]",
            help="A name that goat datasets lists (else the recipe's), or the nodes of a graph of yours: a CSV or "
            "Parquet file, a GraphML file, or a folder with both tables or with arrays.",
        ),
    ] = "",
    edges: Edges = "",
    model: Model = None,
    assignments: Set = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The seed of everything random.")] = None,
    split: Split = None,
    index: Annotated[int | None, typer.Option("--index", min=0, help="Which graph or split, from 0.")] = None,
    recipe: Recipe = None,
    out: Out = None,
    batch_size: BatchSize = None,
    fanout: Fanout = "",
    device: Device = "auto",
    precision: Precision = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard too.")] = False,
    repeats: Annotated[
        int | None, of_yours("--repeats", f"How many runs of each model are compared; {REPEATS} unless set.", min=1)
    ] = None,
) -> None:
    """Train a model on a dataset or on a graph of yours, in a folder that keeps everything; the same command goes on
    where it was stopped. Without --model, a graph of yours is learned by GOAT, GAT and GraphSAGE side by side.

    Example: goat train top2 --model goat --set heads=4 --set rnn=gru --seed 3;
    goat train nodes.csv edges.csv --target label; goat train physics --batch-size 1024 --fanout 100,15
    """
    changes = {key: value for key, value in (("seed", seed), ("index", index)) if value is not None}
    for key in changes:
        refuse_set(assignments, key, f"--{key}")
    changed = with_batches(with_precision(assignments, precision), batch_size, fanout) + _texts(changes)

    def runner(experiment: Experiment, folder: Path) -> Result:
        return _run(experiment, folder, device, data_dir, workers, tensorboard)[0]

    if repeats is not None:
        _check_repeats(repeats, dataset, edges, model, recipe)
    start = begin(dataset, edges, given, model, split, recipe, index)
    tables, graph = start.experiment.tables, start.graph
    if tables is not None and graph is not None and model is None and recipe is None:
        best, ordered, whole = compare(tables, graph, changed, repeats or REPEATS, out, runner)
        say(f"The best run is in {best}")
        show_next(tables, graph, best, ordered, whole)
        return
    experiment = start.with_options(changed)
    if graph is not None and recipe is None:
        experiment = recording(experiment, graph, changed)
    if experiment.tables is None and not experiment.graph:
        DATASETS[experiment.dataset].check(experiment.split, experiment.index)
    folder = out or Path("runs") / run_name(experiment)
    result, done = _run(experiment, folder, device, data_dir, workers, tensorboard)
    _show(experiment, result, folder, done)
    if tables is not None and graph is not None:
        show_next(tables, graph, folder, folder if "goat" in experiment.model.name else None, None)


def _check_repeats(repeats: int, dataset: str, edges: str, model: str | None, recipe: Path | None) -> None:
    """Refuses repeats where no models are compared."""
    if is_graph_folder(dataset) and not edges:
        raise SettingsError("--repeats is not for a folder of arrays, of which one model is trained; leave it out.")
    if not is_own(dataset, edges):
        check_there(dataset, ["--repeats"])
    if model is not None or recipe is not None:
        beside = "--model" if model is not None else "--recipe"
        raise SettingsError(f"--repeats {repeats} is of a comparison of models; leave it or {beside} out.")


def _run(
    experiment: Experiment, folder: Path, device: str, data_dir: Path | None, workers: int | None, tensorboard: bool
) -> tuple[Result, bool]:
    """Trains with progress; also says whether the run was done before."""
    if workers is not None and not experiment.training.batch_size:
        raise SettingsError(f"--workers {workers} makes mini-batches; set --batch-size too, or leave it out.")
    name = f"{experiment.dataset} {experiment.model.name}"
    done = finished(experiment, folder) is not None
    with ExitStack() as stack:
        observers: list[Observer] = [] if done else [stack.enter_context(RunProgress(name))]
        if tensorboard and not done and processes().leads:
            observers.append(stack.enter_context(TensorBoard(folder / "tensorboard")))

        def observe(epoch: Epoch) -> None:
            for observer in observers:
                observer(epoch)

        return run(experiment, folder, device=device, data_dir=data_dir, workers=workers, observer=observe), done


def run_name(experiment: Experiment) -> str:
    """A folder's name that stands for an experiment: other settings have another."""
    settled = fingerprint(replace(experiment, seed=0))
    return f"{experiment.dataset}-{experiment.model.name}-{settled}-s{experiment.seed}"


def _texts(changes: dict[str, int]) -> list[str]:
    return [f"{key}={value}" for key, value in changes.items()]


def _show(experiment: Experiment, result: Result, folder: Path, done: bool) -> None:
    metrics = list(next(iter(result.metrics.values())))
    rows = [[split, *(show(metric, values[metric]) for metric in metrics)] for split, values in result.metrics.items()]
    console().print(Aligned(["split", *metrics], rows))
    say(
        f"{experiment.model.name} on {experiment.dataset} ({experiment.split} {experiment.index}), seed "
        f"{experiment.seed}: best in epoch {result.best_epoch} of {result.epochs} ({REASONS[result.stopped]}), "
        f"{duration(result.seconds)} on {result.device}."
    )
    say(f"{'It was done before; the' if done else 'The'} run is in {folder}")
