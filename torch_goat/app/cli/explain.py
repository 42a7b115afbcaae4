import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.options import DataDir, Force, check_new
from torch_goat.app.explain import Agreement, Explanation
from torch_goat.app.explain import explain as explain_node
from torch_goat.experiments import Run
from torch_goat.experiments.information.charts import new_figure
from torch_goat.files import write_atomic

ROWS = 20  # of a table; the JSON file has all


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that is done.")],
    node: Annotated[str, typer.Option("--node", metavar="ID", help="The node, by its id.")],
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")] = None,
    figure: Annotated[Path | None, typer.Option("--figure", metavar="FILE.png", help="Draw it.")] = None,
    force: Force = False,
    data_dir: DataDir = None,
) -> None:
    """Show why a node got its prediction: its neighbours in learned order, and what each of them contributes.

    Example: goat explain runs/top2-goat-s0 --node 17 --figure why.png
    """
    for file in (json_file, figure):
        check_new(file, force)
    if figure is not None:
        new_figure(figure)  # checks the file ending and that matplotlib is installed
    found = explain_node(Run(run), node, data_dir=data_dir)
    if json_file is not None:
        write_atomic(json_file, json.dumps(found.to_dict(), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    if figure is not None:
        from torch_goat.app.explain.figure import save_figure

        save_figure(found, figure)
    _show(found)
    for what, file in (("Everything", json_file), ("The figure", figure)):
        if file is not None:
            say(f"{what} is in {file}")


def _show(found: Explanation) -> None:
    said, ids = found.prediction, found.graph.ids
    text = f"Node {ids[found.node]}: predicted {found.label(said.value)}"
    text += f" with probability {said.probability:.3f}" if found.graph.classes else ""
    truth = found.label(said.truth)
    count = f"{len(found.effects)} neighbour{'' if len(found.effects) == 1 else 's'}"
    say(f"{text}; {f'it is {truth}' if truth else 'what it is is not known'}. {count}.")
    _orders(found)
    if found.effects:
        what = "probability without" if found.graph.classes else "prediction without"
        say(f"What each neighbour contributes ({found.unit}), every one left out in turn:")
        kind = ".4f" if found.graph.classes else ".4g"  # a number may be of any size
        rows = [
            [ids[one.neighbor], f"{one.contribution:+{kind}}", f"{one.without:{kind}}"] for one in found.effects[:ROWS]
        ]
        console().print(Aligned(["neighbour", "contribution", what], rows))
        _more(len(found.effects))
    if found.interactions:
        say("Interactions: the contribution of two together less the sum of their own, of the strongest neighbours:")
        pairs = found.interactions[:ROWS]
        rows = [[ids[one.first], ids[one.second], f"{one.value:+{kind}}"] for one in pairs]
        console().print(Aligned(["neighbour", "and", "interaction"], rows))
        _more(len(found.interactions))
    _stability(found)


def _orders(found: Explanation) -> None:
    """A column per head, in its order."""
    if not found.readings:
        say("There is no learned order: the network has no GOAT layer.")
        return
    ids = found.graph.ids
    columns = [f"layer {one.layer}, head {one.head}" for one in found.readings]
    longest = max(len(one.neighbors) for one in found.readings)
    if not longest:
        say("There is nothing to order: the node has no neighbours, and no layer puts it among them.")
        return
    rows = []
    for place in range(min(longest, ROWS)):
        cells = [
            f"{ids[one.neighbors[place]]} ({one.coefficients[place]:.3f})" if place < len(one.neighbors) else ""
            for one in found.readings
        ]
        rows.append([str(place + 1), *cells])
    itself = "; the node itself is among them" if any(found.node in one.neighbors for one in found.readings) else ""
    say(f"The neighbours in learned order, with their coefficients{itself}:")
    for some in _blocks(["place", *columns], rows, console().width):
        console().print(some)
    _more(longest)


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Aligned]:
    """The table, below each other as many columns as fit, each time after the first one."""
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


def _stability(found: Explanation) -> None:
    if not found.readings:
        return
    kinds = {"epoch": found.stability.epochs, "seed": found.stability.seeds}
    for kind, agreements in kinds.items():
        if agreements:
            say(f"Kendall's tau of the order with that of another {kind} (1: the same order, 0: unrelated):")
            console().print(Aligned([kind, "layer", "this node", "mean over nodes"], map(_agreement, agreements)))
    missing = [kind for kind, agreements in kinds.items() if not agreements]
    if "epoch" in missing:
        say("No orders of earlier epochs were recorded; training with --set record_orderings=[0,10,100] does.")
    if "seed" in missing:
        say("There is no run of another seed beside this one to compare the order with.")


def _agreement(one: Agreement) -> Sequence[str]:
    values = ["" if math.isnan(value) else f"{value:+.3f}" for value in (one.here, one.mean)]
    return [str(one.number), str(one.layer), *values]


def _more(count: int) -> None:
    if count > ROWS:
        say(f"... and {count - ROWS} more; --json FILE writes all of them.")
