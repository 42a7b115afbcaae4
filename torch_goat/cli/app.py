import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import torch_goat
from torch_goat.cli.demo import demo

app = typer.Typer(
    help="Graph Ordering Attention: order-sensitive neighbourhood aggregation.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"torch-goat {torch_goat.__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Graph Ordering Attention: order-sensitive neighbourhood aggregation."""


@app.command()
def backends() -> None:
    """List the backends of the ragged RNN and why one cannot run here.

    Example: goat backends
    """
    table = Table("backend", "available", "note")
    for name, status in torch_goat.backends().items():
        table.add_row(name, "yes" if status.available else "no", status.note)
    Console().print(table)


def run() -> None:
    """Runs the command: exit code 2 for wrong usage; any other failure is one sentence and exit code 1."""
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        sys.exit(f"goat: {error} (--debug shows the traceback)")
