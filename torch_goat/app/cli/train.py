import json
import math
import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torch_goat.app.cli import options
from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.progress import LeaderboardProgress, RunProgress
from torch_goat.app.cli.start import start
from torch_goat.data.datasets import DATASETS
from torch_goat.data.tables import Tables
from torch_goat.experiments import Experiment, MLflow, Result, Run, TensorBoard, WandB, finished
from torch_goat.experiments.comparison import REPEATS, Ranking, RunGroup
from torch_goat.experiments.search import fingerprint
from torch_goat.experiments.training.decisions import ThresholdRule
from torch_goat.experiments.training.loggers import EpochLogger
from torch_goat.experiments.training.metrics import duration, number, show, title
from torch_goat.experiments.training.processes import processes
from torch_goat.files import no_link
from torch_goat.lazy import lazy_module
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    import torch

    from torch_goat.data.tables.graph import TableGraph
    from torch_goat.experiments import Epoch, Observer, own_graph
else:
    own_graph, torch = lazy_module("torch_goat.experiments.own_graph"), lazy_module("torch")

LOGGERS: dict[str, Callable[[Experiment, Path], EpochLogger]] = {
    "tensorboard": lambda _, folder: TensorBoard(no_link(folder / "tensorboard")),
    "mlflow": MLflow,
    "wandb": WandB,
}
_WHAT = {
    "random": "splits, each with its own seed",
    "folds": "runs, each tested on another fold",
    "columns": "runs on the splits of the columns",
}
MINUTES = 10  # of a comparison
REASONS = {"epochs": "the maximum", "patience": "no improvement after it", "diverged": "then it diverged"}


