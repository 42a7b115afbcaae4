"""The commands of ``goat`` and how they end: exit code 0, 1 (failure), 2 (wrong usage) or 130 (Ctrl-C)."""

import errno
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import torch_goat
from torch_goat.app.cli.console import Aligned, console
from torch_goat.app.cli.datasets import datasets
from torch_goat.app.cli.demo import demo
from torch_goat.app.cli.explain import explain
from torch_goat.app.cli.pid import pid
from torch_goat.app.cli.predict import predict
from torch_goat.app.cli.report import report
from torch_goat.app.cli.reproduce import reproduce
from torch_goat.app.cli.runs import runs
from torch_goat.app.cli.train import train
from torch_goat.app.cli.tune import tune
from torch_goat.data.datasets import DataError
from torch_goat.experiments import RunError
from torch_goat.experiments.training.processes import processes, started_by_torchrun
from torch_goat.files import Busy
from torch_goat.settings import SettingsError, printable

EXPECTED = (Busy, DataError, ImportError, RunError)  # errors whose message is enough


class Stopped(Exception):
    """Ctrl-C, as an error that the command line parser lets through."""


class Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Stopped(str(error) or "stopped.") from error
        except Exception as error:
            if hasattr(error, "format_message"):  # an error of the command line parser, which prints it
                error.message = printable(error.message)  # type: ignore[attr-defined]
            raise


app = typer.Typer(cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"torch-goat {torch_goat.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (any command).")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Graph Ordering Attention: order-sensitive neighbourhood aggregation."""
    group = processes()
    if group.world > 1 and context.invoked_subcommand != "train":
        raise SettingsError(
            f"goat {context.invoked_subcommand} runs in one process, but torchrun started {group.world}; only goat "
            "train supports several."
        )


def backends() -> None:
    """List the backends of the ragged RNN, and why a backend is not available.

    Example: goat backends
    """
    found = torch_goat.backends().items()
    rows = [[name, "yes" if status.available else "no", status.note] for name, status in found]
    console().print(Aligned(["backend", "available", "note"], rows))


for command in (train, predict, explain, report, tune, reproduce, runs, datasets, pid, demo, backends):
    app.command()(command)


def run(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits; ``--debug`` may be anywhere, and ``--recipe`` is an old name of ``--config``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal cannot show
    given = list(sys.argv[1:] if arguments is None else arguments)
    rest = [re.sub(r"^--recipe(?==|$)", "--config", argument) for argument in given if argument != "--debug"]
    try:
        app(rest, prog_name="goat")
    except Exception as error:
        if "--debug" in given:
            sys.excepthook = lambda *raised: print(
                printable("".join(traceback.format_exception(*raised))), end="", file=sys.stderr
            )
            raise
        _exit(error)


def _exit(error: Exception) -> NoReturn:
    """Exits with a message of one sentence."""
    message, code = str(error), 1
    if isinstance(error, Stopped):
        code = 130
    elif isinstance(error, SettingsError):
        code = 2
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            reason += "; change its permissions or choose another place"
        message = f"{error.filename}: {reason}." if error.filename else f"{reason}."
    elif not isinstance(error, EXPECTED):
        message = f"{message or type(error).__name__} (--debug shows the traceback)"
    rank = os.environ.get("RANK", "0") if started_by_torchrun() else "0"
    print(f"{'goat' if rank == '0' else f'goat (process {rank})'}: {printable(message)}", file=sys.stderr)
    sys.exit(code)
