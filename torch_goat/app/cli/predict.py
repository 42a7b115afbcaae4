import sys
from pathlib import Path
from typing import Annotated

import typer

from torch_goat.app.cli.console import console
from torch_goat.app.cli.options import Force, check_new
from torch_goat.data.tables import find_tables
from torch_goat.experiments import Predictions, Run
from torch_goat.experiments import predict as apply
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run that goat train has finished.")],
    nodes: Annotated[str, typer.Argument(help="The new nodes (CSV, Parquet), a GraphML file or a folder.")],
    edges: Annotated[str, typer.Argument(metavar="[EDGES]", help="Their edges.")] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="The CSV file; else the standard output.")
    ] = None,
    join: Annotated[bool, typer.Option("--join", help="The nodes are new ones of the training graph.")] = False,
    force: Force = False,
) -> None:
    """Predict the target of new nodes, or of another graph, with the probabilities of the classes.

    Example: goat predict runs/village-1a2b3c4d/goat-0 nodes.csv edges.csv -o predictions.csv
    """
    check_new(out, force)
    files = find_tables(nodes, edges)
    found = apply(Run(run), files["nodes"], files["edges"], join=join)
    told = console(stderr=True)
    for note in found.notes:
        told.print(f"Note: {note}", markup=False, soft_wrap=True)
    if out is None:
        _echo(found.to_csv())
    else:
        write_atomic(out, found.to_csv())
        told.print(f"The predictions of {len(found.ids)} nodes are in {out}", markup=False, soft_wrap=True)
    text = _judged(found)
    if text:
        told.print(text, markup=False, soft_wrap=True)


def _echo(text: str) -> None:
    """Prints a file, or refuses to if the output cannot hold all its letters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError as error:
        letter = error.object[error.start]
        raise SettingsError(
            f"the output, in {error.encoding}, cannot hold {letter!r}; write the predictions to a file with --out FILE."
        ) from None
    typer.echo(text, nl=False)


def _judged(found: Predictions) -> str:
    """How good the predictions are, where the table has the answers."""
    pairs = [(value, true) for value, true in zip(found.values, found.truth or (), strict=False) if true is not None]
    if not pairs:
        return ""
    if found.classes:
        good = sum(value == true for value, true in pairs)
        return f"{good} of the {len(pairs)} nodes whose class the table gives are predicted as there."
    try:
        errors = [abs(float(value) - float(true)) for value, true in pairs]
    except ValueError:
        return ""
    mean = sum(errors) / len(errors)
    return f"The mean absolute error on the {len(pairs)} nodes whose value the table gives is {mean:.4g}."
