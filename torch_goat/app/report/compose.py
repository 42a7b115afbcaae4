from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from torch import Tensor

import torch_goat
from torch_goat.app.explain import Graph, contributions, stability
from torch_goat.app.explain.explanation import in_units, truths
from torch_goat.app.explain.node import check_sorts
from torch_goat.app.explain.steadiness import siblings
from torch_goat.app.report import charts, measures, words
from torch_goat.app.report.compare import Finished, Row, compare, damage, gather, on_one_dataset
from torch_goat.app.report.drawing import Chart
from torch_goat.app.report.page import render
from torch_goat.app.report.viewer import viewer_data
from torch_goat.experiments import NamedGraph, Run
from torch_goat.experiments.run import Damaged
from torch_goat.nn import Ordering
from torch_goat.settings import SettingsError

MOST_NODES: Final = 200  # with contributions
UNASKED_NODES: Final = 20  # with contributions if none are named


@dataclass(frozen=True)
class Detail:
    """The run that a report looks at closely, and what its network says.

    Args:
        run: The run.
        named: The graph that it was trained on.
        out: The network's output ``[N, C]``.
        orderings: The orders of its GOAT layers.
    """

    run: Run
    named: NamedGraph
    out: Tensor
    orderings: Sequence[Ordering]

    @property
    def classification(self) -> bool:
        """Whether the network predicts classes."""
        return bool(self.named.classes)

    @property
    def curve(self) -> str:
        """The metric that was measured in every epoch."""
        return "accuracy" if self.classification else "mse"

    @property
    def truth(self) -> Tensor:
        """The class or the target of every node ``[N]``."""
        return truths(self.named)

    @property
    def numbers(self) -> Tensor:
        """The predictions of regression ``[N]``."""
        return in_units(self.named, self.out[:, 0])

    @property
    def test(self) -> Tensor:
        """The test nodes."""
        return self.named.data.test_mask.nonzero().view(-1)

    def badness(self) -> Tensor:
        """How wrong each prediction is ``[N]``: one less the probability of the true class, or the squared error."""
        if not self.classification:
            return (self.numbers - self.truth).square()
        return 1 - self.out.softmax(dim=-1).gather(1, self.truth.long().clamp(min=0).view(-1, 1)).view(-1)


def report(place: str | Path, *, nodes: Sequence[str] = (), data_dir: str | Path | None = None) -> str:
    """The report on a run or on all runs of a folder, as one page of HTML that needs nothing else.

    The runs on one dataset are compared; the run of the best validation is looked at closely. Neighbourhoods are those
    of the best run whose network learned an order, if there is one. A run with a damaged file is left out and named, if
    there are others.

    Args:
        place: A run folder, or a folder that holds some at any depth.
        nodes: The nodes, by name, for which every neighbour's contribution is computed, at most 200; the 20 test nodes
            whose predictions are furthest from the truth if there are none.
        data_dir: The folder of the datasets.
    """
    place = Path(place)
    if len(nodes) > MOST_NODES:
        raise SettingsError(f"{len(nodes)} nodes are too many to explain in one page; name at most {MOST_NODES}.")
    found, left_out = gather(place)
    while True:
        try:
            return _page(place, found, left_out, nodes, data_dir)
        except Damaged as error:  # in a file that is read of the runs that are looked at alone
            sound = [run for run in found if run.folder != error.folder]
            if len(sound) in (0, len(found)):
                raise
            found, left_out = sound, [*left_out, damage(error, place)]


