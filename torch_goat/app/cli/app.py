import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import torch_goat
from torch_goat.app.cli.console import Aligned, console
from torch_goat.app.cli.datasets import datasets
from torch_goat.app.cli.demo import demo
from torch_goat.app.cli.errors import report as report_error
from torch_goat.app.cli.errors import stoppable
from torch_goat.app.cli.explain import explain
from torch_goat.app.cli.pid import pid
from torch_goat.app.cli.predict import predict
from torch_goat.app.cli.report import report
from torch_goat.app.cli.reproduce import reproduce
from torch_goat.app.cli.runs import runs
from torch_goat.app.cli.train import train
from torch_goat.app.cli.tune import tune
from torch_goat.experiments.training.processes import processes
from torch_goat.settings import SettingsError

app = typer.Typer(
    help="Graph Ordering Attention: order-sensitive neighbourhood aggregation.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"torch-goat {torch_goat.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; of any command.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Graph Ordering Attention: order-sensitive neighbourhood aggregation."""
    group = processes()
    if group.world > 1 and context.invoked_subcommand != "train":
        raise SettingsError(
            f"goat {context.invoked_subcommand} is one process's work, but torchrun started {group.world}; only goat "
            "train shares its work."
        )


def backends() -> None:
    """List the backends of the ragged RNN and why one cannot run here.

    Example: goat backends
    """
    found = torch_goat.backends().items()
    rows = [[name, "yes" if status.available else "no", status.note] for name, status in found]
    console().print(Aligned(["backend", "available", "note"], rows))


for command in (train, predict, explain, report, tune, reproduce, runs, datasets, pid, demo, backends):
    app.command()(stoppable(command))


def run(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and ends the process; ``--debug`` may stand anywhere and shows the traceback of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name in another script must not end a command
    given = list(sys.argv[1:] if arguments is None else arguments)
    rest = [argument for argument in given if argument != "--debug"]
    try:
        app(rest, prog_name="goat")
    except Exception as error:
        if rest != given:
            raise
        report_error(error)
