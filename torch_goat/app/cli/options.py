"""Options that several commands share, and checks of what was given."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args

import typer

from torch_goat.data.datasets.raw import data_folder
from torch_goat.experiments.training.options import Precision as Precisions
from torch_goat.experiments.training.processes import check_device
from torch_goat.settings import SettingsError, check_known, sets


def _check_precision(value: str | None) -> str | None:
    if value is not None:
        check_known("precision", value, get_args(Precisions))
    return value


Model = Annotated[
    str | None, typer.Option("--model", help="goat (default), gat, gcn, sage-lstm, ...; on tables, several by default.")
]
Split = Annotated[str | None, typer.Option("--split", help="Split protocol; by default the dataset's own.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings to start from: best.toml of goat tune, or a config.toml."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Output folder; by default in runs/.")]
Device = Annotated[
    str, typer.Option("--device", callback=check_device, help="auto (a GPU if available), cpu, cuda or cuda:1.")
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision", callback=_check_precision, help=f"{', '.join(get_args(Precisions))}; 32-true by default."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        callback=lambda value: value and data_folder(value),
        help="Folder of raw data files; by default TORCH_GOAT_DATA.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the model or of training; repeatable."),
]
Edges = Annotated[str, typer.Argument(metavar="[EDGES]", help="The edges of your graph.")]


def graph_option(*names: str, text: str, **more: Any) -> Any:
    """An option in the help panel on your own graph."""
    return typer.Option(*names, help=text, rich_help_panel="Your own graph", **more)


# How to read tables, by option: its type, the key of make_tables, and its help. --time-column is an old name of --time.
_TABLE_OPTIONS: Final[dict[str, tuple[Any, str, str]]] = {
    "target": (str, "target", "Node column to predict."),
    "task": (str, "task", "classification or regression; by default detected from the target."),
    "positive": (str, "positive", "The positive one of two classes, for --threshold, precision, ROC AUC and PR AUC."),
    "id": (str, "id", "Column with the node ids; by default the column id, or the first one."),
    "directed": (bool, "directed", "Pass messages from source to target only."),
    "edge_features": (bool, "edge_features", "Use the other edge columns as features."),
    "order_by": (str, "order_by", "Edge column, such as a time; GOAT reads neighbours in decreasing order of it."),
    "category": (list[str] | None, "categories", "Column to read as categories, whatever its values; repeatable."),
    "drop": (list[str] | None, "drop", "Column to exclude from the features; repeatable."),
    "split_column": (
        str,
        "split_column",
        "Column with train, val and test, or a pattern such as 'fold_*' for several.",
    ),
    "time": (str, "time_column", "Column of times: the earliest nodes are for training, the latest for testing."),
    "group": (str, "group_column", "Column of groups: a random split never divides nodes with the same value."),
    "folds": (int | None, "folds", "Number of stratified folds, each of which is the test set once."),
    "fractions": (str, "fractions", "Fractions of training, validation and test nodes; 0.6,0.2,0.2 by default."),
}


class Given(NamedTuple):
    """The options on reading tables that were given."""

    values: dict[str, Any]  # by the keys of make_tables
    options: list[str]  # their names, such as "--target"


def reads_tables(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options on reading tables to a command, which receives them as ``given``."""

    @functools.wraps(command)
    def called(**values: Any) -> Any:
        given = {name: value for name in _TABLE_OPTIONS if (value := values.pop(name))}
        keyed = {_TABLE_OPTIONS[name][1]: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
        return command(**values, given=Given(keyed, [f"--{name.replace('_', '-')}" for name in given]))

    parameters = [one for name, one in inspect.signature(command).parameters.items() if name != "given"]
    for name, (kind, _, text) in _TABLE_OPTIONS.items():
        more = {"min": 2} if name == "folds" else {}
        names = [f"--{name.replace('_', '-')}", *(["--time-column"] if name == "time" else [])]
        annotation = Annotated[kind, graph_option(*names, text=text, **more)]  # type: ignore[valid-type]
        default = {str: "", bool: False}.get(kind)
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def check_not_set(assignments: Sequence[str] | None, key: str, option: str) -> None:
    """Refuses ``--set`` of a key that has an option."""
    for assignment in assignments or []:
        if sets(assignment, key.rpartition(".")[2]):
            raise SettingsError(f"--set {assignment} cannot be combined with {option}; use {option} alone.")


def check_unused(context: typer.Context, purpose: str, unused: Collection[str] = (), but: Collection[str] = ()) -> None:
    """Refuses options without effect for a purpose: those in ``unused``, or all if it is empty, but for some."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.param_type_name != "option" or source is None or source.name == "DEFAULT" or option.name in but:
            continue
        if not unused or option.name in unused:
            raise SettingsError(f"{option.opts[0]} cannot be combined with {purpose}; leave it out.")


def with_options(assignments: Sequence[str] | None, given: Mapping[str, Any]) -> list[str]:
    """The assignments of ``--set`` and of options by their key; ``None`` if an option was not given."""
    changed = list(assignments or [])
    for key, value in given.items():
        if value is not None:
            check_not_set(assignments, key, f"--{key.rpartition('.')[2].replace('_', '-')}")
            changed.append(f"{key}={value}")
    return changed


def check_new(file: Path | None, force: bool) -> None:
    """Refuses an output file that exists, unless it may be overwritten, or is a folder."""
    if file is None:
        return
    if file.is_dir():
        raise SettingsError(f"{file} is a folder; name a file.")
    if file.is_file() and not force:
        raise SettingsError(f"{file} already exists; choose another name or overwrite it with --force.")
