import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from torch import Tensor

import torch_goat
from torch_goat.app.explain import Feature, Importance, contributions, features, importance, interactions, stability
from torch_goat.app.explain.explanation import check_learned_order, learns_order
from torch_goat.app.explain.importance import MAX_COLUMNS
from torch_goat.app.explain.removals import forward
from torch_goat.app.report import charts, measures, text
from torch_goat.app.report.viewer import viewer_data
from torch_goat.data.tables.options import SPLITS
from torch_goat.experiments import NamedGraph, Run, RunError, compare_runs, find_runs
from torch_goat.experiments.run import Damaged
from torch_goat.experiments.training.options import data_of
from torch_goat.nn import Ordering
from torch_goat.settings import SettingsError

MAX_NODES: Final = 200  # with contributions
DEFAULT_NODES: Final = 20  # with contributions if the caller names none
PAIRED: Final = 8  # neighbours of such a node whose interactions are computed
SHOWN_COLUMNS: Final = 15  # the most important ones
VALUES: Final = 5  # most important columns whose values are shown with a node


@dataclass(frozen=True)
class Detail:
    """A run that the report shows in detail."""

    run: Run
    graph: NamedGraph
    out: Tensor  # [N, C], the output of its network
    orderings: Sequence[Ordering]  # one per GOAT layer

    @property
    def numbers(self) -> Tensor:
        """The predicted numbers of a regression ``[N]``."""
        return self.graph.in_units(self.out[:, 0])

    @property
    def test(self) -> Tensor:
        return self.graph.data.test_mask.nonzero().view(-1)

    def test_errors(self) -> Tensor:
        """The error of each test node: 1 minus the probability of the true class, or the squared error."""
        truth = self.graph.truth[self.test]
        if not self.graph.classes:
            return (self.numbers[self.test] - truth).square()
        shares = self.graph.decision.probabilities(self.out[self.test])
        return 1 - shares.gather(1, truth.long().clamp(min=0).view(-1, 1)).view(-1)


def report(folder: str | Path, *, nodes: Sequence[str] = (), data_dir: str | Path | None = None) -> str:
    """Writes a report on a run, or on all runs in a folder, as a self-contained HTML page.

    The report compares the runs on one dataset and shows the run with the best validation in detail. Neighbourhoods
    are those of the best run with a learned order, if any. Runs with damaged files are left out and listed if there
    are others.

    Args:
        folder: A run folder, or a folder with run folders at any depth.
        nodes: The names of at most 200 nodes whose neighbours' contributions are computed; by default the 20 test
            nodes with the largest errors.
        data_dir: The folder of the datasets.
    """
    folder = Path(folder)
    if len(nodes) > MAX_NODES:
        raise SettingsError(f"a report can explain at most {MAX_NODES} nodes, got {len(nodes)}.")
    runs, left_out = gather(folder)
    while True:
        try:
            return _page(folder, runs, left_out, nodes, data_dir)
        except Damaged as error:  # in a file that is only read of runs that are shown in detail
            others = [run for run in runs if run.folder != error.folder]
            if len(others) in (0, len(runs)):
                raise
            runs, left_out = others, [*left_out, _damage(error, folder)]


def gather(folder: Path) -> tuple[list[Run], list[str]]:
    """The finished runs in a folder, and why others are left out."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}; pass a run folder or a folder with runs.")
    found, left_out = [], []
    for run in find_runs(folder):
        if run.state != "done":
            left_out.append(f"{_relative(run.folder, folder)} is not done")
            continue
        try:
            if run.experiment and run.result:  # reads both files
                found.append(run)
        except Damaged as error:
            left_out.append(_damage(error, folder))
    if not found:
        reason = f" ({left_out[0]})" if left_out else ""
        raise RunError(f"there is no finished run in {folder}{reason}; pass a folder that goat train has filled.")
    return found, left_out


def _damage(error: Damaged, folder: Path) -> str:
    return f"{_relative(error.folder, folder)} is damaged ({error.what})"


def _relative(run: Path, folder: Path) -> str:
    return "the run" if run == folder else str(run.relative_to(folder))


def comparable(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The largest set of runs on the same data, target and split protocol, and the names of the data of the others."""

    def task(run: Run) -> tuple[Any, ...]:
        tables = run.experiment.tables
        parts = tables and (*(getattr(tables, key) for key in SPLITS), tables.train, tables.val)
        return *data_of(run.experiment), parts, next(iter(run.result.metrics["val"]))

    def name(run: Run) -> str:
        one = run.experiment
        text = f"{one.dataset} {one.split}".strip()
        return text if one.tables is None else f"{text} ({one.tables.target})"

    counts = Counter(task(run) for run in runs)
    chosen = max(counts, key=lambda one: counts[one])  # the first of several that are equally frequent
    others = dict.fromkeys(name(run) for run in runs if task(run) != chosen)
    return [run for run in runs if task(run) == chosen], list(others)


