import csv
import io
from pathlib import Path
from typing import NamedTuple

import torch

from torch_goat.data.tables import apply_schema
from torch_goat.experiments.run import Run
from torch_goat.settings import SettingsError


class Predictions(NamedTuple):
    """What a network says of new nodes."""

    ids: tuple[str, ...]  # of the nodes
    values: tuple[str | float, ...]  # the class or the number of each
    classes: tuple[str, ...]  # none for regression
    probabilities: torch.Tensor  # of the classes [n, C]
    truth: tuple[str | None, ...] | None  # what the table says, where it has the column
    notes: tuple[str, ...]

    def to_csv(self) -> str:
        """A line per node: its name, the prediction and the probability of every class."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["id", "prediction", *(f"probability of {name}" for name in self.classes)])
        for number, (name, value) in enumerate(zip(self.ids, self.values, strict=True)):
            shown = value if isinstance(value, str) else f"{value:.7g}"
            table.writerow([name, shown, *(f"{share:.6f}" for share in self.probabilities[number].tolist())])
        return text.getvalue()


def predict(run: Run, nodes: str | Path, edges: str | Path = "", *, join: bool = False) -> Predictions:
    """Applies a network to new nodes, or to another graph, whose tables have the columns that it was trained on.

    Args:
        run: The run of the network, on tables of one's own.
        nodes: The file of the nodes, or a GraphML file with everything.
        edges: The file of the edges; empty for GraphML.
        join: Whether the new nodes are joined to the graph that the network was trained on, so that edges may lead
            there.
    """
    network, schema = run.network, run.schema
    if schema is None:
        raise SettingsError(
            f"the run in {run.folder} was trained on the dataset {run.experiment.dataset!r}, which has no columns to "
            "read from tables; train on tables (goat datasets export writes them)."
        )
    new = apply_schema(schema, str(nodes), str(edges), join=run.experiment.tables if join else None)
    inputs = [new.data.x, new.data.edge_index] + ([] if new.data.edge_attr is None else [new.data.edge_attr])
    with torch.no_grad():
        out = network(*inputs)[-len(new.ids) :].double()  # [n, C]
    truth = None if new.target is None else tuple(None if value != value else value for value in new.target)
    if schema.task == "regression":
        numbers = tuple((out.view(-1) * schema.target_scale + schema.target_mean).tolist())
        return Predictions(new.ids, numbers, (), out.new_empty(len(new.ids), 0), truth, new.notes)
    named = tuple(schema.classes[number] for number in out.argmax(dim=-1).tolist())
    return Predictions(new.ids, named, schema.classes, out.softmax(dim=-1), truth, new.notes)