def _page(
    place: Path, found: Sequence[Finished], left_out: Sequence[str], nodes: Sequence[str], data_dir: str | Path | None
) -> str:
    runs, other_data = on_one_dataset(found)
    rows = _rows(runs, data_dir)
    looked_at = next((row for row in rows if _sorts(row.best)), rows[0])
    detail = look_at(looked_at.best, data_dir)
    row, reader = _with_order(rows, looked_at, detail, data_dir)
    reader_name = words.name(row, reader.run.experiment)
    chosen = [reader.named.node(name) for name in nodes] or _furthest(reader)
    effects = contributions(reader.run.network, reader.named, reader.out, chosen)
    others = [run.folder for run in runs] if len(runs) > 1 else siblings(reader.run.folder)
    steady = stability(reader.run, Graph.of(reader.named.data), reader.orderings, others, data_dir=data_dir)
    viewed = viewer_data(reader.named, reader.out, reader.orderings, effects)
    viewed["first"] = chosen[0] if chosen else int(measures.degrees(reader.named.data).argmax())
    values = {
        "title": words.title(rows, detail.named),
        "summary": words.summary(rows, detail.named),
        "detail": words.name(looked_at, detail.run.experiment),
        "data_table": words.data_table(detail.named),
        "split_table": words.split_table(detail.named, detail.run.experiment),
        "comparison_table": words.comparison_table(rows),
        "notes": words.comparison_notes(rows, other_data, left_out, looked_at),
        "intervals": charts.intervals_chart(rows) if len(rows) > 1 else None,
        "learning": _learning(detail),
        "metrics_table": words.metrics_table(detail.run.result),
        "predictions": _predictions(detail),
        "stability": charts.stability_chart(steady),
        "seeds_table": words.seeds_table(steady) if steady.seeds else None,
        "reader": reader_name,
        "order_notes": words.order_notes(steady, bool(reader.orderings)),
        "viewer_text": words.viewer_text(
            reader.named, reader_name, viewed["included"], bool(reader.orderings), bool(nodes)
        ),
        "cost_table": words.cost_table(rows),
        "environment_table": words.environment_table(detail.run.result),
        "version": torch_goat.__version__,
        "place": str(place),
    }
    return render(values, viewed)


def look_at(run: Finished, data_dir: str | Path | None) -> Detail:
    """Opens a run and lets its network predict."""
    opened = Run(run.folder)
    check_sorts(opened)
    named = opened.graph(data_dir)
    out, orderings = Graph.of(named.data).run_with_orderings(opened.network)
    return Detail(opened, named, out, orderings)


def _sorts(run: Finished) -> bool:
    """Whether its network sorts by itself, and so can be looked at."""
    options = run.experiment.training
    return not options.orderings_files and options.fixed_ordering < 0


def _with_order(rows: Sequence[Row], looked_at: Row, detail: Detail, data_dir: str | Path | None) -> tuple[Row, Detail]:
    """The best run whose network learned an order, if there is one, else the one that is looked at."""
    if not detail.orderings:
        for row in rows:
            if "goat" in row.best.experiment.model.name and _sorts(row.best):
                return row, look_at(row.best, data_dir)
    return looked_at, detail


def _rows(runs: Sequence[Finished], data_dir: str | Path | None) -> list[Row]:
    tested = int(Run(runs[0].folder).graph(data_dir).data.test_mask.sum())

    def squares(run: Finished) -> np.ndarray:
        if not _sorts(run):
            return np.empty(0)
        looked = look_at(run, data_dir)
        return looked.badness()[looked.test].double().numpy()

    return compare(runs, tested, squares)


def _furthest(detail: Detail) -> list[int]:
    """The test nodes whose predictions are furthest from the truth."""
    badness = detail.badness()[detail.test]
    return detail.test[badness.argsort(descending=True, stable=True)[:UNASKED_NODES]].tolist()


def _learning(detail: Detail) -> list[Chart]:
    curves = detail.run.curves
    best = detail.run.result.best_epoch
    unit = "target's unit" if detail.named.target_scale == 1 else "standard deviations"
    loss = "cross-entropy (nats)" if detail.classification else f"squared error ({unit}²)"
    return [charts.loss_chart(curves, loss, best), charts.metric_chart(curves, detail.curve, best)]


def _predictions(detail: Detail) -> list[Chart]:
    """Of the test nodes, or none if there are none."""
    test, data = detail.test, detail.named.data
    if test.numel() == 0:
        return []
    degree = measures.degrees(data)[test].numpy()
    if not detail.classification:
        truth, predicted = (value[test].double().numpy() for value in (detail.truth, detail.numbers))
        return [
            charts.residual_chart(truth, predicted),
            charts.means_chart(measures.mean_by(predicted, truth, bins=10)),
            charts.degree_chart(measures.mean_by(degree, (truth - predicted) ** 2), detail.curve),
        ]
    truth, out = detail.truth[test].numpy(), detail.out[test].double()
    confidence, predicted = (value.numpy() for value in out.softmax(dim=-1).max(dim=-1))
    right = truth == predicted
    return [
        charts.confusion_chart(measures.confusion(truth, predicted, len(detail.named.classes)), detail.named.classes),
        charts.calibration_chart(*measures.calibration(confidence, right)),
        charts.degree_chart(measures.share_by(degree, right), detail.curve),
    ]