@options.reads_tables
def train(
    *,
    given: options.Given,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="[DATASET|NODES]",
            help="A dataset listed by goat datasets, or the nodes of your own graph: a CSV or Parquet file, a GraphML "
            "file, or a folder with tables or arrays. By default the dataset of --config.",
        ),
    ] = "",
    edges: options.Edges = "",
    model: options.Model = None,
    assignments: options.Set = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    split: options.Split = None,
    index: Annotated[int | None, typer.Option(min=0, help="Which graph or split, from 0.")] = None,
    config: options.Config = None,
    out: options.Out = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="NODES", help="Nodes per mini-batch; 0 for full batches.")
    ] = None,
    fanout: Annotated[
        str,
        typer.Option(
            metavar="100,15",
            help="Neighbours sampled per node of a mini-batch, starting with the last layer; -1 for all.",
        ),
    ] = "",
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="For two classes, when to predict the positive one: from a probability such as 0.3 on, or from a "
            "threshold chosen on the validation nodes for precision=0.9 or cost=5:1 (of a false negative and a false "
            "positive).",
        ),
    ] = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    data_dir: options.DataDir = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that prepare mini-batches; by default chosen for the machine.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard.")] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Also log settings and curves to MLflow.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Also log settings and curves to Weights & Biases.")] = False,
    minutes: Annotated[
        float | None,
        options.graph_option(
            "--minutes", text=f"Time budget of a comparison, {MINUTES} by default; 0: no limit.", min=0.0
        ),
    ] = None,
    metric: Annotated[
        str,
        options.graph_option(
            "--metric",
            text="Metric that decides: accuracy, macro_f1 (all classes count equally) or roc_auc; rmse for numbers.",
        ),
    ] = "",
    repeats: Annotated[
        int | None,
        options.graph_option(
            "--repeats",
            text=f"Runs of each compared model, {REPEATS} by default; with folds or several split columns, runs per "
            "fold or column, 1 by default.",
            min=1,
        ),
    ] = None,
) -> None:
    """Train a model on a dataset or on your own graph. Everything is saved in a run folder; the same command resumes a
    stopped run. On your own graph, GOAT is compared with simpler models within a time budget, unless --model is given.

    Example: goat train top2 --model goat --set heads=4 --set rnn=gru --seed 3;
    goat train nodes.csv edges.csv --target label; goat train physics --batch-size 1024 --fanout 100,15
    """
    try:
        fanouts = [int(part) for part in fanout.split(",")] if fanout else None
    except ValueError:
        raise SettingsError(f"--fanout must be a list of numbers such as 100,15, got {fanout!r}.") from None
    training = {"training.precision": precision, "training.batch_size": batch_size, "training.fanout": fanouts}
    if threshold is not None:
        training["training.threshold"] = json.dumps(_checked(threshold))
    changed = options.with_options(assignments, {**training, "seed": seed, "index": index})
    wanted = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}
    loggers = [name for name, chosen in wanted.items() if chosen]
    runner = partial(_run, loggers=loggers, device=device, data_dir=data_dir, workers=workers)
    for option, value in (("--repeats", repeats), ("--minutes", minutes)):
        if value is not None:
            if model is not None or config is not None:
                other = "--model" if model is not None else "--config"
                raise SettingsError(
                    f"{option} {value:g} applies to a comparison of models; leave out {option} or {other}."
                )
            given.options.append(option)
    if metric:
        if config is not None:
            raise SettingsError(f"--config {config} already sets the metric that decides; leave out --metric {metric}.")
        given.options.append("--metric")
    begun = start(dataset, edges, given, model, split, config, index, metric)
    tables, graph = begun.tables, begun.graph
    if tables is not None and graph is not None and model is None and config is None:
        if tables.edge_features:
            say("Note: only GOAT and GAT use edge features.")
        progress = LeaderboardProgress(runner, own_graph.deciding_metric(graph, metric))
        compared = own_graph.compare_models(
            tables,
            out,
            graph=graph,
            index=index,
            assignments=changed,
            repeats=repeats,
            minutes=MINUTES if minutes is None else minutes,
            metric=metric,
            device=device,
            runner=progress,
            on_trial=progress.trying,
            on_plan=progress.announce,
        )
        _show_ranking(compared.ranking, tables)
        chosen = compared.ranking.recommended
        _show_decision(chosen.best.result, graph.schema.classes, f"the best run of {chosen.name}")
        say(f"The best run of {chosen.name} is in {chosen.best.folder}")
        goat = next((group for group in compared.ranking.groups if group.label == "goat"), None)
        _show_next(tables, graph, chosen.best.folder, None if goat is None else goat.best.folder, compared.folder)
        return
    experiment = begun.override(changed)
    if graph is not None and config is None:
        experiment = own_graph.record_orderings(experiment, graph, changed)
    if experiment.tables is None and not experiment.graph:
        DATASETS[experiment.dataset].check(experiment.split, experiment.index)
    folder = out or Path("runs") / run_name(experiment)
    result, done = runner(experiment, folder, graph=graph if experiment.index == begun.index else None)
    _show_result(experiment, result, folder, done)
    _show_decision(result, ("0", "1") if graph is None else graph.schema.classes)
    if tables is not None and graph is not None:
        _show_next(tables, graph, folder, folder if "goat" in experiment.model.name else None, folder)


def _run(
    experiment: Experiment, folder: Path, *, loggers: Sequence[str], workers: int | None, name: str = "", **more: Any
) -> tuple[Result, bool]:
    """Trains with progress; also returns whether the run was finished before."""
    if workers is not None and not experiment.training.batch_size:
        raise SettingsError(f"--workers {workers} needs mini-batches; set --batch-size too.")
    from torch_goat.experiments import train as train_run

    done = finished(experiment, folder)
    if done is not None:
        return done, True
    with ExitStack() as stack:
        progress = RunProgress(name or f"{experiment.dataset} {experiment.model.name}", summed_up=bool(name))
        observers: list[Observer] = [stack.enter_context(progress)]
        if processes().leads:
            observers += [stack.enter_context(LOGGERS[name](experiment, folder)) for name in loggers]

        def observe(epoch: "Epoch") -> None:
            for observer in observers:
                observer(epoch)

        return train_run(experiment, folder, workers=workers, observer=observe, **more), False


def _checked(threshold: str) -> str:
    try:
        ThresholdRule.parse(threshold)
    except ValueError as error:
        raise SettingsError(f"--{error}") from None
    return threshold


def run_name(experiment: Experiment) -> str:
    """The name of a run folder; different settings have different names."""
    settled = fingerprint(replace(experiment, seed=0))
    return f"{experiment.dataset}-{experiment.model.name}-{settled}-s{experiment.seed}"


