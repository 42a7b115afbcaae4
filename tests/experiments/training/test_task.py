from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score, roc_auc_score

from tests.experiments.training.graphs import tiny
from torch_goat.data.loader import open_graph, write_graph
from torch_goat.experiments.training.task import Task

CPU = torch.device("cpu")


@pytest.mark.parametrize("regression", [False, True])
def test_an_epoch_measures_what_the_metrics_say(regression: bool) -> None:
    data = tiny(regression=regression)
    task = Task(data, CPU)
    out = torch.randn(60, 1 if regression else 3)
    loss, *measured = task.measure(out).tolist()
    metrics = task.metrics(out)
    assert measured == pytest.approx([metrics[split][task.metric] for split in ("train", "val", "test")])
    expected = F.mse_loss if regression else F.cross_entropy
    guess = out.view(-1) if regression else out
    assert loss == pytest.approx(float(expected(guess[data.val_mask], data.y[data.val_mask])))
    assert float(task.loss(out)) == pytest.approx(float(expected(guess[data.train_mask], data.y[data.train_mask])))
    classes, numbers = {"accuracy", "macro_f1", "roc_auc", "pr_auc"}, {"mse", "rmse", "mae", "r2"}
    assert set(metrics["test"]) == (numbers if regression else classes)


@pytest.mark.parametrize("metric", ["macro_f1", "roc_auc"])
@pytest.mark.parametrize("classes", [2, 3])
def test_an_epoch_measures_the_metric_that_decides(metric: str, classes: int) -> None:
    data = tiny()
    data.y = data.y % classes
    out = torch.randn(60, classes)
    out[:7] = out[0]  # equal scores
    task = Task(data, CPU, metric=metric)
    found = task.metrics(out)
    assert task.measure(out).tolist()[1:] == pytest.approx([found[split][metric] for split in ("train", "val", "test")])
    probability, y = out.softmax(dim=-1)[data.val_mask], data.y[data.val_mask]
    if metric == "roc_auc":
        expected = roc_auc_score(y, probability[:, 1] if classes == 2 else probability, multi_class="ovr")
    else:
        expected = f1_score(y, probability.argmax(dim=-1), average="macro")
    assert found["val"][metric] == pytest.approx(expected)


def test_keys_of_edges_become_ranks_that_no_precision_rounds() -> None:
    data = tiny()
    data.edge_key = torch.arange(data.num_edges, dtype=torch.double) // 2 * -1e-9 + 1e9  # equal as float32
    data.edge_key[5], data.edge_key[7] = torch.inf, -torch.inf
    ranks = Task(data, CPU).order_by
    assert not ranks.is_floating_point()
    key = data.edge_key.numpy()
    assert ((key[:, None] < key) == (ranks[:, None] < ranks).numpy()).all()
    data.edge_key[3] = torch.nan
    with pytest.raises(ValueError, match=r"data\.edge_key is NaN at edge 3"):
        _ = Task(data, CPU).order_by
    for wrong, shape in ((None, "None"), (torch.ones(3), r"\[3\]")):
        data.edge_key = wrong
        with pytest.raises(ValueError, match=f"one number for each of the 240 edges, got shape {shape}"):
            _ = Task(data, CPU).order_by


def test_targets_of_any_width_are_learned() -> None:
    narrow, wide = tiny(), tiny(regression=True)
    narrow.y, wide.y = narrow.y.to(torch.int32).view(-1, 1), wide.y.double()
    for data, channels in ((narrow, 3), (wide, 1)):
        out = torch.randn(60, channels, requires_grad=True)
        loss = Task(data, CPU).loss(out)
        loss.backward()
        assert loss.dtype == out.grad.dtype == torch.float


