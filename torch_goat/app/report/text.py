"""The sentences and tables of a report."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch_geometric.utils import is_undirected, remove_self_loops

from torch_goat.app.explain import Stability
from torch_goat.app.report.measures import degrees
from torch_goat.experiments import Experiment, NamedGraph, Result, Run
from torch_goat.experiments.comparison import RunGroup
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER

Groups = Sequence[RunGroup[Run]]
SPLITS = {"train": "training", "val": "validation", "test": "test"}
METRICS = {
    "accuracy": "accuracy (%)",
    "macro_f1": "macro F1 (%)",
    "roc_auc": "ROC AUC (%)",
    "pr_auc": "PR AUC (%)",
    "mse": "mean squared error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
}


class Table(NamedTuple):
    """A table of the page; the first cell of each row is its heading."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def title(groups: Groups) -> str:
    models = list(dict.fromkeys(group.best.experiment.model.name for group in groups))
    listed = models[0] if len(models) == 1 else f"{', '.join(models[:-1])} and {models[-1]}"
    return f"{listed} on {groups[0].best.experiment.dataset}"


def run_name(group: RunGroup[Run]) -> str:
    experiment = group.best.experiment
    return f"{group.label} (seed {experiment.seed}, split {experiment.index})"


def summary(groups: Groups, graph: NamedGraph) -> str:
    """The result in one or two sentences."""
    best = groups[0]
    dataset, tested = best.best.experiment.dataset, int(graph.data.test_mask.sum())
    if not tested or not math.isfinite(best.mean):
        return f"{best.label} has the best validation result on {dataset}. There are no test nodes to evaluate it on."
    value = number(best.mean, best.metric, unit=True)
    model = f"{best.label}, the best model on the validation nodes," if len(groups) > 1 else best.label
    if best.metric == "accuracy":
        text = f"{model} classifies {value} of the {tested:,} test nodes of {dataset} correctly"
    else:
        metric = METRICS[best.metric].partition(" (")[0]
        text = f"{model} has a {metric} of {value} on the {tested:,} test nodes of {dataset}"
    if math.isfinite(best.interval[0]):
        text += f" (95 % interval: {_interval(best)})"
    return f"{text}{_difference(groups)} {_trivial(graph)}"


def _difference(groups: Groups) -> str:
    if len(groups) < 2:
        return "."
    best, others = groups[0], groups[1:]
    lower = best.metric in LOWER_IS_BETTER
    second = (min if lower else max)(others, key=lambda group: group.mean)
    difference = best.mean - second.mean
    size = f"{abs(difference):.3g}" if lower else f"{abs(100 * difference):.1f} points"
    direction = "above" if difference >= 0 else "below"
    which = f", the best of the {len(others)} others" if len(others) > 1 else ""
    overlap = best.interval[0] <= second.interval[1] and second.interval[0] <= best.interval[1]
    return f", {size} {direction} {second.label}{which}{'; their intervals overlap' if overlap else ''}."


def _trivial(graph: NamedGraph) -> str:
    y, train, test = graph.truth, graph.data.train_mask, graph.data.test_mask
    if graph.classes:
        share = float((y[test] == y[train].mode().values).double().mean())
        return f"Always predicting the most frequent class would be correct for {100 * share:.1f} %."
    error = float((y[test].double() - y[train].double().mean()).square().mean())
    return f"Always predicting the training mean would have a mean squared error of {number(error, 'mse')}."


def data_table(graph: NamedGraph) -> Table:
    data = graph.data
    degree, edges = degrees(data).double(), data.edge_index.size(1)
    shown = f"{edges:,}"
    if is_undirected(data.edge_index, num_nodes=data.num_nodes):
        loops = edges - remove_self_loops(data.edge_index)[0].size(1)
        shown = f"{(edges - loops) // 2 + loops:,} (undirected)"
    rows = [
        ["nodes", f"{data.num_nodes:,}"],
        ["edges", shown],
        ["neighbours per node", f"{int(degree.min()):,} to {int(degree.max()):,}, median {degree.median():.0f}"],
        ["node features", f"{data.num_features:,}"],
    ]
    if data.get("edge_attr") is not None:
        rows.append(["edge features", f"{data.edge_attr.view(data.edge_attr.size(0), -1).size(1):,}"])
    rows.append([graph.target or "target", f"{len(graph.classes)} classes" if graph.classes else "a number"])
    return Table("Graph", ["property", "value"], rows)


def split_table(graph: NamedGraph, experiment: Experiment) -> Table:
    data, y, rows = graph.data, graph.truth, []
    for split, name in SPLITS.items():
        mask = data[f"{split}_mask"]
        size = int(mask.sum())
        rows.append([name, f"{size:,}", f"{100 * size / data.num_nodes:.1f}", _range(y[mask], graph)])
    about = "most frequent class (% of part)" if graph.classes else "target"
    title = f"Split {experiment.index} ({experiment.split or 'predefined'})"
    return Table(title, ["part", "nodes", "% of nodes", about], rows)


def _range(y: torch.Tensor, graph: NamedGraph) -> str:
    if y.numel() == 0:
        return "–"
    if not graph.classes:
        return f"{float(y.min()):.3g} to {float(y.max()):.3g}, mean {float(y.double().mean()):.3g}"
    most = int(y.mode().values)
    return f"{graph.classes[most]} ({100 * float((y == most).double().mean()):.0f})"


