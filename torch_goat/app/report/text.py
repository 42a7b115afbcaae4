"""The sentences and tables of a report."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch_geometric.utils import is_undirected, remove_self_loops

from torch_goat.app.explain import Importance, Stability
from torch_goat.app.explain.importance import MAX_COLUMNS
from torch_goat.app.report.measures import degrees
from torch_goat.experiments import Experiment, NamedGraph, Result, Run
from torch_goat.experiments.comparison import Ranking, RunGroup
from torch_goat.experiments.training import metrics
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER
from torch_goat.experiments.verdict import Difference

Groups = Sequence[RunGroup[Run]]
SPLITS = {"train": "training", "val": "validation", "test": "test"}


class Table(NamedTuple):
    """A table of the page; the first cell of each row is its heading."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Answer(NamedTuple):
    """What the page says first."""

    verdict: str
    details: list[str]
    recommendation: str


def title(groups: Groups, graph: NamedGraph) -> str:
    """The question that the page answers."""
    target = graph.target or ("the class of a node" if graph.classes else "the target of a node")
    dataset = groups[0].best.experiment.dataset
    if len(groups) > 1:
        return f"Which model predicts {target} best on {dataset}?"
    return f"How well does {groups[0].name} predict {target} on {dataset}?"


def run_name(group: RunGroup[Run]) -> str:
    experiment = group.best.experiment
    return f"{group.name} (seed {experiment.seed}, split {experiment.index})"


def answer(ranking: Ranking[Run], graphs: Sequence[NamedGraph]) -> Answer:
    """The verdict on several models, or how good a single one is; ``graphs`` are those of the best model's splits."""
    best, verdict = ranking.groups[0], ranking.verdict
    tested = all(bool(graph.data.test_mask.any()) for graph in graphs) and math.isfinite(best.mean)
    if tested:
        level = [_level(best, graphs[0]), _trivial(ranking, graphs)]
    else:
        level = [f"There are no test nodes to evaluate {best.name} on."]
    if verdict is None:
        others = "To compare it with other models, train them on the same data and create a report on all runs."
        return Answer(level[0], level[1:], others)
    first, *details, advice = verdict.sentences
    return Answer(first, [*details, " ".join(level)], advice)


def _level(group: RunGroup[Run], graph: NamedGraph) -> str:
    name, value, runs = group.name, number(group.mean, group.metric, unit=True), len(group.runs)
    nodes = "test nodes" if runs > 1 else f"{int(graph.data.test_mask.sum()):,} test nodes"
    if group.metric == "accuracy":
        text = f"{name} classifies {value} of the {nodes} correctly"
    else:
        text = f"{name} has a {metrics.NAMES.get(group.metric, group.metric)} of {value} on the {nodes}"
    text += f", on average over {runs} runs" if runs > 1 else ""
    return f"{text} (95 % interval: {_interval(group)})." if math.isfinite(group.interval[0]) else f"{text}."


def _trivial(ranking: Ranking[Run], graphs: Sequence[NamedGraph]) -> str:
    """The same metric, averaged over splits, of predicting the most frequent class or the training mean."""
    metric, values = ranking.metric, []
    for graph in graphs:
        y, train, test = graph.truth, graph.data.train_mask, graph.data.test_mask
        if graph.classes:
            out, target = torch.zeros(int(test.sum()), len(graph.classes)), y[test].long()
            out[:, int(y[train].mode().values)] = 1
        else:
            target = y[test].double().view(-1, 1)
            out = torch.full_like(target, float(y[train].double().mean()))
        values.append(float(getattr(metrics, metric)(out, target)))
    what = "the most frequent class" if graphs[0].classes else "the training mean"
    value = number(sum(values) / len(values), metric, unit=True)
    return f"If all predictions were {what}, the {metrics.NAMES.get(metric, metric)} would be {value}."


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
        rows.append(["edge features", f"{data.num_edge_features:,}"])
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
        low, high, mean = float(y.min()), float(y.max()), float(y.double().mean())
        farthest = max(abs(low - graph.target_mean), abs(high - graph.target_mean), 1e-30)
        exact, digits = 6 - math.ceil(math.log10(farthest)), graph.digits  # standardised targets have 32 bits
        return f"{round(low, exact):.{digits}g} to {round(high, exact):.{digits}g}, mean {mean:.{digits}g}"
    most = int(y.mode().values)
    return f"{graph.classes[most]} ({100 * float((y == most).double().mean()):.0f})"


