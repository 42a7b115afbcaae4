"""Estimators on DataFrames do what the commands do on files, and keep scikit-learn's conventions."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, average_precision_score, r2_score, recall_score

import torch_goat
from tests.app.conftest import Goat
from tests.data.tables.files import EDGES, NODES, write
from torch_goat.app.estimators import NodeEstimator
from torch_goat.data.tables import TableError
from torch_goat.experiments import Run, RunError, predict
from torch_goat.settings import SettingsError

FAST = {"epochs": 3, "hidden_channels": 4}
DATES = pd.to_datetime(["2024-05-31", "2024-06-01"])


def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    return pd.read_csv(io.StringIO(NODES)), pd.read_csv(io.StringIO(EDGES))


def classifier(**params: Any) -> torch_goat.NodeClassifier:
    return torch_goat.NodeClassifier("gcn", **{"options": FAST, "device": "cpu", **params})


@pytest.fixture(scope="module")
def fitted() -> torch_goat.NodeClassifier:
    return classifier(threshold="cost=5:1").fit(*frames(), target="label")


@pytest.mark.parametrize("kind", [torch_goat.NodeClassifier, torch_goat.NodeRegressor])
def test_scikit_learns_conventions_hold(kind: type[NodeEstimator], tmp_path: Path) -> None:
    options, folder = {"heads": 4}, tmp_path / "nowhere"
    made = kind("gat", options=options, seed=3, folder=folder)
    assert made.get_params()["options"] is options  # nothing is checked, copied or created before fit
    assert not folder.exists()
    copied = clone(made)
    assert copied.get_params() == made.get_params()
    assert repr(made).startswith(f"{kind.__name__}(folder=")
    assert made.set_params(seed=5).seed == 5
    with pytest.raises(ValueError, match="sead"):
        made.set_params(sead=5)
    assert is_classifier(made) is not is_regressor(made)
    calls: list[Callable[[], object]] = [
        lambda: made.predict(*frames()),
        lambda: made.score(),
        lambda: made.explain("a"),
        lambda: made.report(tmp_path / "report.html"),
        lambda: made.save(tmp_path / "saved"),
    ]
    for call in calls:
        with pytest.raises(NotFittedError, match="call fit or load first"):
            call()
    assert not [*tmp_path.iterdir()]


def test_data_frames_train_and_predict_as_files_do(
    goat: Goat, tmp_path: Path, fitted: torch_goat.NodeClassifier
) -> None:
    write(tmp_path)
    fast = ["--set", "epochs=3", "--set", "hidden_channels=4", "--device", "cpu", "--threshold", "cost=5:1"]
    goat("train", "nodes.csv", "edges.csv", "--target", "label", "--model", "gcn", *fast, "--out", "run")
    goat("predict", "run", "nodes.csv", "edges.csv", "-o", "out.csv")
    written = pd.read_csv("out.csv")
    nodes, edges = frames()
    assert fitted.predict(nodes, edges).tolist() == written["prediction"].tolist()
    shares = fitted.predict_proba(nodes, edges)
    assert shares == pytest.approx(written[[f"probability of {name}" for name in fitted.classes_]].to_numpy(), abs=1e-6)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert fitted.result_.metrics == Run("run").result.metrics
    assert fitted.explain("c").to_dict() == torch_goat.NodeClassifier.load("run").explain("c").to_dict()
    # Other forms of the same tables, in which the target is not needed.
    without = nodes.drop(columns="label")
    for tables in ((without, edges), (nodes.set_index("id"), edges), ("nodes.csv", "edges.csv")):
        assert (fitted.predict_proba(*tables) == shares).all()


class Streamed:
    """What polars and other libraries offer to Arrow."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.table = pyarrow.Table.from_pandas(frame)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class Distributed:
    """A table that can only be converted."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def to_pandas(self) -> pd.DataFrame:
        return self.frame


@pytest.mark.parametrize("form", [pyarrow.Table.from_pandas, pyarrow.RecordBatch.from_pandas, Streamed, Distributed])
def test_tables_of_other_libraries_are_read_as_those_of_pandas(
    fitted: torch_goat.NodeClassifier, form: Callable[[pd.DataFrame], Any]
) -> None:
    nodes, edges = frames()
    again = classifier(threshold="cost=5:1").fit(form(nodes), form(edges), target="label")
    assert again.result_.metrics == fitted.result_.metrics
    assert (fitted.predict_proba(form(nodes), form(edges)) == fitted.predict_proba(nodes, edges)).all()


def test_a_score_is_that_of_the_test_nodes_or_of_other_tables(fitted: torch_goat.NodeClassifier) -> None:
    nodes, edges = frames()
    test = fitted.run_.graph().data.test_mask.numpy()
    guess, truth = fitted.predict(nodes, edges), nodes["label"]
    assert fitted.score() == accuracy_score(truth[test], guess[test])
    assert fitted.score(nodes, edges) == fitted.score()  # the other nodes of these tables were trained on
    other = nodes.assign(age=nodes["age"] + 1)
    assert fitted.score(other, edges) == accuracy_score(truth[test], fitted.predict(other, edges)[test])
    renamed = (nodes.assign(id="new " + nodes["id"]), "new " + edges)
    assert fitted.score(*renamed) == accuracy_score(truth, fitted.predict(*renamed))
    both = pd.concat([nodes, renamed[0]]), pd.concat([edges, renamed[1]])
    counted = np.append(test, [True] * 10)
    assert fitted.score(*both) == accuracy_score(both[0]["label"][counted], fitted.predict(*both)[counted])
    with pytest.raises(TableError, match="all nodes with a 'label' were used for training or validation; add others"):
        fitted.score(nodes.assign(label=nodes["label"].mask(test)), edges)
    with pytest.raises(TableError, match="nodes has no values in the column 'label' to compare with"):
        fitted.score(nodes.drop(columns="label"), edges)
    regressor = torch_goat.NodeRegressor("gcn", options=FAST, device="cpu").fit(nodes, edges, target="age")
    test = regressor.run_.graph().data.test_mask.numpy()
    guess = regressor.predict(nodes, edges)
    assert regressor.score(other, edges) == pytest.approx(r2_score(other["age"][test], guess[test]))
    assert regressor.score() == pytest.approx(r2_score(nodes["age"][test], guess[test]), rel=1e-5)
    far = nodes.assign(age=nodes["age"] + 1e8)  # which has a resolution of 8 in 32 bits
    distant = torch_goat.NodeRegressor("gcn", options=FAST, device="cpu").fit(far, edges, target="age")
    assert distant.score() == pytest.approx(r2_score(far["age"][test], distant.predict(far, edges)[test]), rel=1e-5)
    words = other.assign(age=other["age"].astype(str).mask(~test, "unknown").where(np.cumsum(test) < 3, "unknown"))
    known = test & (words["age"] != "unknown")
    assert regressor.score(words, edges) == pytest.approx(r2_score(other["age"][known], guess[known]))


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1],
        [False, True],
        [0.0, 1.0],
        pd.Categorical(["no", "yes"]),
        np.array([3, 7], dtype=np.uint8),
        DATES,
        DATES + pd.Timedelta("1h"),
        DATES.tz_localize("Europe/Berlin"),
        DATES.as_unit("ns"),
        pd.Categorical(DATES),
        DATES.date,
    ],
)
def test_classes_keep_the_type_of_the_target(labels: Any) -> None:
    nodes, edges = frames()
    nodes["label"] = pd.Series(labels).take((nodes["label"] == "yes").astype(int)).set_axis(nodes.index)
    found = classifier(options={"epochs": 1}).fit(nodes, edges, target="label")
    assert list(found.classes_) == list(labels)
    assert type(found.classes_.tolist()[0]) is type(np.asarray(labels).tolist()[0])
    other = (nodes.assign(id="new " + nodes["id"]), "new " + edges)
    assert found.score(*other) == np.mean(found.predict(*other) == nodes["label"])


@pytest.mark.parametrize("ids", [np.arange(10.0), pd.date_range("2024-05-31", periods=10), pd.Categorical(range(10))])
def test_nodes_are_named_by_the_values_of_their_id(tmp_path: Path, ids: Any) -> None:
    """Also when their rows are sorted, in a file of another format, or next to other columns."""
    nodes, edges = frames()
    named = dict(zip(nodes["id"], ids, strict=True))
    nodes["id"], edges = ids, edges.apply(lambda column: column.map(named))
    board = torch_goat.compare(nodes, edges, target="label", options=FAST, repeats=1, device="cpu")
    found = board.estimator("gcn")
    assert found.explain(nodes["id"][3]).node == 3
    for report in (board.report, found.report):
        report(tmp_path / "report.html", nodes=[nodes["id"][3]], overwrite=True)
    masks = found.run_.graph().data
    parts = [next(part for part in ("train", "val", "test") if masks[f"{part}_mask"][node]) for node in range(10)]
    for table, expected in ((nodes, parts), (nodes.assign(more=1), parts), (nodes[::-1], parts[::-1])):
        for kind in ("csv", "parquet"):
            files = tmp_path / f"nodes.{kind}", tmp_path / f"edges.{kind}"
            for one, file in zip((table, edges), files, strict=True):
                getattr(one, f"to_{kind}")(file, index=False)
            assert predict(found.run_, *files).split == tuple(expected)


@pytest.mark.parametrize(("labels", "positive"), [(["no", "yes"], "no"), ([0, 1], 0), ([False, True], np.False_)])
def test_the_positive_class_can_be_chosen(labels: list[Any], positive: Any) -> None:
    nodes, edges = frames()
    nodes["label"] = pd.Series(labels).take((nodes["label"] == "yes").astype(int)).set_axis(nodes.index)
    found = classifier(threshold="0.3").fit(nodes, edges, target="label", positive=positive)
    assert found.classes_.tolist() == labels[::-1]
    shares, truth = found.predict_proba(nodes, edges)[:, 1], nodes["label"] == positive
    assert (found.predict(nodes, edges) == positive).tolist() == (shares >= 0.3).tolist()
    test = found.run_.graph().data.test_mask.numpy()
    measured = found.result_.metrics["test"]
    assert measured["pr_auc"] == pytest.approx(average_precision_score(truth[test], shares[test]))
    assert found.result_.at_threshold is not None
    assert found.result_.at_threshold["test"]["recall"] == pytest.approx(recall_score(truth[test], shares[test] >= 0.3))


def test_columns_keep_their_types() -> None:
    nodes, edges = frames()
    nodes["zip"] = [f"0{number}" for number in (1067, 1069)] * 5
    nodes["lot"] = pd.Categorical([7, 8] * 5)
    nodes["since"] = pd.date_range("2020-01-01", periods=10, freq="D")
    nodes["vip"] = [True, False] * 5
    found = classifier(options={"epochs": 1}).fit(nodes, edges, target="label")
    assert found.run_.schema is not None
    kinds = {column.name: column.kind for column in found.run_.schema.nodes}
    assert kinds["zip"] == kinds["lot"] == "category"
    assert kinds["since"] == "date"
    assert kinds["vip"] in ("flag", "category")


def test_a_saved_estimator_can_be_moved_and_is_verified(tmp_path: Path, fitted: torch_goat.NodeClassifier) -> None:
    nodes, edges = frames()
    fitted.save(tmp_path / "saved")
    with pytest.raises(SettingsError, match="saved already exists"):
        fitted.save(tmp_path / "saved")
    (tmp_path / "saved").rename(tmp_path / "moved")
    loaded = torch_goat.NodeClassifier.load(tmp_path / "moved")
    assert loaded.run_.tables.nodes == str(tmp_path / "moved/nodes.parquet")  # type: ignore[union-attr]
    assert (loaded.predict_proba(nodes, edges) == fitted.predict_proba(nodes, edges)).all()
    assert loaded.explain("c").to_dict() == fitted.explain("c").to_dict()
    again = clone(loaded).set_params(device="cpu").fit(nodes, edges, target="label")
    assert again.result_.metrics == fitted.result_.metrics  # its parameters are those that it was trained with
    with pytest.raises(RunError, match="is a classification; it cannot be loaded by NodeRegressor"):
        torch_goat.NodeRegressor.load(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "both/again")
    shutil.copytree(tmp_path / "moved", tmp_path / "both/other")
    with pytest.raises(RunError, match="both holds 2 runs"):
        torch_goat.NodeClassifier.load(tmp_path / "both")
    weights = tmp_path / "moved/run/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(RunError, match="is damaged"):
        torch_goat.NodeClassifier.load(tmp_path / "moved")


@pytest.mark.parametrize(
    ("model", "options", "order_by"),
    [
        ("goat", {"epochs": 12}, ""),
        ("goat", {"epochs": 1, "heads": 2, "record_orderings": [1]}, ""),
        ("goat", {"epochs": 1}, "weight"),  # which decides options of the model, too
        ("gcn", {"hidden_channels": 4, "epochs": 2, "patience": 1}, ""),
        ("linear", None, ""),
    ],
)
def test_a_loaded_estimator_has_the_options_that_were_given(
    tmp_path: Path, model: str, options: dict[str, Any] | None, order_by: str
) -> None:
    nodes, edges = frames()
    made = torch_goat.NodeClassifier(model, options=options, threshold="0.3", seed=2)
    made.fit(nodes, edges.assign(weight=range(len(edges))), target="label", order_by=order_by).save(tmp_path / "saved")
    loaded = torch_goat.NodeClassifier.load(tmp_path / "saved")
    assert loaded.get_params() == made.get_params()


def test_a_folder_is_temporary_or_reused_for_the_same_tables_only(tmp_path: Path) -> None:
    nodes, edges = frames()
    found = classifier().fit(nodes, edges, target="label")
    folder = found.run_.folder
    with pytest.raises(TypeError, match="use save and load instead of pickle"):
        found.__getstate__()
    del found
    assert not folder.exists()
    kept = classifier(folder=tmp_path / "kept")
    first = kept.fit(nodes, edges, target="label").run_
    written = (first.folder / "result.json").stat().st_mtime_ns
    kept.fit(nodes, edges, target="label")
    assert (first.folder / "result.json").stat().st_mtime_ns == written
    with pytest.raises(RunError, match=r"holds another experiment \(seed = 0 there, 1 here\)"):
        kept.set_params(seed=1).fit(nodes, edges, target="label")
    with pytest.raises(TableError, match="kept already holds other nodes; choose another"):
        kept.fit(nodes.assign(age=1), edges, target="label")


@pytest.mark.parametrize("target", ["label", "age"])
def test_the_true_value_of_a_node_without_one_is_unknown(target: str) -> None:
    nodes, edges = frames()
    nodes = nodes.assign(age=nodes["age"].astype(float))
    nodes.loc[2, target] = None
    kind = torch_goat.NodeClassifier if target == "label" else torch_goat.NodeRegressor
    found = kind("gcn", options=FAST, device="cpu").fit(nodes, edges, target=target)
    unknown, known = (found.explain(node).to_dict()["truth"] for node in ("c", "d"))
    assert unknown is None
    assert known == pytest.approx(nodes[target][3])


WRONG = [
    ({"target": "lable"}, "nodes: there is no column 'lable' for the target; did you mean 'label'?"),
    ({"nodes": [1, 2]}, "nodes must be a DataFrame, an Arrow table or the name of a file, got list"),
    ({"edges": None}, "nodes contains only nodes"),
    ({"edges": pd.DataFrame({"source": ["a", "zz"], "target": ["b", "c"]})}, "edges, row 2, column 'source': the edge"),
    ({"nodes": frames()[0].assign(town=[1, "x"] * 5)}, "nodes, column 'town': the values have several types"),
    ({"nodes": frames()[0].assign(town=[[1]] * 10)}, "nodes, column 'town': values of type list"),
    ({"folds": 6}, "nodes, column 'label': the class 'no' has only 5 nodes, too few for 6 folds"),
    ({"index": -1}, "index must be at least 0, got -1."),
    ({"target": ["label"]}, "target must be a text, got ['label']"),
    ({"drp": ["age"]}, "unknown key 'drp'; did you mean 'drop'?"),
    ({"positive": "maybe"}, "nodes, column 'label': the positive class must be 'no' or 'yes', got 'maybe'."),
    ({"positive": 20, "target": "town"}, "column 'town': a positive class ('20') needs a target with two classes, not"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_tables_are_one_sentence(changes: dict[str, Any], message: str) -> None:
    nodes, edges = frames()
    with pytest.raises((TableError, SettingsError)) as error:
        classifier().fit(**{"nodes": nodes, "edges": edges, "target": "label", **changes})
    assert message in str(error.value)
    assert "parquet" not in str(error.value)


def test_models_are_compared_as_by_the_command(tmp_path: Path) -> None:
    nodes, edges = frames()
    board = torch_goat.compare(nodes, edges, target="label", options={"epochs": 1}, repeats=1, device="cpu")
    groups = board.ranking.groups
    assert board.frame["test"].tolist() == [group.mean for group in groups]
    assert board.frame["val"].tolist() == sorted(board.frame["val"], reverse=True)
    assert board.verdict is not None
    assert str(board.verdict) in repr(board)
    chosen, goat = board.estimator(), board.estimator("goat")
    assert chosen.run_.experiment.model.name == board.verdict.recommended
    assert isinstance(goat, torch_goat.NodeClassifier)
    run, before = goat.run_.folder, sorted(goat.run_.folder.iterdir())
    with pytest.raises(RunError, match="is a run, which hides runs in folders below; choose another folder"):
        torch_goat.compare(nodes, edges, target="label", folder=run)
    assert sorted(run.iterdir()) == before
    for repeats in (0, -2):
        with pytest.raises(ValueError, match=f"repeats must be at least 1, got {repeats}."):
            torch_goat.compare(nodes, edges, target="label", repeats=repeats)
    known = ", ".join(group.label for group in groups)
    with pytest.raises(SettingsError, match=rf"there is no model 'boat' in this comparison; choose from {known}\."):
        board.estimator("boat")
    board.report(tmp_path / "report.html", nodes=["c"])
    with pytest.raises(SettingsError, match=r"report\.html already exists"):
        board.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    del board, chosen
    assert len(goat.predict(nodes, edges)) == 10  # its folder is still there
    goat.save(tmp_path / "saved")
    assert torch_goat.NodeClassifier.load(tmp_path / "saved").run_.experiment.model.name == "goat"


def test_a_saved_table_that_was_changed_is_found(tmp_path: Path) -> None:
    nodes, edges = frames()
    found = classifier().fit(nodes, edges, target="label")
    found.save(tmp_path / "saved")
    del found  # with its tables
    nodes.assign(age=1).to_parquet(tmp_path / "saved/nodes.parquet")
    with pytest.raises(TableError, match=r"saved/nodes\.parquet or .*edges\.parquet changed since training; restore"):
        torch_goat.NodeClassifier.load(tmp_path / "saved")
    (tmp_path / "saved/nodes.parquet").unlink()
    with pytest.raises(TableError, match=r"cannot read .*nodes\.parquet: no such file"):
        torch_goat.NodeClassifier.load(tmp_path / "saved")
