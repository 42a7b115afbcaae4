"""Options that several commands share, checked before any work starts."""

import functools
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args

import typer

from torch_goat.data.datasets.raw import data_folder
from torch_goat.experiments.training.fabric import check_device
from torch_goat.experiments.training.options import Precision as Precisions
from torch_goat.settings import SettingsError, nearest


def _device(value: str) -> str:
    check_device(value)
    return value


def _precision(value: str | None) -> str | None:
    known = get_args(Precisions)
    if value is not None and value not in known:
        raise SettingsError(f"there is no precision {value!r}{nearest(value, known)}")
    return value


def _data_dir(value: Path | None) -> Path | None:
    return value if value is None else data_folder(value)


Device = Annotated[
    str, typer.Option("--device", callback=_device, help="auto (a GPU if there is one), cpu, cuda or cuda:1.")
]
Precision = Annotated[
    str | None,
    typer.Option("--precision", callback=_precision, help=f"{', '.join(get_args(Precisions))}; 32-true unless set."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", callback=_data_dir, help="The folder of raw data files, which is only read; else TORCH_GOAT_DATA."
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", metavar="NODES", help="Train in mini-batches of so many nodes; 0 is full batches."),
]
Fanout = Annotated[
    str,
    typer.Option(
        "--fanout",
        metavar="100,15",
        help="The neighbours drawn of each node of a mini-batch, the last layer's first; -1 is all.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=0, help="Threads that make mini-batches ahead; else what suits the machine."),
]
Jobs = Annotated[
    int, typer.Option("--jobs", min=0, help="Runs at a time, each in a process; 0 is one per core, 8 on a GPU.")
]
Force = Annotated[bool, typer.Option("--force", help="Write over files that are there.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Sets an option of the model or of training; may be repeated."),
]


def of_yours(name: str, text: str, **more: Any) -> Any:
    """An option of a graph of one's own, in a panel of the help with its like."""
    return typer.Option(name, help=text, rich_help_panel="A graph of yours", **more)


Edges = Annotated[str, typer.Argument(metavar="[EDGES]", help="The edges of a graph of yours.")]
Target = Annotated[str, of_yours("--target", "The column of the nodes to predict.")]
TargetTask = Annotated[str, of_yours("--task", "classification or regression; else the target decides.")]
NodeNames = Annotated[str, of_yours("--id", "The column that names the nodes; else id, or the first.")]
Directed = Annotated[bool, of_yours("--directed", "Edges lead from source to target alone.")]
Category = Annotated[list[str] | None, of_yours("--category", "A column of categories, though of numbers.")]
Drop = Annotated[list[str] | None, of_yours("--drop", "A column that is no feature; may be repeated.")]
EdgeFeatures = Annotated[bool, of_yours("--edge-features", "The other columns of the edges are features.")]
SplitColumn = Annotated[str, of_yours("--split-column", "A column that says train, val or test.")]
TimeColumn = Annotated[str, of_yours("--time-column", "A column of times: the earliest nodes train.")]
Fractions = Annotated[str, of_yours("--fractions", "Shares of a random split; 0.6,0.2,0.2 unless set.")]

# What a command takes of how tables are read, by its option's name: its kind and default, and the key of make_tables.
_OF_TABLES: Final[dict[str, tuple[Any, Any, str]]] = {
    "target": (Target, "", "target"),
    "task": (TargetTask, "", "task"),
    "id": (NodeNames, "", "id"),
    "directed": (Directed, False, "directed"),
    "edge_features": (EdgeFeatures, False, "edge_features"),
    "category": (Category, None, "categories"),
    "drop": (Drop, None, "drop"),
    "split_column": (SplitColumn, "", "split_column"),
    "time_column": (TimeColumn, "", "time_column"),
    "fractions": (Fractions, "", "fractions"),
}


class Given(NamedTuple):
    """What was said of how a graph of one's own is read."""

    values: dict[str, Any]  # by the keys of make_tables
    options: list[str]  # that said it, such as "--target"


def reads_tables(*without: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command the options that say how a graph of one's own is read; what was said comes as ``given``.

    Args:
        without: Those that it has no use for.
    """
    chosen = {name: option for name, option in _OF_TABLES.items() if name not in without}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**values: Any) -> Any:
            said = {name: value for name in chosen if (value := values.pop(name))}
            keyed = {
                chosen[name][2]: tuple(value) if isinstance(value, list) else value for name, value in said.items()
            }
            return command(**values, given=Given(keyed, [f"--{name.replace('_', '-')}" for name in said]))

        own = [parameter for name, parameter in inspect.signature(command).parameters.items() if name != "given"]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default, _) in chosen.items()
        ]
        called.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *more]}
        return called

    return decorate


def sets(assignment: str, key: str) -> bool:
    """Whether an assignment of ``--set`` is of a key, with its section or without."""
    return assignment.partition("=")[0].strip().rpartition(".")[2] == key


def refuse_set(assignments: list[str] | None, key: str, option: str) -> None:
    """Refuses ``--set`` of a key that an option sets."""
    for assignment in assignments or []:
        if sets(assignment, key):
            raise SettingsError(f"--set {assignment} is what {option} is for; name it once, with {option}.")


def refuse_beside(context: typer.Context, what: str, useless: Collection[str] = (), but: Collection[str] = ()) -> None:
    """Refuses options that would do nothing.

    Args:
        context: The command, as it was called.
        what: What it was called with.
        useless: The parameters that do nothing beside that; all if empty.
        but: Parameters that do something all the same.
    """
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.param_type_name != "option" or source is None or source.name == "DEFAULT" or option.name in but:
            continue
        if not useless or option.name in useless:
            raise SettingsError(f"{option.opts[0]} does nothing beside {what}; leave it out.")


def with_precision(assignments: list[str] | None, precision: str | None) -> list[str]:
    """What ``--set`` and ``--precision`` set, for :func:`torch_goat.settings.override`."""
    if precision:
        refuse_set(assignments, "precision", "--precision")
    return [*(assignments or []), *([f"training.precision={precision}"] if precision else [])]


def with_batches(assignments: list[str], batch_size: int | None, fanout: str) -> list[str]:
    """What is set, and the mini-batches that ``--batch-size`` and ``--fanout`` ask for."""
    sizes = [] if batch_size is None else [f"training.batch_size={batch_size}"]
    if batch_size is not None:
        refuse_set(assignments, "batch_size", "--batch-size")
    if fanout:
        refuse_set(assignments, "fanout", "--fanout")
        try:
            numbers = [int(part) for part in fanout.split(",")]
        except ValueError:
            raise SettingsError(f"--fanout {fanout!r} must be numbers such as 100,15.") from None
        sizes.append(f"training.fanout={numbers}")
    return [*assignments, *sizes]


def check_new(file: Path | None, force: bool) -> None:
    """Refuses a file that is there, unless it may be written over, and one that cannot be there."""
    if file is None:
        return
    if file.is_dir():
        raise SettingsError(f"{file} is a folder; name a file.")
    if file.is_file() and not force:
        raise SettingsError(f"{file} is there already; choose another name or write over it with --force.")
