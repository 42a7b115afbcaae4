"""The models that ``goat train`` compares, from Python."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_goat.app.estimators import (
    NodeClassifier,
    NodeEstimator,
    NodeRegressor,
    Workspace,
    assignments,
    names_in,
    write_report,
)
from torch_goat.data.tables import load_tables
from torch_goat.experiments import ModelComparison, compare_models
from torch_goat.experiments.verdict import Verdict

if TYPE_CHECKING:
    from pandas import DataFrame


class Leaderboard:
    """Models that were compared on the same splits of a graph; printing it shows a table and the verdict."""

    def __init__(self, compared: ModelComparison, place: Workspace, notes: tuple[str, ...]) -> None:
        self.ranking = compared.ranking  #: The runs of each model, the best model on the validation nodes first.
        self.plan = compared.plan  #: What was trained; ``plan.skipped`` names models that did not fit the time budget.
        self.notes = notes  #: Remarks about the tables.
        self._place = place  # a temporary folder exists as long as this

    @property
    def folder(self) -> Path:
        """The folder of the tables and of all runs."""
        return self._place.root

    @property
    def verdict(self) -> Verdict | None:
        """Which model to use and how certain that is, in plain sentences; ``None`` for fewer than two models."""
        return self.ranking.verdict

    @cached_property
    def frame(self) -> "DataFrame":
        """One row per model, the best on the validation nodes first.

        ``val`` and ``test`` are means of the deciding metric, ``std``, ``low`` and ``high`` its standard deviation and
        95 % interval on the test nodes; then come the means of all metrics of the test nodes, the number of runs and
        the mean training time.
        """
        import pandas as pd

        rows = {}
        for group in self.ranking.groups:
            names = group.runs[0].result.metrics.get("test", {})
            rows[group.name] = {
                "metric": self.ranking.metric,
                "val": group.rank_mean,
                "test": group.mean,
                "std": group.std,
                "low": group.interval[0],
                "high": group.interval[1],
                **{f"test_{name}": group.summary("test", name).mean for name in names},
                "runs": len(group.runs),
                "seconds": group.seconds,
            }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")

    def estimator(self, model: str = "") -> NodeEstimator:
        """The fitted estimator of a model's best run; by default that of the recommended model.

        Args:
            model: The name of the model as in ``goat train --model``.
        """
        run = (self.ranking[model] if model else self.ranking.recommended).best
        kind = NodeClassifier if run.schema is not None and run.schema.classes else NodeRegressor
        return kind.of_run(run, self._place)

    def report(self, path: str | Path, *, nodes: Sequence[Any] = (), overwrite: bool = False) -> None:
        """Writes a report on all models as a self-contained HTML page; see :meth:`NodeClassifier.report`."""
        write_report(self.folder, path, names_in(self.ranking.groups[0].best, nodes), overwrite)

    def __repr__(self) -> str:
        return f"{self.frame.to_string()}\n{self.verdict or ''}".rstrip()


def compare(
    nodes: Any,
    edges: Any = None,
    *,
    target: str,
    options: Mapping[str, Any] | None = None,
    repeats: int | None = None,
    index: int | None = None,
    minutes: float = 10.0,
    metric: str = "",
    device: str = "auto",
    folder: str | Path | None = None,
    **tables: Any,
) -> Leaderboard:
    """Trains several models on the same splits of a graph and compares them, as ``goat train`` does.

    Args:
        nodes: The table of the nodes; see :meth:`NodeClassifier.fit`.
        edges: The table of the edges.
        target: The column of ``nodes`` to predict.
        options: Options for the models that have them, as in :class:`NodeClassifier`.
        repeats: The number of random splits or seeds; 3 by default, or 1 for folds and split columns.
        index: The first random split, or the only fold or split column to use.
        minutes: The time budget in minutes; models that do not fit into it are skipped. 0 means no limit.
        metric: The metric that decides between classifiers: ``"accuracy"`` (default), ``"macro_f1"`` or ``"roc_auc"``.
            Regression models are compared by RMSE.
        device: As in :class:`NodeClassifier`.
        folder: Where the tables and runs are kept; finished runs in this folder are reused. By default a temporary
            folder, which is removed with the leaderboard and its estimators.
        tables: How to read the tables and split the nodes, as fields of
            :class:`~torch_goat.data.tables.Tables`; ``task="regression"`` overrides the type of the target.
    """
    place = Workspace(folder)
    with place.named():
        read = place.tables(nodes, edges, target=target, **tables)
        graph = load_tables(read, index or 0)
        compared = compare_models(
            read,
            place.root,
            graph=graph,
            index=index,
            assignments=assignments(options),
            repeats=repeats,
            minutes=minutes,
            metric=metric,
            device=device,
        )
    return Leaderboard(compared, place, tuple(map(place.rename, graph.notes)))
