import json
import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torch_goat.app.cli.console import Aligned, announce, console, say
from torch_goat.app.cli.options import DataDir, Force, check_new
from torch_goat.experiments import Run
from torch_goat.files import write_atomic

if TYPE_CHECKING:
    from torch_goat.app.explain import Explanation

ROWS = 20  # shown in a table; the JSON file contains all


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    node: Annotated[str, typer.Option(metavar="ID", help="Id of the node.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the whole explanation as JSON.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw a figure.")] = None,
    force: Force = False,
    data_dir: DataDir = None,
) -> None:
    """Explain the prediction for a node: the order in which its neighbours are read, and the contribution of each.

    Example: goat explain runs/village/goat-0 --node H042 --figure why.png
    """
    for file in (json_file, figure):
        check_new(file, force)
    announce(str(run))
    from torch_goat.app.explain import explain as explain_node
    from torch_goat.experiments.information.charts import new_figure

    if figure is not None:
        new_figure(figure)  # checks the file ending and that matplotlib is installed
    found = explain_node(Run(run), node, data_dir=data_dir)
    if json_file is not None:
        write_atomic(json_file, json.dumps(found.to_dict(), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    if figure is not None:
        from torch_goat.app.explain.figure import save_figure

        save_figure(found, figure)
    _show(found)
    for what, file in (("The explanation", json_file), ("The figure", figure)):
        if file is not None:
            say(f"{what} is in {file}")


def _show(found: "Explanation") -> None:
    said, ids = found.prediction, found.graph.ids
    text = f"Node {ids[found.node]}: predicted {found.label(said.value)}"
    text += f" with probability {said.probability:.3f}" if found.graph.classes else ""
    truth = found.label(said.truth)
    count = f"{len(found.effects)} neighbour{'' if len(found.effects) == 1 else 's'}"
    say(f"{text}; the true value is {truth or 'unknown'}. {count}.")
    _orders(found)
    if found.effects:
        what = "probability without" if found.graph.classes else "prediction without"
        say(f"Contribution of each neighbour ({found.unit}), measured by leaving it out:")
        kind = ".4f" if found.graph.classes else ".4g"
        rest = ".4f" if found.graph.classes else f".{found.graph.digits}g"
        rows = [
            [ids[one.neighbor], f"{one.contribution:+{kind}}", f"{one.without:{rest}}"] for one in found.effects[:ROWS]
        ]
        console().print(Aligned(["neighbour", "contribution", what], rows))
        _more(len(found.effects))
    if found.interactions:
        say("Interactions of the strongest neighbours: the joint contribution of two minus the sum of both:")
        pairs = found.interactions[:ROWS]
        rows = [[ids[one.first], ids[one.second], f"{one.value:+{kind}}"] for one in pairs]
        console().print(Aligned(["neighbour", "and", "interaction"], rows))
        _more(len(found.interactions))
    _stability(found)


def _orders(found: "Explanation") -> None:
    """One column per head."""
    if not found.readings:
        say("No learned order: the network has no GOAT layer.")
        return
    ids = found.graph.ids
    columns = [f"layer {one.layer}, head {one.head}" for one in found.readings]
    longest = max(len(one.neighbors) for one in found.readings)
    if not longest:
        say("Nothing to order: the node has no neighbours, and no layer adds self-loops.")
        return
    cells = [
        [f"{ids[node]} ({alpha:.3f})" for node, alpha in zip(one.neighbors, one.coefficients, strict=True)]
        for one in found.readings
    ]
    rows = [[str(place + 1), *row] for place, row in enumerate(zip_longest(*cells, fillvalue=""))][:ROWS]
    itself = "; the node itself is one of them" if any(found.node in one.neighbors for one in found.readings) else ""
    say(f"Neighbours in {'given' if found.stability.given else 'learned'} order, with attention coefficients{itself}:")
    for some in _blocks(["place", *columns], rows, console().width):
        console().print(some)
    _more(longest)


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Aligned]:
    """The table cut into blocks of as many columns as fit, each with the first column."""
    start = 1
    while start < len(columns):
        end = start + 1
        while end < len(columns) and _cut(columns, rows, start, end + 1).width() <= width:
            end += 1
        yield _cut(columns, rows, start, end)
        start = end


def _cut(columns: Sequence[str], rows: Sequence[Sequence[str]], start: int, end: int) -> Aligned:
    columns, *rows = ([line[0], *line[start:end]] for line in (columns, *rows))
    return Aligned(columns, rows)


def _stability(found: "Explanation") -> None:
    if not found.readings or found.stability.given:
        return
    kinds = {"epoch": found.stability.epochs, "seed": found.stability.seeds}
    for kind, agreements in kinds.items():
        if agreements:
            say(f"Kendall's tau between this order and that of another {kind} (1: same order, 0: unrelated):")
            taus = [[_tau(one.here), _tau(one.mean), _tau(one.best)] for one in agreements]
            rows = [[str(one.number), str(one.layer), *tau] for one, tau in zip(agreements, taus, strict=True)]
            console().print(Aligned([kind, "layer", "this node", "mean over nodes", "of the best head"], rows))
    if found.stability.meaning:
        say(found.stability.meaning)
    if not found.stability.epochs:
        say("No orders of earlier epochs were recorded; train with --set record_orderings=[0,10,100] to record them.")
    if not found.stability.seeds:
        say("There is no run with another seed in the same folder to compare the order with.")


def _tau(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.3f}"


def _more(count: int) -> None:
    if count > ROWS:
        say(f"... and {count - ROWS} more; --json FILE writes all of them.")
