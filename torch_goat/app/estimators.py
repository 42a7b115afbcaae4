"""Estimators on tables with scikit-learn's interface. They do what ``goat`` does, with the same functions."""

import json
import os
import re
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from torch_goat import settings
from torch_goat.app.explain import Explanation, explain
from torch_goat.data.tables import TableError, Tables, Task, digest_tables, load_tables
from torch_goat.data.tables.frames import category_columns, class_values, node_name, table_file
from torch_goat.experiments import Predictions, Run, RunError, find_runs, predict, train
from torch_goat.experiments.own_graph import in_given_order, model_experiment, recorded
from torch_goat.experiments.run import check_outside_runs
from torch_goat.experiments.search import own_starting_point
from torch_goat.experiments.search.search import short
from torch_goat.experiments.training import metrics
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import NotFittedError
except ImportError:
    raise ImportError("NodeClassifier, NodeRegressor and compare need scikit-learn; install torch-goat[cli].") from None

RUN = "run"  # the run folder below the folder with the tables


class NodeEstimator(BaseEstimator, ABC):
    """What :class:`NodeClassifier` and :class:`NodeRegressor` have in common."""

    _task: ClassVar[Task]

    def __init__(
        self,
        model: str = "goat",
        *,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        self.model = model
        self.options = options
        self.seed = seed
        self.device = device
        self.folder = folder

    def fit(self, nodes: Any, edges: Any = None, *, target: str, index: int = 0, **tables: Any) -> Self:
        """Trains the model, as ``goat train --model`` does.

        Args:
            nodes: The table of the nodes: a DataFrame of pandas or polars, an Arrow table or the name of a file. A
                named index is a column.
            edges: The table of the edges; ``None`` if ``nodes`` is a GraphML file.
            target: The column of ``nodes`` to predict. Nodes without a value only serve as neighbours.
            index: Which random split, fold or split column to use, from 0.
            tables: How to read the tables and split the nodes, as fields of
                :class:`~torch_goat.data.tables.Tables`: ``id="name"``, ``drop=["notes"]``, ``split_column="part"``.
        """
        place = Workspace(self.folder)
        with place.named():
            read = place.tables(nodes, edges, target=target, task=self._task, **tables)
            graph = load_tables(read, index)
        options = {"seed": self.seed, "index": index, **self._options()}
        experiment = model_experiment(read, graph, self.model, assignments(options))
        train(experiment, place.root / RUN, graph=graph, device=self.device)
        return self._opened(Run(place.root / RUN), place, tuple(map(place.rename, graph.notes)))

    def predict(self, nodes: Any, edges: Any = None, *, join: bool = False) -> np.ndarray:
        """Returns the predicted class or number of every node, in the order of the rows ``[n]``.

        Args:
            nodes: The table of the nodes, the same as in :meth:`fit` or another with the same columns; the target is
                not needed.
            edges: The table of the edges.
            join: Whether to add the nodes to the training graph, so that edges can connect them to its nodes.
        """
        return np.array(self._values(self._predictions(nodes, edges, join).values))

    def score(self, nodes: Any = None, edges: Any = None, *, join: bool = False) -> float:
        """Returns the accuracy or, for regression, the share of explained variance (R²).

        Args:
            nodes: A table with the target, by default that of :meth:`fit`. Nodes that the model was trained or
                validated on, recognised by their id, are left out.
            edges: The table of the edges.
            join: Whether to add the nodes to the training graph.
        """
        run = self._fitted()
        if nodes is None:
            graph = run.graph()
            test = graph.data.test_mask
            with torch.no_grad():
                out = run.network.on(graph.data)[test]
            guess = graph.decision.classes(out) if graph.classes else graph.in_units(out[:, 0])
            return self._score(guess, graph.truth[test])
        found = self._predictions(nodes, edges, join)
        if not (pairs := found.pairs):
            target = repr(run.experiment.tables.target)  # type: ignore[union-attr]
            if found.split is None:
                raise TableError(f"nodes has no values in the column {target} to compare with.")
            raise TableError(f"all nodes with a {target} were used for training or validation; add others to score.")
        if found.split is None:
            raise TableError("the tables of fit are gone or changed, so its training nodes are unknown; fit again.")
        codes = {name: number for number, name in enumerate(found.classes)}
        numbers = [[codes.get(str(one), -1) if codes else float(one) for one in pair] for pair in pairs]
        return self._score(*torch.tensor(numbers, dtype=torch.double).t())

    def explain(self, node: Any) -> Explanation:
        """Explains the prediction for a node of the training graph, as ``goat explain`` does."""
        return explain(self._fitted(), *names_in(self._fitted(), [node]))

    def report(self, path: str | Path, *, nodes: Sequence[Any] = (), overwrite: bool = False) -> None:
        """Writes a report as a self-contained HTML page, as ``goat report`` does.

        Args:
            path: The file.
            nodes: The nodes to explain; by default the test nodes with the largest errors.
            overwrite: Whether to replace an existing file.
        """
        write_report(self._fitted().folder, path, names_in(self._fitted(), nodes), overwrite)

    def save(self, path: str | Path) -> None:
        """Copies the tables and the run to a new folder, which can be moved and read by :meth:`load` and ``goat``."""
        run, path = self._fitted(), Path(path)
        tables = run.tables
        assert tables is not None
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise SettingsError(f"{path} already exists; choose another folder.")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as made:
            whole = Path(made, "saved")
            shutil.copytree(run.folder, whole / RUN, ignore=shutil.ignore_patterns(".lock", "*.part"))
            for file in filter(None, (tables.nodes, tables.edges)):
                if (whole / Path(file).name).exists():
                    raise SettingsError(f"both tables are named {Path(file).name}; rename one of them and fit again.")
                shutil.copyfile(file, whole / Path(file).name)
            os.replace(whole, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Loads a folder written by :meth:`save`, or a run of ``goat train`` on tables, and verifies its digests."""
        runs = list(find_runs(path))
        if len(runs) != 1:
            raise RunError(f"{path} holds {len(runs)} runs; name a folder of save, or one run of goat train on tables.")
        return cls.of_run(runs[0])

    @classmethod
    def of_run(cls, run: Run, place: "Workspace | None" = None) -> Self:
        """The fitted estimator of a run on tables; a temporary folder is kept as long as the estimator."""
        if run.schema is None or run.schema.task != cls._task:
            what = "was not trained on tables" if run.schema is None else f"is a {run.schema.task}"
            raise RunError(f"the run in {run.folder} {what}; it cannot be loaded by {cls.__name__}.")
        tables, _ = run.tables, (run.network, run.curves)
        assert tables is not None
        if tables.digest not in ("", digest_tables(tables.nodes, tables.edges)):
            raise TableError(f"{tables.nodes} or {tables.edges} changed since training; restore them or train again.")
        made = cls(**cls._loaded(_changed(run)), model=run.experiment.model.name, seed=run.experiment.seed)
        return made._opened(run, place, ())

    def __getstate__(self) -> Any:
        if hasattr(self, "run_"):
            raise TypeError(f"a fitted {type(self).__name__} lives in a folder; use save and load instead of pickle.")
        return super().__getstate__()

    def _options(self) -> dict[str, Any]:
        return dict(self.options or {})

    @classmethod
    def _loaded(cls, changed: dict[str, Any]) -> dict[str, Any]:
        """The parameters for settings that differ from the defaults."""
        return {"options": changed or None}

    def _opened(self, run: Run, place: "Workspace | None", notes: tuple[str, ...]) -> Self:
        self.run_, self.result_, self.notes_ = run, run.result, notes
        self._place = place  # a temporary folder exists as long as this
        return self

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit or load first.")
        return self.run_

    def _predictions(self, nodes: Any, edges: Any, join: bool) -> Predictions:
        run, place = self._fitted(), Workspace(None)
        with place.named():
            return predict(run, *place.files(nodes, edges), join=join)

    def _values(self, values: Sequence[str | float]) -> Sequence[Any]:
        return values

    @abstractmethod
    def _score(self, guess: torch.Tensor, truth: torch.Tensor) -> float: ...


class NodeClassifier(ClassifierMixin, NodeEstimator):
    """Predicts a class for every node of a graph given by two tables.

    ``get_params``, ``set_params``, ``repr`` and ``clone`` are scikit-learn's. Since :meth:`fit` takes two tables,
    scikit-learn's pipelines and cross-validation do not work; :meth:`fit` splits the nodes into training, validation
    and test nodes instead. After :meth:`fit`, ``classes_`` has the classes in the order of :meth:`predict_proba`,
    ``result_`` the metrics (:class:`~torch_goat.experiments.Result`), ``run_`` the run, and ``notes_`` remarks about
    the tables.

    Args:
        model: ``"goat"``, ``"gat"``, ``"gcn"`` or another model of ``goat train --model``.
        options: Options of the model and of training, as ``goat train --set`` takes them: ``{"heads": 4}``.
        threshold: For two classes, when the positive one is predicted: ``0.3``, ``"precision=0.9"`` or ``"cost=5:1"``
            (see :class:`~torch_goat.experiments.TrainingOptions`). ``None`` predicts the most probable class.
        seed: The seed of all random draws.
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        folder: Where the tables and the run are kept. A stopped run in this folder is resumed, a finished run is
            reused. By default a temporary folder, which is removed with the estimator.
    """

    _task = "classification"
    score = NodeEstimator.score  # not the mixin's

    def __init__(
        self,
        model: str = "goat",
        *,
        options: Mapping[str, Any] | None = None,
        threshold: str | float | None = None,
        seed: int = 0,
        device: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        super().__init__(model, options=options, seed=seed, device=device, folder=folder)
        self.threshold = threshold

    def predict_proba(self, nodes: Any, edges: Any = None, *, join: bool = False) -> np.ndarray:
        """Returns the calibrated probabilities ``[n, C]`` in the order of ``classes_``; see :meth:`predict`."""
        return self._predictions(nodes, edges, join).probabilities.numpy()

    def _options(self) -> dict[str, Any]:
        return super()._options() | ({} if self.threshold is None else {"threshold": str(self.threshold)})

    @classmethod
    def _loaded(cls, changed: dict[str, Any]) -> dict[str, Any]:
        return {"threshold": changed.pop("threshold", None)} | super()._loaded(changed)

    def _opened(self, run: Run, place: "Workspace | None", notes: tuple[str, ...]) -> Self:
        schema, tables = run.schema, run.tables
        assert schema is not None
        assert tables is not None
        values = class_values(tables.nodes, schema.target, schema.classes)
        self.classes_ = np.array(values)
        self._by_name = dict(zip(schema.classes, values, strict=True))
        return super()._opened(run, place, notes)

    def _values(self, values: Sequence[str | float]) -> Sequence[Any]:
        return [self._by_name[str(value)] for value in values]

    def _score(self, guess: torch.Tensor, truth: torch.Tensor) -> float:
        return float((guess == truth).double().mean())


class NodeRegressor(RegressorMixin, NodeEstimator):
    """Predicts a number for every node of a graph given by two tables; see :class:`NodeClassifier`."""

    _task = "regression"
    score = NodeEstimator.score  # not the mixin's

    def _score(self, guess: torch.Tensor, truth: torch.Tensor) -> float:
        return float(metrics.r2(guess.view(-1, 1), truth.view(-1, 1)))


class Workspace:
    """The folder with the tables of an estimator; a temporary one is removed with this object."""

    def __init__(self, folder: str | Path | None) -> None:
        if folder is None:
            made = tempfile.mkdtemp(prefix="torch-goat-")
            weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        else:
            check_outside_runs(Path(folder))
        self.root = Path(made, "graph") if folder is None else Path(folder)
        self._names: dict[str, str] = {}

    def files(self, nodes: Any, edges: Any) -> tuple[str, str]:
        """The files of both tables, to which tables in memory are written."""
        found = []
        for name, table in (("nodes", nodes), ("edges", edges)):
            path = self.root / f"{name}.parquet"
            self._names[str(path.resolve())] = name
            found.append("" if table is None else table_file(table, path))
        return found[0], found[1]

    def tables(self, nodes: Any, edges: Any, *, target: str, **options: Any) -> Tables:
        """How to read both tables, whose columns of categories are categories."""
        files = dict(zip(("nodes", "edges"), self.files(nodes, edges), strict=True))
        given = options.pop("categories", ())
        found = {name for table in (nodes, edges) for name in category_columns(table) if name != target}
        found.update([given] if isinstance(given, str) else given)
        options |= {"target": target, "categories": sorted(found)}
        if options.get("positive") is not None:
            options["positive"] = str(options["positive"])  # classes may be numbers
        return settings.parse(Tables, files | options, "the tables")

    def rename(self, text: str) -> str:
        """A message with the names of tables in memory instead of their files."""
        for path, name in self._names.items():
            text = re.sub(rf"{re.escape(path)}, line (\d+), column", rf"{name}, row \1, column", text)
            text = text.replace(f"{path}, line 1:", f"{name}:").replace(path, name)
        return text

    @contextmanager
    def named(self) -> Iterator[None]:
        try:
            yield
        except TableError as error:
            raise TableError(self.rename(str(error))) from None


def _changed(run: Run) -> dict[str, Any]:
    """The options of a run on tables that someone chose, by the names that ``--set`` takes."""
    now, schema = run.experiment, run.schema
    assert schema is not None
    start = in_given_order(replace(own_starting_point(schema.task, now.model.name), tables=run.tables))
    if now.training.record_orderings == recorded(now.training.epochs):
        start = replace(start, training=replace(start.training, record_orderings=now.training.record_orderings))
    names = Counter(short(key) for key, _ in settings.leaves(now))
    default, chosen = (dict(settings.leaves(settings.to_table(one))) for one in (start, now))
    keys = [key for key in chosen if key.startswith(("model.", "training.")) and default.get(key) != chosen[key]]
    return {short(key) if names[short(key)] == 1 else key: chosen[key] for key in keys}


def names_in(run: Run, nodes: Sequence[Any]) -> list[str]:
    """The names of nodes from their values in the id column."""
    tables, schema = run.tables, run.schema
    assert tables is not None
    assert schema is not None
    return [node_name(tables.nodes, schema.id, node) for node in nodes]


def write_report(folder: Path, path: str | Path, nodes: Sequence[str], overwrite: bool) -> None:
    """Writes the report on a folder of runs."""
    from torch_goat.app.report import report  # needs matplotlib

    path = Path(path)
    if path.exists() and not overwrite:
        raise SettingsError(f"{path} already exists; choose another name or pass overwrite=True.")
    write_atomic(path, report(folder, nodes=nodes))


def assignments(options: Mapping[str, Any] | None) -> list[str]:
    """Options as ``--set`` takes them."""
    return [f"{key}={json.dumps(value, default=np.generic.item)}" for key, value in (options or {}).items()]
