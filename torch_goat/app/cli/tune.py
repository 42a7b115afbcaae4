import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torch_goat import settings
from torch_goat.app.cli.begin import Model, Out, Recipe, Split, begin
from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.options import (
    DataDir,
    Device,
    Edges,
    Given,
    Precision,
    Set,
    reads_tables,
    refuse_set,
    with_precision,
)
from torch_goat.app.cli.own import judged_by
from torch_goat.app.cli.progress import Board, board
from torch_goat.experiments.search import Search, paper_grid, parse_space, search_space
from torch_goat.experiments.search.search import METRICS
from torch_goat.experiments.search.space import checked, short
from torch_goat.experiments.training.metrics import show
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.experiments import Event
    from torch_goat.experiments.search.tune import SearchOutcome


@reads_tables()
def tune(
    *,
    given: Given,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|NODES",
            help="A name that goat datasets lists, or the nodes of a graph of yours, as goat train takes them.",
        ),
    ],
    edges: Edges = "",
    model: Model = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="How many there are in the end, with those of before.")
    ] = 100,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Trials at a time; with one, all repeats exactly.")] = 1,
    storage: Annotated[
        str,
        typer.Option("--storage", help="A file, or a database's address, that machines share; else a file in --out."),
    ] = "",
    grid: Annotated[bool, typer.Option("--grid", help="The paper's grid, point by point.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="End trials that do worse than the median.")
    ] = False,
    assignments: Set = None,
    spaces: Annotated[
        list[str] | None, typer.Option("--space", metavar="KEY=A,B", help="The values of a key; may be repeated.")
    ] = None,
    metric: Annotated[str, typer.Option("--metric", help="What is optimised; else accuracy or mse.")] = "",
    indices: Annotated[str, typer.Option("--indices", help="The graphs or splits of a trial, as 0,1,2.")] = "0",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The seed of the search and of every training.")] = 0,
    split: Split = None,
    recipe: Recipe = None,
    out: Out = None,
    device: Device = "auto",
    precision: Precision = None,
    data_dir: DataDir = None,
) -> None:
    """Search for settings by the validation nodes; the same command goes on with a search that was stopped or killed.

    Example: goat tune cora --model goat --trials 100 --jobs 2 --set epochs=300 --space heads=1,4,8;
    goat tune nodes.csv edges.csv --target label --indices 0,1,2
    """
    try:
        from torch_goat.experiments.search.tune import BEST, TABLE
        from torch_goat.experiments.search.tune import tune as run
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise ImportError(f"goat tune needs {missing}; install it with: pip install 'torch-goat[cli]'.") from error
    for option, key in (("--seed", "seed"), ("--indices", "index")):
        refuse_set(assignments, key, option)
    fixed = [*with_precision(assignments, precision), f"seed={seed}"]
    start = begin(dataset, edges, given, model, split, recipe, None)
    if grid and recipe is None:  # the options' own defaults are the paper's
        start = start.with_papers_options()
    experiment = start.with_options(fixed)
    space = paper_grid(experiment.model.name, start.task) if grid else search_space(experiment)
    search = Search(
        experiment,
        checked(space | parse_space(spaces or []), experiment, _keys(fixed, spaces or [])),
        indices=_numbers(indices),
        metric=metric or (METRICS[start.task][0] if start.graph is None else judged_by(start.graph)),
        method="grid" if grid else "tpe",
        seed=seed,
        prune=prune,
    )
    folder = out or Path("runs") / f"tune-{search.name}"
    total = min(trials, search.size)
    with board(total, "trials") as progress:
        show = _Show(progress, search.metric)
        options: dict[str, Any] = {"device": device, "data_dir": data_dir, "on_event": show}
        outcome = run(search, folder, storage=storage, trials=total, jobs=jobs, **options)
    _print(search, outcome)
    where = folder / BEST
    command = shlex.join(["goat", "train", "--recipe", str(where)])
    say(f"All trials are in {folder / TABLE}, the best recipe in {where}; use it with: {command}")


class _Show:
    """Shows the events of a search."""

    def __init__(self, progress: Board, metric: str) -> None:
        self._board, self._metric = progress, metric

    def __call__(self, event: "Event") -> None:
        name, shown = f"trial {event.number}", self._board
        shown.total = max(shown.total, event.done)  # a longer search may have gone before
        if event.best is not None:
            shown.note = f"best {self._metric} {show(self._metric, event.best)}"
        if event.kind == "started":
            shown.start(event.job, name)
        elif event.epoch is not None:
            shown.epoch(event.job, name, event.epoch)
        elif event.kind != "opened":
            texts = {"pruned": "pruned", "failed": f"failed: {event.message}"}
            value = math.nan if event.value is None else event.value
            text = texts.get(event.kind) or f"{self._metric} {show(self._metric, value)}"
            shown.end(event.job, name, text, failed=event.kind == "failed")
        # Some were done before, or by other machines. What runs here may be over too, with its end on the way.
        if event.done > shown.done + shown.running:
            shown.skip(event.done - shown.done - shown.running)


def _keys(fixed: list[str], spaces: list[str]) -> list[str]:
    """The keys that ``--set`` fixes; one of them that is to be searched too is refused."""
    keys = [assignment.partition("=")[0] for assignment in fixed]
    for key in parse_space(spaces):
        if key in map(short, keys):
            raise SettingsError(f"{key} is both set and searched; leave out --set or --space.")
    return keys


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise SettingsError(f"the indices must be whole numbers as 0,1,2, got {text!r}.") from None


def _print(search: Search, outcome: "SearchOutcome") -> None:
    best = settings.to_table(outcome.best)
    values = best["model"] | best["training"]
    console().print(Aligned(["setting", "value"], [[key, _text(values[key])] for key in search.space]))
    notes = [f"{outcome.finished} of {outcome.total} trials are done"]
    notes += [f"{outcome.failed} failed"] if outcome.failed else []
    notes += [f"{outcome.elsewhere} are still running on other machines"] if outcome.elsewhere else []
    value = show(search.metric, outcome.value)
    say(f"{', '.join(notes)}; trial {outcome.number} is best: validation {search.metric} {value}.")


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
