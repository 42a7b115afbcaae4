"""Models of the features alone: what a run folder holds of them predicts as scikit-learn does."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from torch_geometric.data import Data

from tests.processes import stop_after
from torch_goat.data import datasets
from torch_goat.experiments import Experiment, Interrupted, ModelOptions, Run, TrainingOptions, train
from torch_goat.experiments.models import Network
from torch_goat.experiments.training import train as run_module

PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01)  # that runs of earlier versions chose from


def graph(classes: int, unseen: bool = False) -> Data:
    """A graph whose target depends on the features; ``classes = 0`` for numbers."""
    generator = torch.Generator().manual_seed(classes)
    x = torch.randn(300, 5, generator=generator)
    y = x[:, 0] - x[:, 1].square() + 0.3 * torch.randn(300, generator=generator)
    if classes:
        y = torch.bucketize(y, y.quantile(torch.linspace(0, 1, classes + 1)[1:-1]))
    data = Data(x=x, y=y, edge_index=torch.randint(300, (2, 900), generator=generator))
    part = torch.arange(300) % 5
    data.train_mask, data.val_mask, data.test_mask = part < 3, part == 3, part == 4
    if unseen:
        data.train_mask &= y != 1
    if classes:
        data.num_classes = classes
    return data


def fitted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, data: Data, model: str | ModelOptions, **training: object
) -> Run:
    monkeypatch.setattr(datasets, "load", lambda *args, **more: data)
    known = datasets.DATASETS["top2" if data.y.dtype == torch.long else "betweenness-100"]
    run_module._load.cache_clear()
    options = TrainingOptions(**training)  # type: ignore[arg-type]
    model = ModelOptions(name=model) if isinstance(model, str) else model
    train(Experiment(known.name, model=model, training=options), folder, device="cpu")
    run_module._load.cache_clear()
    return Run(folder)


def network_of(run: Run, data: Data) -> Network:
    """The network of the run's arrays; the dataset that it is named after has another width."""
    network = Network(run.experiment.model, 5, int(data.get("num_classes") or 1))
    network.load_state_dict(load_file(run.folder / "model.safetensors"))
    return network.eval()


def best_on_validation_nodes(models: list[Any], data: Data) -> tuple[Any, float]:
    """The first of the best models of scikit-learn, fitted on the training nodes; its accuracy, or its negative MSE."""
    x, y = data.x.numpy().astype(float), data.y.numpy()
    train_nodes, val = data.train_mask.numpy(), data.val_mask.numpy()
    guesses = [model.fit(x[train_nodes], y[train_nodes]).predict(x[val]) for model in models]
    classes = np.issubdtype(y.dtype, np.integer)
    values = [np.mean(guess == y[val]) if classes else -np.mean((guess - y[val]) ** 2) for guess in guesses]
    return models[int(np.argmax(values))], max(values)


def check_equal(run: Run, model: Any, data: Data, atol: float) -> None:
    """The network of a run predicts as a fitted model of scikit-learn does."""
    out, x = network_of(run, data)(data.x, data.edge_index).detach(), data.x.numpy().astype(float)
    if "num_classes" in data:
        assert np.allclose(out.softmax(-1), model.predict_proba(x), atol=atol)
    else:
        assert np.allclose(out[:, 0], model.predict(x), atol=1e-4)


@pytest.mark.parametrize("penalties", [PENALTIES, (20.0,)])
@pytest.mark.parametrize("classes", [2, 4, 0])
def test_linear_models_are_scikit_learns_with_the_best_penalty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int, penalties: tuple[float, ...]
) -> None:
    data = graph(classes)
    run = fitted(tmp_path / "linear", monkeypatch, data, ModelOptions("linear", penalties=penalties))
    models = [
        LogisticRegression(C=1 / penalty, max_iter=500) if classes else Ridge(alpha=10 * penalty)
        for penalty in penalties
    ]
    best, value = best_on_validation_nodes(models, data)
    check_equal(run, best, data, atol=1e-4)
    measured = run.result.metrics["val"]
    assert (measured["accuracy"] if classes else -measured["mse"]) == pytest.approx(value, rel=1e-4)


