import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torch_goat.app.cli import options
from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.progress import PoolProgress
from torch_goat.app.cli.start import Start, start
from torch_goat.experiments import Experiment
from torch_goat.experiments.search import Search, Space, paper_grid, parse_space, search_space
from torch_goat.experiments.search.search import best_first, checked, has_effect, settings_of, short, size
from torch_goat.experiments.training.metrics import DECIDING, show
from torch_goat.experiments.verdict import shown
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.experiments.search.tune import SearchOutcome


ALL = "all"  # as a model: those that are compared on your own graph and have something to search


@options.reads_tables
def tune(
    *,
    given: options.Given,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|NODES",
            help="A dataset listed by goat datasets, or the nodes of your own graph, as in goat train.",
        ),
    ],
    edges: options.Edges = "",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="goat (default), gat, trees, ..., or all: every model that goat train compares, with the same number "
            "of trials for each.",
        ),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            min=1, help="Total number of trials of each model, including earlier ones; at most the size of its space."
        ),
    ] = 100,
    jobs: Annotated[int, typer.Option(min=1, help="Parallel trials; with 1, a search is reproducible.")] = 1,
    storage: Annotated[
        str, typer.Option(help="File or database URL shared by several machines; by default a file in --out.")
    ] = "",
    grid: Annotated[bool, typer.Option("--grid", help="Search the paper's grid, point by point.")] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune/--no-prune", help="Stop trials of networks that are worse than the median; others have no epochs."
        ),
    ] = False,
    assignments: options.Set = None,
    spaces: Annotated[
        list[str] | None, typer.Option("--space", metavar="KEY=A,B", help="Values to search for a key; repeatable.")
    ] = None,
    metric: Annotated[
        str,
        typer.Option(help="Metric to optimise; by default that of the dataset, else accuracy, rmse (tables) or mse."),
    ] = "",
    indices: Annotated[
        str,
        typer.Option(
            help="Graphs or splits of each trial, such as 0,1,2; by default 0, or all folds or split columns."
        ),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the search and of training.")] = 0,
    split: options.Split = None,
    config: options.Config = None,
    out: options.Out = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    data_dir: options.DataDir = None,
) -> None:
    """Search for the best settings on the validation nodes, starting from the defaults; the same command resumes a
    stopped search.

    Example: goat tune cora --model goat --trials 100 --jobs 2 --set epochs=300 --space heads=1,4,8;
    goat tune nodes.csv edges.csv --target label --model all --trials 20 --indices 0,1,2
    """
    options.check_not_set(assignments, "index", "--indices")
    fixed = options.with_options(assignments, {"training.precision": precision, "seed": seed})
    asked = metric if metric in DECIDING else ""
    begun = start(dataset, edges, given, None if model == ALL else model, split, config, None, asked)
    if grid and config is None:
        begun = begun.with_paper_options()
    chosen = parse_space(spaces or [])
    if model == ALL:
        _check_all(storage, grid, config)
        experiments = _compared(begun, fixed, asked)
        for key in chosen:
            if not any(has_effect(one, key) for one in experiments.values()):
                raise SettingsError(f"{key} has no effect on any of these models; leave it out.")
    else:
        experiments = {begun.experiment.model.name: begun.override(fixed)}
    searches, default = {}, begun.metric
    for name, experiment in experiments.items():
        space = paper_grid(name, begun.task) if grid else search_space(experiment)
        if not space:
            raise SettingsError(f"the model {name!r} has no settings to search; train it with goat train.")
        if model == ALL:  # a key applies to the models that have it
            space |= {key: values for key, values in chosen.items() if has_effect(experiment, key)}
        else:
            space |= chosen
        keys = _keys(fixed, chosen)
        if model == ALL and not any(len(values) > 1 for key, values in space.items() if key not in keys):
            say(f"{shown(name, default)}: all its settings are given, so there is nothing to search.")
            continue
        splits = range(max(1, begun.graph.num_splits if begun.graph else 1))
        searches[name] = Search(
            experiment,
            checked(space, experiment, keys),
            indices=_numbers(indices) if indices else tuple(splits),
            metric=metric or experiment.metric or default,
            method="grid" if grid else "tpe",
            seed=seed,
            prune=prune and not (model == ALL and experiment.model.fitted),
            defaults_first=not grid,
        )
    if not searches:
        raise SettingsError("nothing to search: the settings of all models are given; leave out some --set or --space.")
    try:
        from torch_goat.experiments.search.tune import BEST, TABLE
        from torch_goat.experiments.search.tune import tune as run
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise ImportError(f"goat tune needs {missing}; install it with: pip install 'torch-goat[cli]'.") from error
    outcomes, folders = {}, {}
    for name, search in searches.items():
        folders[name] = Path("runs") / f"tune-{search.name}" if out is None else out / name if model == ALL else out
        total = min(trials, size(search.space))
        label = f"{shown(name, default)}, trial {{}}" if model == ALL else "trial {}"
        with PoolProgress(total, label.format, "trials", search.metric) as progress:
            outcomes[name] = run(
                search,
                folders[name],
                storage=storage,
                trials=total,
                jobs=jobs,
                device=device,
                data_dir=data_dir,
                on_event=progress,
            )
        if model == ALL:
            say(f"{shown(name, default)}:")
        _print(search, outcomes[name])
    metric = next(iter(searches.values())).metric
    order = best_first({name: outcome.value for name, outcome in outcomes.items()}, metric)
    if model == ALL:
        _print_all({shown(name, default): (outcomes[name], folders[name]) for name in order}, metric)
    folder = folders[order[0]]
    where = folder / BEST
    command = shlex.join(["goat", "train", "--config", str(where)])
    say(f"All trials are in {folder / TABLE}, the best settings in {where}. To train with them: {command}")