def _page(
    folder: Path, found: Sequence[Run], left_out: Sequence[str], nodes: Sequence[str], data_dir: str | Path | None
) -> str:
    @cache
    def graph_of(run: Run) -> NamedGraph:
        return run.graph(data_dir)

    @cache
    def detail_of(run: Run) -> Detail:
        check_learned_order(run)
        return Detail(run, graph_of(run), *forward(run.network, graph_of(run).data))

    def squared_errors(run: Run) -> np.ndarray:
        return detail_of(run).test_errors().double().numpy() if learns_order(run) else np.empty(0)

    runs, other_data = comparable(found)
    tested = int(graph_of(runs[0]).data.test_mask.sum())
    ranking = compare_runs(runs, test_nodes=tested, errors=squared_errors)
    groups = ranking.groups
    shown = next((group for group in groups if learns_order(group.best)), groups[0])
    detail = detail_of(shown.best)
    readers = (one for one in groups if "goat" in one.best.experiment.model.name and learns_order(one.best))
    ordered = shown if detail.orderings else next(readers, shown)
    reader = detail_of(ordered.best)
    reader_name = text.run_name(ordered)
    columns = features(detail.graph.data, detail.run.schema)
    splits = {run.experiment.index: run for run in groups[0].runs}
    part, important = _importance(detail, columns, ranking.metric)
    chosen = [reader.graph.node(name) for name in nodes] or _largest_errors(reader)
    effects = contributions(reader.run.network, reader.graph, reader.out, chosen)
    together = interactions(reader.run.network, reader.graph, reader.out, effects, PAIRED)
    others = [run for group in groups for run in group.runs] if len(runs) > 1 else None
    stable = stability(reader.run, reader.graph.data, reader.orderings, others, data_dir=data_dir)
    described = [one.feature for one in important] or columns
    described = [feature for feature in described if not feature.of_edges][:VALUES]
    viewed = viewer_data(reader.graph, reader.out, reader.orderings, effects, together, described)
    viewed["first"] = chosen[0] if chosen else int(measures.degrees(reader.graph.data).argmax())
    filled = {
        "title": text.title(groups, detail.graph),
        "answer": text.answer(ranking, [graph_of(run) for run in splits.values()]),
        "detail": text.run_name(shown),
        "comparison_table": text.comparison_table(ranking, tested),
        "notes": text.comparison_notes(groups, other_data, left_out, shown),
        "intervals": charts.intervals_chart(groups) if len(groups) > 1 else None,
        "importance": charts.importance_chart(important, ranking.metric, part) if important else None,
        "importance_table": text.importance_table(important, ranking.metric),
        "importance_notes": text.importance_notes(important, len(columns), part),
        "stability": charts.stability_chart(stable),
        "seeds_table": text.seeds_table(stable) if stable.seeds else None,
        "ordered": bool(reader.orderings),
        "reader": reader_name,
        "order_notes": text.order_notes(stable, bool(reader.orderings)),
        "viewer_text": text.viewer_text(
            reader.graph, reader_name, viewed["included"], bool(reader.orderings), bool(nodes)
        ),
        "data_table": text.data_table(detail.graph),
        "split_table": text.split_table(detail.graph, detail.run.experiment),
        "learning": charts.learning_charts(detail.run, detail.graph, ranking.metric),
        "metrics_table": text.metrics_table(detail.run.result),
        "predictions": _predictions(detail),
        "cost_table": text.cost_table(groups),
        "environment_table": text.environment_table(detail.run.result),
        "version": torch_goat.__version__,
        "place": str(folder),
    }
    return render(filled, viewed)


def _importance(detail: Detail, columns: Sequence[Feature], metric: str) -> tuple[str, list[Importance]]:
    """The part of the nodes on which the importance of columns is measured, and the most important columns."""
    part = "test" if detail.test.numel() else "validation"
    nodes = detail.test if detail.test.numel() else detail.graph.data.val_mask.nonzero().view(-1)
    if len(columns) > MAX_COLUMNS:
        return part, []
    network = detail.run.network
    found = importance(lambda data: forward(network, data)[0], detail.graph, columns, metric, nodes)
    return part, found[:SHOWN_COLUMNS]


def _largest_errors(detail: Detail) -> list[int]:
    order = detail.test_errors().argsort(descending=True, stable=True)
    return detail.test[order[:DEFAULT_NODES]].tolist()


def _predictions(detail: Detail) -> list[charts.Chart]:
    """Charts of the predictions on the test nodes, if there are any."""
    test, graph = detail.test, detail.graph
    if test.numel() == 0:
        return []
    degree = measures.degrees(graph.data)[test].numpy()
    if not graph.classes:
        truth, predicted = (value[test].double().numpy() for value in (graph.truth, detail.numbers))
        return [
            charts.residual_chart(truth, predicted),
            charts.mean_chart(measures.mean_by(predicted, truth, bins=10)),
            charts.degree_chart(measures.mean_by(degree, (truth - predicted) ** 2), "mse"),
        ]
    truth, out = graph.truth[test].numpy(), detail.out[test].double()
    chosen, shares = graph.decision.classes(out), graph.decision.probabilities(out)
    predicted, correct = chosen.numpy(), truth == chosen.numpy()

    def calibrated(shares: Tensor) -> measures.Calibrated:
        return measures.calibration(shares.gather(1, chosen.view(-1, 1)).view(-1).numpy(), correct)

    changed = graph.decision.temperature != 1
    return [
        charts.confusion_chart(measures.confusion(truth, predicted, len(graph.classes)), graph.classes),
        charts.calibration_chart(calibrated(shares), calibrated(out.softmax(dim=-1)) if changed else None),
        charts.degree_chart(measures.mean_by(degree, correct), "accuracy"),
    ]


def render(values: Mapping[str, Any], viewer: Mapping[str, Any]) -> str:
    """Fills the template; all text is escaped."""
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(_file("page.html")).render(
        **values,
        style=Markup(_file("page.css")),
        script=Markup(script),
        script_hash=f"sha256-{digest}",  # the content security policy allows only this script
        viewer_data=Markup(json.dumps(viewer).replace("<", "\\u003c")),  # so that it cannot contain a tag
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # folder names may not be valid Unicode


def _file(name: str) -> str:
    return resources.files("torch_goat.app.report").joinpath(name).read_text(encoding="utf-8")