def comparison_table(groups: Groups, test_nodes: int) -> Table:
    metric = METRICS.get(groups[0].metric, groups[0].metric)
    columns = ["model", f"test {metric}", "95 % interval", "interval over", f"validation {metric}"]
    cells = []
    for group in groups:
        runs = len(group.runs)
        basis = f"{runs} runs" if runs > 1 else f"{test_nodes:,} test nodes of one run"
        interval, basis = (_interval(group), basis) if math.isfinite(group.interval[0]) else ("–", "–")
        means = [number(mean, group.metric) for mean in (group.mean, group.rank_mean)]
        cells.append([group.label, means[0], interval, basis, means[1]])
    return Table("All models, best validation first", columns, cells)


def comparison_notes(
    groups: Groups, other_data: Sequence[str], left_out: Sequence[str], shown: RunGroup[Run]
) -> list[str]:
    notes = ["Models are ranked on the validation nodes and evaluated on the test nodes."]
    if shown is not groups[0]:
        notes.append(
            f"{groups[0].label} was trained with fixed orders, which are not stored with the network; the rest of this "
            f"page is about {shown.label}."
        )
    if any(len(group.runs) > 1 for group in groups):
        notes.append("For several runs, the interval is Student's t interval of their mean over seeds and splits.")
    if any(len(group.runs) == 1 for group in groups):
        notes.append(
            "For a single run, the interval covers the random choice of test nodes, but not the variation over seeds."
        )
    if other_data:
        notes.append(
            f"Runs on other data are not shown: {', '.join(other_data)}. Create a separate report for their folder."
        )
    if left_out:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        notes.append(f"Not included: {'; '.join(left_out[:3])}{more}.")
    return notes


def metrics_table(result: Result) -> Table:
    metrics = list(next(iter(result.metrics.values())))
    rows = [
        [SPLITS[split], *(number(values[metric], metric) for metric in metrics)]
        for split, values in result.metrics.items()
    ]
    return Table("Metrics of the best epoch", ["part", *(METRICS.get(one, one) for one in metrics)], rows)


def seeds_table(stability: Stability) -> Table:
    rows = []
    for one in stability.seeds:
        taus = (f"{tau:+.3f}".replace("-", "−") if math.isfinite(tau) else "–" for tau in (one.mean, one.best))
        rows.append([str(one.number), str(one.layer), *taus])
    columns = ["seed", "GOAT layer", "Kendall's tau, mean over nodes and heads", "of the best head"]
    return Table("Agreement with other seeds", columns, rows)


def order_notes(stability: Stability, ordered: bool) -> list[str]:
    if not ordered:
        return ["The network has no GOAT layer, so there is no learned order."]
    if stability.given:
        return ["The order is given by the edges, not learned, so it is the same in every epoch and for every seed."]
    notes = ["Kendall's tau is 1 for equal orders, 0 for unrelated orders and −1 for reversed orders."]
    if stability.seeds:
        reversed_too = ", and reversed orders count as equal" if stability.reversible else ""
        notes.append(f"Heads of different seeds are matched so that they agree most{reversed_too}.")
        notes += [stability.meaning] if stability.meaning else []
    else:
        notes.append("There is no run with another seed to compare the order with.")
    if stability.epochs and not any(math.isfinite(one.mean) for one in stability.epochs):
        notes.append("No node has two neighbours, so there are no orders to compare.")
    if not stability.epochs:
        notes.append("No orders of earlier epochs were recorded; train with --set record_orderings=[0,10,100].")
    return notes


def viewer_text(graph: NamedGraph, reader: str, included: int, ordered: bool, named: bool) -> str:
    text = f"The neighbours of a node in the network of {reader}"
    if ordered:
        text += ", in the order of each head. Bars show attention coefficients, rounded to 1/255 of the largest"
    what = "log-odds of the predicted class drop" if graph.classes else "prediction drops"
    support = ("supports", "opposes") if graph.classes else ("raises", "lowers")
    text += f". The contribution of a neighbour is how much the {what} if its edges to the node are removed from all"
    text += f" layers: blue {support[0]} the prediction, orange {support[1]} it."
    text += "" if named else " Contributions are shown for the test nodes with the largest errors."
    if included < graph.data.num_nodes:
        text += f" This page contains the neighbourhoods of {included:,} of {graph.data.num_nodes:,} nodes."
    return text


def cost_table(groups: Groups) -> Table:
    columns = ["model", "runs", "epochs", "seconds", "seconds per epoch", "memory (MiB)"]
    cells = []
    for group in groups:
        results = [run.result for run in group.runs]
        costs = [(one.epochs, one.seconds, one.seconds_per_epoch, one.peak_memory_bytes / 2**20) for one in results]
        epochs, seconds, per_epoch, memory = (sum(values) / len(results) for values in zip(*costs, strict=True))
        cells.append(
            [group.label, str(len(results)), f"{epochs:.0f}", f"{seconds:.1f}", f"{per_epoch:.3g}", f"{memory:,.0f}"]
        )
    return Table("Cost of training (mean over runs) and peak memory", columns, cells)


def environment_table(result: Result) -> Table:
    rows = [["device", result.device], *([key, value] for key, value in result.versions.items())]
    rows += [["commit", result.commit]] if result.commit else []
    return Table("Environment of the run shown in detail", ["component", "version"], rows)


def number(value: float, metric: str, unit: bool = False) -> str:
    """A formatted metric; shares are percentages."""
    if not math.isfinite(value):
        return "–"
    if metric in LOWER_IS_BETTER or metric == "r2":
        return f"{value:.4g}"
    return f"{100 * value:.1f}{' %' if unit else ''}"


def _interval(group: RunGroup[Run]) -> str:
    return " to ".join(number(end, group.metric) for end in group.interval)