def test_trees_learn_what_a_line_cannot_and_a_constant_is_the_majority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graph(2)
    runs = {name: fitted(tmp_path / name, monkeypatch, data, name) for name in ("trees", "linear", "constant")}
    test = {name: run.result.metrics["test"]["accuracy"] for name, run in runs.items()}
    assert test["trees"] > test["linear"] > test["constant"]
    most = int(data.y[data.train_mask].mode().values)
    assert test["constant"] == pytest.approx(float((data.y[data.test_mask] == most).double().mean()))
    assert runs["trees"].curves["epoch"].tolist() == [1]
    out = network_of(runs["trees"], data)(data.x, data.edge_index)
    good = (out.argmax(-1) == data.y)[data.test_mask]
    assert float(good.double().mean()) == pytest.approx(test["trees"])


@pytest.mark.parametrize("model", ["constant", "linear", "trees"])
def test_classes_without_training_nodes_are_improbable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    data = graph(3, unseen=True)
    run = fitted(tmp_path / "run", monkeypatch, data, model, metric="macro_f1", class_weights=True)
    out = network_of(run, data)(data.x, data.edge_index).detach()
    assert out.shape == (300, 3)
    assert float(out.softmax(-1)[:, 1].max()) < 0.01


def test_arrays_that_are_no_trees_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph(2)
    run = fitted(tmp_path / "run", monkeypatch, data, "trees")
    weights = load_file(run.folder / "model.safetensors")
    weights["layers.0.left"][0, 0] = 0  # the root is its own child: a prediction would never end
    save_file(weights, run.folder / "model.safetensors")
    with pytest.raises(ValueError, match="do not describe trees"):
        network_of(run, data)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            {"shrinkage": 0.2, "max_leaves": 4, "min_leaf_nodes": 7, "leaf_l2": 3.0},
            {"learning_rate": 0.2, "max_leaf_nodes": 4, "min_samples_leaf": 7, "l2_regularization": 3.0},
        ),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("classes", [2, 4, 0])
def test_trees_are_scikit_learns_with_the_same_options_and_the_best_number_of_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    data, options = graph(classes), ModelOptions("trees", rounds=25, **ours)
    run = fitted(tmp_path / "trees", monkeypatch, data, options)
    assert run.experiment.model == options
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    models = [kind(max_iter=rounds, early_stopping=False, **theirs) for rounds in (10, 20, 25)]
    best, _ = best_on_validation_nodes(models, data)
    check_equal(run, best, data, atol=1e-5)


def test_the_defaults_are_those_of_earlier_versions() -> None:
    """Which did not write these keys into their configs: scikit-learn's own, except for the number of rounds."""
    options, theirs = ModelOptions("trees"), HistGradientBoostingClassifier().get_params()
    assert options.penalties == PENALTIES
    assert options.rounds == 300
    assert (options.shrinkage, options.max_leaves) == (theirs["learning_rate"], theirs["max_leaf_nodes"])
    assert (options.min_leaf_nodes, options.leaf_l2) == (theirs["min_samples_leaf"], theirs["l2_regularization"])


def test_a_stopped_fit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search stops its trials so, and would otherwise end with a traceback of a process."""
    data = graph(2)
    monkeypatch.setattr(run_module, "_load", lambda *args: data)
    experiment = Experiment("top2", model=ModelOptions("linear"))
    with pytest.raises(Interrupted, match="the run had already finished"):
        train(experiment, tmp_path / "run", device="cpu", observer=stop_after(1))
    assert train(experiment, tmp_path / "run", device="cpu") == Run(tmp_path / "run").result


def test_fitted_models_read_their_own_options_and_need_scikit_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="hidden_channels=64 is read by no layer"):
        ModelOptions(name="trees", hidden_channels=64)
    with pytest.raises(ValueError, match="max_leaves=8 is read by no layer"):
        ModelOptions(name="linear", max_leaves=8)
    with pytest.raises(ValueError, match="last='linear' is unknown"):
        ModelOptions(name="gcn", last="linear")
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)  # as if it were missing
    with pytest.raises(ImportError, match=r"needs scikit-learn; install it with: pip install 'torch-goat\[cli\]'"):
        fitted(tmp_path / "run", monkeypatch, graph(2), "linear")
    assert not (tmp_path / "run").exists()
