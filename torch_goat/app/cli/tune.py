import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torch_goat import settings
from torch_goat.app.cli import options
from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.progress import PoolProgress
from torch_goat.app.cli.start import start
from torch_goat.experiments.search import Search, paper_grid, parse_space, search_space
from torch_goat.experiments.search.search import METRICS, checked, short, size
from torch_goat.experiments.training.metrics import show
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.experiments.search.tune import SearchOutcome


@options.reads_tables()
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
    model: options.Model = None,
    trials: Annotated[int, typer.Option(min=1, help="Total number of trials, including earlier ones.")] = 100,
    jobs: Annotated[int, typer.Option(min=1, help="Parallel trials; one makes a search reproducible.")] = 1,
    storage: Annotated[
        str, typer.Option(help="File or database URL shared by several machines; by default a file in --out.")
    ] = "",
    grid: Annotated[bool, typer.Option("--grid", help="Search the paper's grid, point by point.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Stop trials that are worse than the median.")
    ] = False,
    assignments: options.Set = None,
    spaces: Annotated[
        list[str] | None, typer.Option("--space", metavar="KEY=A,B", help="Values to search for a key; repeatable.")
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric to optimise; by default accuracy or mse.")] = "",
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
    """Search for the best settings on the validation nodes; the same command resumes a stopped search.

    Example: goat tune cora --model goat --trials 100 --jobs 2 --set epochs=300 --space heads=1,4,8;
    goat tune nodes.csv edges.csv --target label --indices 0,1,2
    """
    options.check_not_set(assignments, "index", "--indices")
    fixed = options.with_options(assignments, {"training.precision": precision, "seed": seed})
    begun = start(dataset, edges, given, model, split, config, None, metric if metric == "macro_f1" else "")
    if grid and config is None:
        begun = begun.with_paper_options()
    experiment = begun.override(fixed)
    space = paper_grid(experiment.model.name, begun.task) if grid else search_space(experiment)
    search = Search(
        experiment,
        checked(space | parse_space(spaces or []), experiment, _keys(fixed, spaces or [])),
        indices=_numbers(indices) if indices else tuple(range(max(1, begun.graph.num_splits if begun.graph else 1))),
        metric=metric or METRICS[begun.task][0],
        method="grid" if grid else "tpe",
        seed=seed,
        prune=prune,
    )
    try:
        from torch_goat.experiments.search.tune import BEST, TABLE
        from torch_goat.experiments.search.tune import tune as run
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise ImportError(f"goat tune needs {missing}; install it with: pip install 'torch-goat[cli]'.") from error
    folder = out or Path("runs") / f"tune-{search.name}"
    total = min(trials, size(search.space))
    with PoolProgress(total, "trial {}".format, "trials", search.metric) as progress:
        outcome = run(
            search,
            folder,
            storage=storage,
            trials=total,
            jobs=jobs,
            device=device,
            data_dir=data_dir,
            on_event=progress,
        )
    _print(search, outcome)
    where = folder / BEST
    command = shlex.join(["goat", "train", "--config", str(where)])
    say(f"All trials are in {folder / TABLE}, the best settings in {where}. Train with them: {command}")


def _keys(fixed: list[str], spaces: list[str]) -> list[str]:
    """The keys that ``--set`` fixes, none of which may be searched."""
    keys = [assignment.partition("=")[0] for assignment in fixed]
    for key in parse_space(spaces):
        if key in map(short, keys):
            raise SettingsError(f"{key} is both set and searched; leave out --set or --space.")
    return keys


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise SettingsError(f"--indices must be integers such as 0,1,2, got {text!r}.") from None


def _print(search: Search, outcome: "SearchOutcome") -> None:
    best = settings.to_table(outcome.best)
    values = best["model"] | best["training"]
    console().print(Aligned(["setting", "value"], [[key, _text(values[key])] for key in search.space]))
    notes = [f"{outcome.finished} of {outcome.total} trials are finished"]
    notes += [f"{outcome.failed} failed"] if outcome.failed else []
    notes += [f"{outcome.elsewhere} are still running on other machines"] if outcome.elsewhere else []
    value = show(search.metric, outcome.value)
    say(f"{', '.join(notes)}; the best is trial {outcome.number} with validation {search.metric} {value}.")


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