def _show_result(experiment: Experiment, result: Result, folder: Path, done: bool) -> None:
    metrics = list(next(iter(result.metrics.values())))
    rows = [[split, *(show(metric, values[metric]) for metric in metrics)] for split, values in result.metrics.items()]
    console().print(Aligned(["split", *metrics], rows))
    say(
        f"{experiment.model.name} on {experiment.dataset} ({experiment.split} {experiment.index}), seed "
        f"{experiment.seed}: best epoch {result.best_epoch} of {result.epochs} ({REASONS[result.stopped]}), "
        f"{duration(result.seconds)} on {result.device}."
    )
    say(f"{'Already finished; the' if done else 'The'} run is in {folder}")


def _show_decision(result: Result, classes: Sequence[str], run: str = "the run") -> None:
    """How good the probabilities of a run are, and its decisions with a threshold; nothing for a regression."""
    split, name = ("test", "test") if "test" in result.metrics else ("val", "validation")
    if result.calibration is not None:
        before, after = (f"{100 * result.calibration[split][f'error_{when}']:.1f} %" for when in ("before", "after"))
        nodes, temperature = f"{result.nodes.get('val', 'the')} validation nodes", result.decision.temperature
        how, errors = f"not rescaled: with {nodes}, there is no clear sign that they are wrong", before
        if temperature != 1:
            wrong = "certain" if temperature > 1 else "cautious"
            how = f"rescaled (temperature {temperature:.3g}), since they are too {wrong} on {nodes}"
            errors = f"{before} before and {after} after"
        say(f"The probabilities of {run} are {how}. Expected calibration error on the {name} nodes: {errors}.")
    if result.at_threshold is not None:
        found = result.at_threshold[split]
        precision = 100 * found["precision"]
        precise = "no node reaches it" if math.isnan(precision) else f"precision {precision:.1f} %"
        say(
            f"{classes[1]!r} is predicted by {run} if its probability is at least {result.threshold:.4g}: {precise}, "
            f"recall {100 * found['recall']:.1f} % on the {name} nodes."
        )


def _show_ranking(ranking: Ranking[Run], tables: Tables) -> None:
    metrics = ranking.groups[0].runs[0].result.metrics["test"]
    columns, rows = [("val", ranking.metric), *(("test", metric) for metric in metrics)], []
    for group in ranking.groups:
        cells = [_shown(group, *one) for one in columns]
        rows.append([group.name, *cells, f"{group.seconds:.1f}"])
    names = [f"{'validation' if split == 'val' else split} {title(metric)}" for split, metric in columns]
    console().print(Aligned(["model", *names, "seconds"], rows))
    runs = ranking.groups[0].runs
    what = "seeds on the same split" if len({run.experiment.index for run in runs}) == 1 else _WHAT[tables.split]
    say(f"Mean and standard deviation over {len(runs)} {what}." if len(runs) > 1 else "One run per model.")
    unknown = (f"No two models have a finite validation {ranking.metric}.",)
    for sentence in ranking.verdict.sentences if ranking.verdict else unknown:
        say(sentence)


def _shown(group: RunGroup[Run], split: str, metric: str) -> str:
    """Mean and standard deviation of a metric."""
    mean, std, _ = group.summary(split, metric)
    return number(metric, mean) + ("" if std is None else f" ± {number(metric, std, digits=2)}")


def _show_next(tables: Tables, graph: "TableGraph", chosen: Path, ordered: Path | None, whole: Path) -> None:
    """Prints the commands to run next: predict with the chosen run, explain one with a learned order, report on all."""
    degree = torch.bincount(graph.data.edge_index[1], minlength=graph.data.num_nodes)
    tests = graph.data.test_mask.nonzero().view(-1)
    node = graph.ids[int(tests[degree[tests].clamp(max=20).argmax()])]
    here = Path.cwd()
    files = [Path(path) for path in (tables.nodes, tables.edges) if path]
    near = [str(path.relative_to(here)) if path.is_relative_to(here) else str(path) for path in files]
    commands = [["predict", str(chosen), *near, "-o", "predictions.csv"]]
    if ordered is not None:
        commands.append(["explain", str(ordered), "--node", node])
    commands.append(["report", str(whole), "-o", "report.html"])
    say("Next:")
    for command in commands:
        say(f"  goat {shlex.join(command)}")
