from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from torch_goat import settings
from torch_goat.cli.console import console, say, table
from torch_goat.cli.options import DataDir, Device, Precision, Set, with_precision
from torch_goat.cli.progress import RunProgress, duration
from torch_goat.datasets import DATASETS
from torch_goat.search import fingerprint, starting_point
from torch_goat.settings import SettingsError, nearest
from torch_goat.training import Epoch, Experiment, Observer, Result, TensorBoard, finished
from torch_goat.training import train as run

Model = Annotated[str | None, typer.Option("--model", help="goat (the default), gat, gcn, sage-lstm, ...")]
Split = Annotated[str | None, typer.Option("--split", help="The split protocol; else the dataset's own.")]
Recipe = Annotated[
    Path | None,
    typer.Option("--recipe", metavar="FILE", help="Settings to begin with, as goat tune or a run writes them."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="The folder; else one in runs/.")]


def train(
    dataset: Annotated[
        str, typer.Argument(metavar="[DATASET]", help="A name that goat datasets lists; else the recipe's.")
    ] = "",
    model: Model = None,
    assignments: Set = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The seed of everything random.")] = None,
    split: Split = None,
    index: Annotated[int | None, typer.Option("--index", help="Which graph or split, from 0.")] = None,
    recipe: Recipe = None,
    out: Out = None,
    device: Device = "auto",
    precision: Precision = None,
    data_dir: DataDir = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard too.")] = False,
) -> None:
    """Train a model on a dataset, in a folder that keeps everything; the same command goes on where it was stopped.

    Example: goat train top2 --model goat --set heads=4 --set rnn=gru --seed 3
    """
    experiment = base_experiment(dataset, model, split, recipe)
    changes = {key: value for key, value in (("seed", seed), ("index", index)) if value is not None}
    experiment = settings.override(experiment, with_precision(assignments, precision) + _texts(changes))
    DATASETS[experiment.dataset].check(experiment.split, experiment.index)
    folder = out or Path("runs") / run_name(experiment)
    name = f"{experiment.dataset} {experiment.model.name}"
    done = finished(experiment, folder) is not None
    with ExitStack() as stack:
        observers: list[Observer] = [] if done else [stack.enter_context(RunProgress(name))]
        if tensorboard and not done:
            observers.append(stack.enter_context(TensorBoard(folder / "tensorboard")))

        def observe(epoch: Epoch) -> None:
            for observer in observers:
                observer(epoch)

        result = run(experiment, folder, device=device, data_dir=data_dir, observer=observe)
    _show(experiment, result, folder, done)


def base_experiment(dataset: str, model: str | None, split: str | None, recipe: Path | None) -> Experiment:
    """The settings before ``--set``: those of a recipe, or those that suit the dataset and the model.

    Args:
        dataset: The dataset's name; of a recipe, it takes the place of the recipe's.
        model: The model's name; a recipe brings its own.
        split: The split protocol, if another.
        recipe: The recipe's file.
    """
    if recipe is not None:
        if model is not None:
            raise SettingsError(f"the recipe {recipe} brings its own model; leave --model {model} out.")
        experiment = settings.read(Experiment, recipe)
        experiment = replace(experiment, dataset=dataset or experiment.dataset)
        if experiment.dataset not in DATASETS:
            raise SettingsError(f"there is no dataset {experiment.dataset!r}{nearest(experiment.dataset, DATASETS)}")
    elif dataset:
        experiment = starting_point(dataset, model or "goat")
    else:
        raise SettingsError("name a dataset (goat datasets lists them) or a --recipe.")
    experiment = replace(experiment, split=split or experiment.split or DATASETS[experiment.dataset].default_split)
    DATASETS[experiment.dataset].check(experiment.split)
    return experiment


def run_name(experiment: Experiment) -> str:
    """A folder's name that stands for an experiment: other settings have another."""
    settled = fingerprint(replace(experiment, seed=0))
    return f"{experiment.dataset}-{experiment.model.name}-{settled}-s{experiment.seed}"


def _texts(changes: dict[str, int]) -> list[str]:
    return [f"{key}={value}" for key, value in changes.items()]


def _show(experiment: Experiment, result: Result, folder: Path, done: bool) -> None:
    metrics = list(next(iter(result.metrics.values())))
    rows = [[split, *(f"{values[metric]:.4f}" for metric in metrics)] for split, values in result.metrics.items()]
    console().print(table(["split", *metrics], rows))
    say(
        f"{experiment.model.name} on {experiment.dataset} ({experiment.split} {experiment.index}), seed "
        f"{experiment.seed}: best in epoch {result.best_epoch} of {result.epochs} (stopped by {result.stopped}), "
        f"{duration(result.seconds)} on {result.device}."
    )
    say(f"{'It was done before; the' if done else 'The'} run is in {folder}")
