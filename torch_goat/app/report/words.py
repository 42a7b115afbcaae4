"""What a report says, in sentences and tables."""

import math
from collections.abc import Sequence

import torch

from torch_goat.app.explain import Stability
from torch_goat.app.explain.explanation import truths
from torch_goat.app.report.compare import Row
from torch_goat.app.report.measures import degrees
from torch_goat.app.report.page import Table
from torch_goat.experiments import Experiment, NamedGraph, Result
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER
from torch_goat.experiments.training.task import SPLITS

PARTS = {"train": "training", "val": "validation", "test": "test"}
METRICS = {
    "accuracy": "accuracy (%)",
    "macro_f1": "macro F1 (%)",
    "roc_auc": "ROC AUC (%)",
    "mse": "mean squared error",
}


def title(rows: Sequence[Row], named: NamedGraph) -> str:
    """What the page is about."""
    models = list(dict.fromkeys(row.runs[0].experiment.model.name for row in rows))
    listed = models[0] if len(models) == 1 else f"{', '.join(models[:-1])} and {models[-1]}"
    return f"{listed} on {rows[0].runs[0].experiment.dataset}"


def name(row: Row, experiment: Experiment) -> str:
    """A run among others."""
    return f"{row.label} (seed {experiment.seed}, split {experiment.index})"


def summary(rows: Sequence[Row], named: NamedGraph) -> str:
    """The result in a sentence or two."""
    best, data = rows[0], named.data
    dataset, tested = best.runs[0].experiment.dataset, int(data.test_mask.sum())
    if not tested or not math.isfinite(best.mean):
        return f"{best.label} has the best validation on {dataset}; there are no test nodes to judge it by."
    value = number(best.mean, best.metric, unit=True)
    chosen = f"{best.label}, chosen by validation," if len(rows) > 1 else best.label
    if best.metric == "accuracy":
        text = f"{chosen} is right about {value} of the {tested:,} test nodes of {dataset}"
    else:
        metric = METRICS[best.metric].partition(" (")[0]
        text = f"{chosen} predicts the {tested:,} test nodes of {dataset} with a {metric} of {value}"
    if math.isfinite(best.low):
        text += f" (95 % interval {number(best.low, best.metric)} to {number(best.high, best.metric)})"
    return f"{text}{_beside(rows)}{_guess(best, named)}"


def _beside(rows: Sequence[Row]) -> str:
    """How the best compares with the best of the others."""
    if len(rows) < 2:
        return "."
    best, others = rows[0], rows[1:]
    lower = best.metric in LOWER_IS_BETTER
    second = (min if lower else max)(others, key=lambda row: row.mean)
    difference = best.mean - second.mean
    if best.metric not in LOWER_IS_BETTER:
        way = f"{abs(100 * difference):.1f} points {'above' if difference >= 0 else 'below'}"
    else:
        way = f"{abs(difference):.3g} {'above' if difference >= 0 else 'below'}"
    overlap = best.low <= second.high and second.low <= best.high
    doubt = "; their intervals overlap" if overlap else ""
    place = f", the best of the {len(others)} others" if len(others) > 1 else ""
    return f", {way} {second.label}{place}{doubt}."


def _guess(best: Row, named: NamedGraph) -> str:
    """What could be had without a model."""
    y, train, test = truths(named), named.data.train_mask, named.data.test_mask
    if named.classes:
        share = float((y[test] == y[train].mode().values).double().mean())
        return f" Always naming the most frequent class would be right about {100 * share:.1f} %."
    error = float((y[test].double() - y[train].double().mean()).square().mean())
    return f" Always naming the training mean would have {number(error, 'mse')}."


def data_table(named: NamedGraph) -> Table:
    """What the graph is."""
    data = named.data
    degree, loops = degrees(data).double(), int((data.edge_index[0] == data.edge_index[1]).sum())
    pairs = data.edge_index.flip(0)
    code = data.edge_index[0] * data.num_nodes + data.edge_index[1]
    both = bool(torch.isin(pairs[0] * data.num_nodes + pairs[1], code).all())
    edges = data.edge_index.size(1)
    rows = [
        ["nodes", f"{data.num_nodes:,}"],
        ["edges", f"{(edges - loops) // 2 + loops:,} in both directions" if both else f"{edges:,}"],
        ["neighbours of a node", f"{int(degree.min()):,} to {int(degree.max()):,}, median {degree.median():.0f}"],
        ["features of a node", f"{data.num_features:,}"],
    ]
    if data.get("edge_attr") is not None:
        rows.append(["features of an edge", f"{data.edge_attr.view(data.edge_attr.size(0), -1).size(1):,}"])
    rows.append([named.target or "target", f"{len(named.classes)} classes" if named.classes else "a number"])
    return Table("The graph", ["what", "how many"], rows)


def split_table(named: NamedGraph, experiment: Experiment) -> Table:
    """How many nodes every part of the split has, and of which classes."""
    data, y, rows = named.data, truths(named), []
    for split in SPLITS:
        mask = data[f"{split}_mask"]
        size = int(mask.sum())
        rows.append([PARTS[split], f"{size:,}", f"{100 * size / data.num_nodes:.1f}", _range(y[mask], named)])
    about = "most frequent class (% of part)" if named.classes else "target"
    protocol = f"The split: {experiment.split or 'its own'}, number {experiment.index}"
    return Table(protocol, ["part", "nodes", "% of nodes", about], rows)


def _range(y: torch.Tensor, named: NamedGraph) -> str:
    if y.numel() == 0:
        return "–"
    if not named.classes:
        return f"{float(y.min()):.3g} to {float(y.max()):.3g}, mean {float(y.double().mean()):.3g}"
    most = int(y.mode().values)
    return f"{named.classes[most]} ({100 * float((y == most).double().mean()):.0f})"