def _compared(begun: Start, fixed: list[str], metric: str) -> dict[str, Experiment]:
    """The models of a comparison that have something to search."""
    from torch_goat.experiments.own_graph import MODELS, starting_points  # imports PyTorch

    if begun.tables is None or begun.graph is None:
        raise SettingsError(
            "--model all searches the models that are compared on your own graph; name its files first."
        )
    searched = [name for name in MODELS if name != "constant"]
    found = starting_points(begun.tables, begun.graph, searched, fixed, metric)
    return {name: replace(one, training=replace(one.training, record_orderings=())) for name, one in found.items()}


def _check_all(storage: str, grid: bool, config: Path | None) -> None:
    """Refuses options that apply to one model."""
    for option, given in (("--storage", storage), ("--grid", grid), ("--config", config)):
        if given:
            raise SettingsError(f"{option} cannot be combined with --model all; leave one of them out.")


def _print_all(found: Mapping[str, tuple["SearchOutcome", Path]], metric: str) -> None:
    """The models, the best first, before and after the search."""
    rows = []
    for name, (outcome, folder) in found.items():
        default = "-" if outcome.default is None else show(metric, outcome.default)
        rows.append([name, default, show(metric, outcome.value), str(outcome.finished), str(folder)])
    console().print(Aligned(["model", f"default {metric}", f"best {metric}", "trials", "folder"], rows))
    say("These are means over the validation nodes, on which the settings were chosen; the best values are optimistic.")


def _keys(fixed: list[str], chosen: Space) -> set[str]:
    """The keys that ``--set`` fixes, none of which may be searched."""
    keys = {short(assignment.partition("=")[0]) for assignment in fixed}
    for key in chosen:
        if key in keys:
            raise SettingsError(f"{key} is both set and searched; leave out --set or --space.")
    return keys


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise SettingsError(f"--indices must be integers such as 0,1,2, got {text!r}.") from None


def _print(search: Search, outcome: "SearchOutcome") -> None:
    default, best = (settings_of(one, search.space) for one in (search.experiment, outcome.best))
    rows = [[key, _text(default[key]), _text(best[key])] for key in search.space]
    console().print(Aligned(["setting", "default", "best"], rows))
    notes = [f"{outcome.finished} of {outcome.total} trials are finished"]
    notes += [f"{outcome.failed} failed"] if outcome.failed else []
    notes += [f"{outcome.elsewhere} are still running on other machines"] if outcome.elsewhere else []
    value = show(search.metric, outcome.value)
    say(f"{', '.join(notes)}; the best is trial {outcome.number} with validation {search.metric} {value}.")
    if outcome.finished == size(search.space):
        say("These are all settings of its space.")
    if outcome.default is not None:
        better = "" if outcome.number else ", which no trial surpassed"
        say(f"The defaults are trial 0 with validation {search.metric} {show(search.metric, outcome.default)}{better}.")
    elif search.method == "tpe":
        say("The defaults are not a trial: the search does not include their values, or their trial failed.")


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
