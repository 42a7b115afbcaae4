import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torch_goat.app.cli.console import announce, say, write
from torch_goat.app.cli.options import Force, check_new
from torch_goat.data.tables import find_tables
from torch_goat.experiments import Run
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.experiments import Predictions


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of goat train.")],
    nodes: Annotated[str, typer.Argument(help="The new nodes (CSV or Parquet), a GraphML file or a folder.")],
    edges: Annotated[str, typer.Argument(metavar="[EDGES]", help="The edges of the new nodes.")] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Output CSV file; by default standard output.")
    ] = None,
    join: Annotated[bool, typer.Option("--join", help="Add the nodes to the training graph.")] = False,
    safe: Annotated[
        bool, typer.Option("--safe-csv", help="Put ' before ids and classes that a spreadsheet would read as formulas.")
    ] = False,
    force: Force = False,
) -> None:
    """Predict the target of new nodes or of another graph, with class probabilities.

    Example: goat predict runs/village-1a2b3c4d/goat-0 nodes.csv edges.csv -o predictions.csv
    """
    check_new(out, force)
    if out is not None and out.suffix.lower() not in ("", ".csv"):
        raise SettingsError(f"predictions are written as CSV, got --out {out}; name a file that ends in .csv.")
    files = find_tables(nodes, edges)
    announce(str(run), files["nodes"], files["edges"])
    from torch_goat.experiments import predict as apply

    found = apply(Run(run), files["nodes"], files["edges"], join=join)
    for note in found.notes:
        say(f"Note: {note}", stderr=True)
    text = found.to_csv(safe=safe)
    if out is None:
        _echo(text)
    else:
        write_atomic(out, text)
        say(f"The predictions of {len(found.ids)} nodes are in {out}", stderr=True)
    if accuracy := _accuracy(found):
        say(accuracy, stderr=True)


def _echo(text: str) -> None:
    """Prints text; raises if the encoding of the output lacks a character."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError as error:
        letter = error.object[error.start]
        raise SettingsError(
            f"the encoding {error.encoding} of the output lacks {letter!r}; write the predictions to a file with --out."
        ) from None
    write(text)


def _accuracy(found: "Predictions") -> str:
    """How good the predictions are, if the table contains the target, and on which nodes."""
    pairs, split = found.pairs, found.split
    if not pairs:
        return ""
    which, end = "nodes with a known " + ("class" if found.classes else "value"), "."
    if split is None:
        end = "; training nodes may be among them, since the tables of the run are gone or have changed."
    else:
        trained, validated = split.count("train"), split.count("val")
        if trained or validated:
            end = f"; {trained} other nodes were used for training and {validated} for validation."
        if all(part or true is None for part, true in zip(split, found.truth or (), strict=True)):
            which = "test nodes"
    if found.classes:
        good = sum(value == true for value, true in pairs)
        return f"{good} of the {len(pairs)} {which} are predicted correctly{end}"
    errors = [abs(float(value) - float(true)) for value, true in pairs]
    return f"The mean absolute error on the {len(pairs)} {which} is {sum(errors) / len(errors):.4g}{end}"