def comparison_table(rows: Sequence[Row]) -> Table:
    """The models beside each other."""
    metric = METRICS.get(rows[0].metric, rows[0].metric)
    columns = ["model", f"test {metric}", "95 % interval", "interval of", f"validation {metric}"]
    cells = []
    for row in rows:
        interval = f"{number(row.low, row.metric)} to {number(row.high, row.metric)}" if row.low == row.low else "–"
        cells.append(
            [row.label, number(row.mean, row.metric), interval, row.basis or "–", number(row.validation, row.metric)]
        )
    return Table("All models, the best validation first", columns, cells)


def comparison_notes(
    rows: Sequence[Row], other_data: Sequence[str], left_out: Sequence[str], looked_at: Row
) -> list[str]:
    """What a reader should know of the comparison."""
    notes = ["The validation nodes choose the best model; the test nodes judge it."]
    if looked_at is not rows[0]:
        notes.append(
            f"{rows[0].label} was trained with orders held fixed, which its network alone does not know; "
            f"{looked_at.label} is looked at in its place."
        )
    bases = {len(row.runs) > 1 for row in rows}
    if True in bases:
        notes.append("Of several runs, the interval is that of their mean (Student's t), over seeds and splits.")
    if False in bases:
        notes.append(
            "Of one run, the interval says how far chance in the choice of test nodes reaches; other seeds vary too."
        )
    if other_data:
        notes.append(
            f"Runs on other data are not shown: {', '.join(other_data)}. Name their folder for a report on them."
        )
    if left_out:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        notes.append(f"Left out: {'; '.join(left_out[:3])}{more}.")
    return notes


def metrics_table(result: Result) -> Table:
    """Every metric of every part, as ``result.json`` has it."""
    metrics = list(next(iter(result.metrics.values())))
    rows = [
        [PARTS[split], *(number(values[metric], metric) for metric in metrics)]
        for split, values in result.metrics.items()
    ]
    return Table("Metrics of the weights that were kept", ["part", *(METRICS.get(one, one) for one in metrics)], rows)


def seeds_table(steady: Stability) -> Table:
    """How near the orders of other seeds are."""
    rows = [[str(one.number), str(one.layer), _tau(one.mean)] for one in steady.seeds]
    return Table("Agreement with other seeds", ["seed", "GOAT layer", "Kendall's tau, mean over nodes"], rows)


def order_notes(steady: Stability, ordered: bool) -> list[str]:
    """What a reader should know of orders and their agreement."""
    if not ordered:
        return ["The network has no GOAT layer, so there is no learned order."]
    notes = [
        "Kendall's tau is 1 where two orders are the same, 0 where they are unrelated, −1 where one is the reverse."
    ]
    if steady.seeds:
        notes.append("Heads of different seeds have nothing in common, so the orders by mean coefficient are compared.")
    else:
        notes.append("There is no run of another seed to compare the order with.")
    if steady.epochs and not any(math.isfinite(one.mean) for one in steady.epochs):
        notes.append("No node has a neighbour, so there is no order to compare.")
    if not steady.epochs:
        notes.append("No orders of earlier epochs were recorded; training with --set record_orderings=[0,10,100] does.")
    return notes


def viewer_text(named: NamedGraph, reader: str, included: int, ordered: bool, asked: bool) -> str:
    """What the viewer shows."""
    text = f"The neighbours of a node as {reader} reads them"
    if ordered:
        text += ", in the order of each head. Bars are attention coefficients, rounded to 1/255 of the largest"
    what = "prediction (the log-odds of its class)" if named.classes else "prediction"
    ways = ("speaks for it", "against it") if named.classes else ("raises it", "lowers it")
    text += f". A contribution is what the {what} loses if the neighbour's edges to the node are left out of every"
    text += f" layer: blue {ways[0]}, orange {ways[1]}."
    text += "" if asked else " Contributions are of the test nodes whose predictions are furthest from the truth."
    if included < named.data.num_nodes:
        text += f" The page has room for the neighbourhoods of {included:,} of {named.data.num_nodes:,} nodes."
    return text


def cost_table(rows: Sequence[Row]) -> Table:
    """Time and memory of every model, in the mean over its runs."""
    columns = ["model", "runs", "epochs", "seconds", "seconds per epoch", "memory (MiB)"]
    cells = []
    for row in rows:
        results = [run.result for run in row.runs]
        mean = [sum(values) / len(results) for values in zip(*map(_costs, results), strict=True)]
        cells.append(
            [row.label, str(len(results)), f"{mean[0]:.0f}", f"{mean[1]:.1f}", f"{mean[2]:.3g}", f"{mean[3]:,.0f}"]
        )
    return Table("Cost of training, mean over runs; memory is the most that was in use", columns, cells)


def _costs(result: Result) -> tuple[float, float, float, float]:
    return result.epochs, result.seconds, result.seconds_per_epoch, result.peak_memory_bytes / 2**20


def environment_table(result: Result) -> Table:
    """What it ran on."""
    rows = [["device", result.device], *([key, value] for key, value in result.versions.items())]
    rows += [["commit", result.commit]] if result.commit else []
    return Table("Environment of the run that is looked at", ["what", "which"], rows)


def number(value: float, metric: str, unit: bool = False) -> str:
    """A metric as the page shows it: shares in percent."""
    if not math.isfinite(value):
        return "–"
    if metric in LOWER_IS_BETTER or metric == "r2":
        return f"{value:.4g}"
    return f"{100 * value:.1f}{' %' if unit else ''}"


def _tau(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−") if math.isfinite(value) else "–"