def comparison_table(ranking: Ranking[Run], test_nodes: int) -> Table:
    groups, best = ranking.groups, ranking.groups[0]
    metric = metrics.title(ranking.metric)
    columns = ["model", f"test {metric}", "95 % interval", "interval over", f"validation {metric}"]
    if len(groups) > 1:
        points = " (points)" if ranking.metric in metrics.PERCENT else ""
        columns += [f"difference from {best.name}{points}", "its 95 % interval", "conclusion"]
    cells = []
    for group in groups:
        basis = f"{len(group.runs)} runs" if group.varies else f"{test_nodes:,} test nodes of one run"
        interval, basis = (_interval(group), basis) if math.isfinite(group.interval[0]) else ("–", "–")
        means = [number(mean, group.metric) for mean in (group.mean, group.rank_mean)]
        row = [group.name, means[0], interval, basis, means[1]]
        if len(groups) > 1:
            row += ["–", "–", "–"] if group is best else _versus(ranking.difference(group.label, best.label))
        cells.append(row)
    return Table("All models, best validation first", columns, cells)


def _versus(versus: Difference) -> list[str]:
    low, high = (signed(end, versus.metric) for end in versus.interval)
    interval = f"{low} to {high}" if math.isfinite(versus.interval[0]) else "–"
    return [signed(versus.difference, versus.metric), interval, versus.conclusion]


def importance_table(found: Sequence[Importance], metric: str) -> Table:
    what = "increase of the" if metric in LOWER_IS_BETTER else "drop of the"
    rows = [
        [one.feature.name, signed(one.drop, metric), " to ".join(signed(end, metric) for end in one.interval)]
        for one in found
    ]
    columns = ["column", f"{what} {metrics.title(metric, 'points')}", "95 % interval"]
    return Table("Importance of columns", columns, rows)


def comparison_notes(
    groups: Groups, other_data: Sequence[str], left_out: Sequence[str], detail: RunGroup[Run]
) -> list[str]:
    notes = ["Models are ranked on the validation nodes and evaluated on the test nodes. Copies of a run count once."]
    if len(groups) > 1:
        notes.append(
            "Differences are between runs on the same splits; their intervals account for nodes that splits share."
        )
    if detail is not groups[0]:
        notes.append(
            f"{groups[0].name} was trained with fixed orders, which are not stored with the network; the rest "
            f"of this page is about {detail.name}."
        )
    if any(group.varies for group in groups):
        notes.append("For several runs, the interval is Student's t interval of their mean over seeds and splits.")
    if not all(group.varies for group in groups):
        several = ", or several with the same result" if any(len(group.runs) > 1 for group in groups) else ""
        notes.append(
            f"For a single run{several}, the interval covers the random choice of test nodes, but not the variation "
            "over seeds."
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
    names = list(next(iter(result.metrics.values())))
    rows = [
        [SPLITS[split], *(number(values[name], name) for name in names)] for split, values in result.metrics.items()
    ]
    return Table("Metrics of the best epoch", ["part", *map(metrics.title, names)], rows)


def importance_notes(found: Sequence[Importance], total: int, part: str) -> list[str]:
    if not found:
        return [f"The importance of columns is computed for at most {MAX_COLUMNS} columns, but there are {total}."]
    notes = [f"The {len(found)} most important of {total} columns are shown."] if len(found) < total else []
    notes.append(
        f"A column is permuted among all nodes, so that the {part} nodes and their neighbours get the values of other "
        "nodes. Columns with the same information can replace each other, and then neither seems important."
    )
    return notes


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
    notes = [stability.meaning or "There is no run with another seed to compare the order with."]
    notes.append("Kendall's tau is 1 for equal orders, 0 for unrelated orders and −1 for reversed orders.")
    if stability.seeds:
        reversed_too = ", and reversed orders count as equal" if stability.reversible else ""
        notes.append(f"Heads of different seeds are matched so that they agree most{reversed_too}.")
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
        means = [f"{epochs:.0f}", f"{seconds:.1f}", f"{per_epoch:.3g}", f"{memory:,.0f}"]
        cells.append([group.name, str(len(results)), *means])
    return Table("Cost of training (mean over runs) and peak memory", columns, cells)


def environment_table(result: Result) -> Table:
    rows = [["device", result.device], *([key, value] for key, value in result.versions.items())]
    rows += [["commit", result.commit]] if result.commit else []
    return Table("Environment of the run shown in detail", ["component", "version"], rows)


def signed(value: float, metric: str) -> str:
    """A formatted difference of a metric."""
    text = number(abs(value), metric)
    zero = not math.isfinite(value) or float(text) == 0
    return text if zero else f"{'−' if value < 0 else '+'}{text}"


def number(value: float, metric: str, unit: bool = False) -> str:
    """A formatted metric; shares are percentages."""
    if not math.isfinite(value):
        return "–"
    return metrics.number(metric, value) + (" %" if unit and metric in metrics.PERCENT else "")


def _interval(group: RunGroup[Run]) -> str:
    return " to ".join(number(end, group.metric) for end in group.interval)