def test_labels_outside_of_the_splits_are_not_looked_at() -> None:
    data = tiny()
    data.y[0], data.train_mask[0] = -1, False
    task = Task(data, CPU)
    assert torch.isfinite(task.measure(torch.randn(60, 3))).all()
    data.train_mask[0] = True
    with pytest.raises(ValueError, match="class -1"):
        Task(data, CPU)
    data.train_mask[0], data.test_mask[:] = False, False
    assert set(Task(data, CPU).metrics(torch.randn(60, 3))) == {"train", "val"}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("x", None, "data.x must be a tensor"),
        ("val_mask", None, "data.val_mask must be a tensor"),
        ("val_mask", torch.zeros(60, dtype=torch.bool), "data.val_mask selects no node"),
        ("test_mask", torch.zeros(60, 2, dtype=torch.bool), r"shape \[60, 2\]"),
        ("train_mask", torch.zeros(60), "torch.float32"),
        ("y", torch.zeros(7), "data.y has 7 rows"),
        ("y", torch.zeros(60, 2, dtype=torch.long), r"one class per node, got shape \[60, 2\]"),
        ("y", torch.tensor(1), "data.y has no rows"),
        ("y", torch.arange(60).where(torch.arange(60) != 7, 10**9), "class 1000000000 .* at most 1000 classes"),
        ("y", torch.arange(60.0).where(torch.arange(60) != 7, torch.nan), "not finite at node 7"),
        ("y", torch.arange(60.0).double().where(torch.arange(60) != 8, 1e300), "not finite at node 8"),
        ("edge_index", torch.zeros(4, 2, dtype=torch.long), r"got torch.int64 of shape \[4, 2\]"),
        ("edge_index", torch.zeros(2, 4), "got torch.float32"),
    ],
)
def test_a_graph_that_cannot_be_trained_on_is_refused(key: str, value: object, text: str) -> None:
    data = tiny()
    data[key] = value
    with pytest.raises(ValueError, match=text):
        Task(data, CPU)


@pytest.mark.parametrize("name", ["edge_index", "indices"])
@pytest.mark.parametrize("node", [-1, 60])
def test_edges_of_nodes_that_are_not_there_are_refused(tmp_path: Path, name: str, node: int) -> None:
    data = tiny()
    if name == "indices":
        write_graph(data, tmp_path)
        array = np.load(tmp_path / "indices.npy", mmap_mode="r+")
        array[3] = node
        array.flush()
        data = open_graph(tmp_path)
    else:
        data.edge_index[1, 3] = node
    with pytest.raises(IndexError, match=f"has node {node}, but there are 60 nodes"):
        Task(data, CPU)


def test_many_classes_are_possible_where_there_are_many_nodes_or_the_graph_says_so() -> None:
    data = tiny()
    data.y[0] = 4000
    with pytest.raises(ValueError, match="class 4000"):
        Task(data, CPU)
    data.num_classes = 4001
    assert Task(data, CPU).channels == 4001
    assert float(Task(tiny(), CPU).loss(torch.randn(60, 5))) > 0  # outputs for classes that no node has


@pytest.mark.parametrize(
    ("regression", "shape", "message"),
    [
        *((False, shape, "out_channels=3") for shape in ((60, 2), (59, 3), (60,))),
        (True, (60, 3), r"shape \[60, 3\], but there are 60 nodes and 1 targets"),
    ],
)
def test_a_model_that_does_not_fit_the_targets_is_refused(
    regression: bool, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Task(tiny(regression=regression), CPU).loss(torch.randn(shape))


def test_class_weights_make_the_classes_equal() -> None:
    data = tiny()
    data.y[data.train_mask] = (torch.arange(20) == 0).long()  # 19 of class 0, one of class 1, none of class 2
    out = torch.randn(60, 3)
    task, y = Task(data, CPU, class_weights=True), data.y[data.train_mask]
    losses = F.cross_entropy(out[data.train_mask], y, reduction="none")
    expected = (losses[y == 0].mean() + losses[y == 1].mean()) / 2
    assert float(task.loss(out)) == pytest.approx(float(expected))
    wide = torch.cat([out, torch.full((60, 1), -torch.inf)], dim=1)  # a class that no node has
    assert float(task.loss(wide)) == pytest.approx(float(expected))
    with pytest.raises(ValueError, match="class_weights needs classes"):
        Task(tiny(regression=True), CPU, class_weights=True)
    data.y[data.val_mask] = 2
    with pytest.raises(ValueError, match="no validation node has a class with training nodes"):
        Task(data, CPU, class_weights=True)


def test_standardised_targets_are_judged_in_their_own_unit() -> None:
    data = tiny(regression=True)
    out = torch.randn(60, 1)
    plain = Task(data, CPU)
    data.target_scale = 10.0
    scaled = Task(data, CPU)
    assert float(scaled.loss(out)) == float(plain.loss(out))
    before, after = plain.metrics(out)["test"], scaled.metrics(out)["test"]
    assert after["mse"] == pytest.approx(100 * before["mse"], rel=1e-5)
    assert after["r2"] == pytest.approx(before["r2"], rel=1e-4)
    assert scaled.measure(out)[3] == pytest.approx(after["mse"])
