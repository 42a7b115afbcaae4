import csv
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from torch_goat.data.tables import TableError, apply_schema, load_tables
from torch_goat.experiments.run import Run
from torch_goat.files import csv_text
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import NewGraph

FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a formula begins, to some spreadsheet


class Predictions(NamedTuple):
    """The predictions of a network for new nodes."""

    ids: tuple[str, ...]  # of the nodes
    values: tuple[str | float, ...]  # the predicted class or number of each
    classes: tuple[str, ...]  # empty for regression
    probabilities: torch.Tensor  # of the classes [n, C], calibrated on the validation nodes of the run
    truth: tuple[str | None, ...] | None  # the targets, if the table has them
    notes: tuple[str, ...]  # remarks about the files for the user
    #: The part of each id in the split of the run: "train", "val", "test" or "" (none). ``None`` if no target is known,
    #: or if the tables of the run are gone or have changed.
    split: tuple[str, ...] | None = None

    @property
    def pairs(self) -> list[tuple[str | float, str]]:
        """The predicted and true values of nodes with a known target that the run did not train or validate on."""
        found = zip(self.values, self.truth or (), self.split or repeat(""), strict=False)
        return [(value, true) for value, true, part in found if true is not None and part not in ("train", "val")]

    def to_csv(self, *, safe: bool = False) -> str:
        """One line per node: its name, the prediction and the probability of every class.

        Args:
            safe: Whether to put an apostrophe before texts that a spreadsheet would read as formulas.
        """

        def cell(value: str | float) -> str:
            if not isinstance(value, str):
                return f"{value:.12g}"  # more digits than 32 bits have, as numbers may vary little next to their mean
            return f"'{value}" if safe and value.startswith(FORMULAS) else value

        breaks = any("\r" in name for name in (*self.ids, *self.classes))  # which the writer does not quote
        rows = [["id", "prediction", *(f"probability of {name}" for name in self.classes)]]
        for name, value, shares in zip(self.ids, self.values, self.probabilities.tolist(), strict=True):
            rows.append([cell(name), cell(value), *(f"{share:.6f}" for share in shares)])
        return csv_text(rows, csv.QUOTE_ALL if breaks else csv.QUOTE_MINIMAL)


def predict(run: Run, nodes: str | Path, edges: str | Path = "", *, join: bool = False) -> Predictions:
    """Predicts new nodes, or another graph, from tables with the columns that the network was trained on.

    Probabilities are calibrated on the validation nodes of the run, whose threshold, if any, decides the class.

    Args:
        run: A finished run on tables.
        nodes: The file of the nodes, or a GraphML file with nodes and edges.
        edges: The file of the edges; empty for GraphML.
        join: Whether to add the new nodes to the training graph, so that edges can connect them to its nodes.
    """
    network, schema = run.network, run.schema
    if schema is None:
        raise SettingsError(
            f"the run in {run.folder} was trained on the dataset {run.experiment.dataset!r}, not on tables; train on "
            "tables to predict from tables (goat datasets export writes them)."
        )
    if not network.options.given_order:
        schema = replace(schema, order_by="")  # which a baseline does not read
    new = apply_schema(schema, str(nodes), str(edges), join=run.tables if join else None)
    with torch.no_grad():
        out = network.on(new.data)[-len(new.ids) :].double()  # [n, C]
    truth = None if new.target is None else tuple(None if value != value else value for value in new.target)
    unknown = new.target is None or new.target.isna().all()
    split = None if unknown else _split(run, new, str(nodes), str(edges))
    if schema.task == "regression":
        numbers = tuple((out.view(-1) * schema.target_scale + schema.target_mean).tolist())
        return Predictions(new.ids, numbers, (), out.new_empty(len(new.ids), 0), truth, new.notes, split)
    decision, notes = run.result.decision, new.notes
    named = tuple(schema.classes[number] for number in decision.classes(out).tolist())
    if decision.threshold is not None:
        positive = schema.classes[1]
        notes += (f"the class {positive!r} is predicted if its probability is at least {decision.threshold:.4g}.",)
    return Predictions(new.ids, named, schema.classes, decision.probabilities(out), truth, notes, split)


def _split(run: Run, new: "NewGraph", nodes: str, edges: str) -> tuple[str, ...] | None:
    """The part of each node in the split of the run, as in :class:`Predictions`."""
    import pandas as pd

    from torch_goat.data.tables.columns import find_texts

    try:
        tables = run.tables
        assert tables is not None
        if new.digest == tables.digest:  # wherever they are now
            tables = replace(tables, nodes=nodes, edges=edges)
        own = load_tables(tables, run.experiment.index, run.schema)
    except TableError:
        return None
    parts = [""] * (len(own.ids) + 1)  # the last one for nodes that the run did not know
    for part in ("train", "val", "test"):
        for node in own.data[f"{part}_mask"].nonzero().view(-1).tolist():
            parts[node] = part
    return tuple(parts[place] for place in find_texts(pd.Series(new.ids, dtype="category"), own.ids))
