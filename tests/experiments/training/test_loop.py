import math
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN

from tests.experiments.models.cases import options
from tests.experiments.training.graphs import Constant, constant_data, tiny, tiny_steps
from torch_goat.experiments import Experiment, Run, TrainingOptions, train
from torch_goat.experiments.comparison import deciding_metric
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.training.loop import Loop
from torch_goat.experiments.training.processes import make_fabric
from torch_goat.experiments.training.task import Task
from torch_goat.ops import checks
from torch_goat.ops.neighborhoods import neighborhoods


def loop(model: torch.nn.Module, data=None, **training) -> Loop:
    fabric = make_fabric("cpu", training.get("precision", "32-true"))
    return Loop(model, Task(data or constant_data(), fabric.device), TrainingOptions(**training), fabric)


def network(seed: int = 0) -> GCN:
    torch.manual_seed(seed)
    return GCN(5, 8, num_layers=2, out_channels=3)


@pytest.mark.parametrize("clip_norm", [0.0, 0.01])
def test_trains_as_plain_pytorch_does(clip_norm: float) -> None:
    data, expected = tiny(), network()
    optimizer = torch.optim.Adam(expected.parameters(), lr=0.01, weight_decay=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(expected(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(expected.parameters(), clip_norm)
        optimizer.step()
        losses.append(loss.item())
    model = network()
    made = loop(model, data, epochs=20, learning_rate=0.01, weight_decay=0.1, patience=0, clip_norm=clip_norm)
    assert [epoch.train_loss for epoch in made] == pytest.approx(losses, rel=1e-4)
    for value, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-3, atol=1e-4)


def test_stops_when_patience_runs_out_and_keeps_the_best_weights() -> None:
    # Training pulls towards class 1, where half of the validation nodes are not: every step makes their loss worse.
    model = Constant()
    made = loop(model, epochs=50, learning_rate=0.1, weight_decay=0.0, patience=4)
    epochs = list(made)
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5]
    assert made.stopped == "patience"
    assert made.best_epoch == 1
    # Adam's first step is the learning rate, against the sign of the gradient.
    torch.testing.assert_close(made.best["score"], torch.tensor([-0.1, 0.1]))
    assert made.predict().tolist()[0] == pytest.approx([-0.1, 0.1])
    assert model.score.tolist() == pytest.approx([-0.1, 0.1])


def test_the_metric_may_decide_instead_of_the_loss() -> None:
    data = constant_data()
    data.y[data.val_mask] = torch.tensor([1, 1])
    # From a wrong start, the loss falls in every epoch, while the accuracy jumps from 0 to 1 once and stays.
    for stop_on, best_epoch in (("loss", 10), ("metric", 4)):  # 0.35 - 4 * 0.1 < 0
        model = Constant()
        model.score.data = torch.tensor([0.35, -0.35])
        made = loop(model, data, stop_on=stop_on, epochs=10, learning_rate=0.1, weight_decay=0.0, patience=0)
        assert [epoch.val_metric for epoch in made] == [0.0] * 3 + [1.0] * 7
        assert made.best_epoch == best_epoch


def test_for_regression_the_lower_error_is_better() -> None:
    data = constant_data()
    data.y = torch.full((9,), 1.0)
    made = loop(Constant(1), data, epochs=5, learning_rate=0.1, weight_decay=0.0, stop_on="metric")
    epochs = list(made)
    assert made.best_epoch == 5
    assert epochs[0].metric == "mse"
    assert epochs[0].val_metric == pytest.approx(0.81)  # (1 - 0.1)^2
    assert epochs[0].train_loss == pytest.approx(1.0)  # before the step


class Breaks(Constant):
    """Gives NaN from the third training step on, or from the first call on."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out = super().forward(x, edge_index)
        return out * math.nan if self.calls > self.after else out


@pytest.mark.parametrize("stop_on", ["loss", "metric"])
def test_training_that_diverges_stops_with_the_best_weights(stop_on: str) -> None:
    data = constant_data()
    data.y[data.val_mask] = 0  # which is also what the largest of scores that are NaN says
    made = loop(Breaks(after=3), data, epochs=100, stop_on=stop_on, weight_decay=0.0)
    assert [epoch.val_metric for epoch in made] == [0.0, 1.0, 1.0]
    assert (made.stopped, made.best_epoch) == ("diverged", 1)
    assert bool(made.best["score"].isfinite().all())


@pytest.mark.parametrize("stop_on", ["loss", "metric"])
def test_training_that_never_had_a_loss_says_so(stop_on: str) -> None:
    made = loop(Breaks(after=0), epochs=100, learning_rate=0.3, stop_on=stop_on)
    assert len(list(made)) == 1
    with pytest.raises(ValueError, match=r"not finite in any of 1 epochs.*\(0\.3\)"):
        made.predict()


@pytest.mark.parametrize("batches", [{}, {"batch_size": 20}, {"batch_size": 5, "fanout": (2, 2)}])
@pytest.mark.parametrize("name", ["gat", "goat"])
@pytest.mark.parametrize("key", ["x", "edge_attr"])
def test_non_finite_features_end_training_in_the_first_epoch(key: str, name: str, batches: dict[str, Any]) -> None:
    data = tiny()
    data.edge_index[:, :3] = torch.tensor([[5], [2]])
    data.edge_index = data.edge_index[:, data.edge_index[0] != 2]  # node 2, for testing, is in no batch
    data.edge_attr = torch.randn(data.edge_index.size(1), 2)
    data[key][2] = torch.nan  # edge 2 leads to node 2
    torch.manual_seed(0)
    made = loop(Network(options(name), 5, 3, edge_dim=2), data, epochs=9, **batches)
    with pytest.raises(ValueError, match=f"data.{key} has a non-finite value in row 2"):
        list(made)
    assert made.epochs == []


@pytest.mark.parametrize("batches", [{}, {"batch_size": 5, "fanout": (2, 2)}])
def test_lazy_layers_take_their_width_from_the_data(batches: dict[str, Any]) -> None:
    model = GCN(-1, 8, num_layers=2, out_channels=3)
    list(loop(model, tiny(), epochs=2, **batches))
    assert model.convs[0].lin.weight.shape == (8, 5)


class ReadsTheSwitch(Constant):
    checks: bool | None = None

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        self.seen = [*getattr(self, "seen", []), checks.checks_enabled(self.checks)]
        return super().forward(x, edge_index)


def test_data_are_checked_in_the_first_epoch_only() -> None:
    model = ReadsTheSwitch()
    between = [model.checks for _ in loop(model, epochs=3)]
    assert model.seen == [True, True, False, False, False, False]  # two forward passes per epoch
    assert between == [None, None, None]
    assert checks.checks_enabled()


@pytest.mark.parametrize("name", ["gcn", "gat", "gatv2", "janossy", "goat"])
def test_no_layer_compares_edges_after_the_first_epoch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool | None] = []  # on a GPU, comparing edges synchronises and rules out a CUDA graph

    def build(*arguments, **options):
        asked.append(signature(neighborhoods).bind(*arguments, **options).arguments.get("checks"))
        return neighborhoods(*arguments, **options)

    for module in ("nn.inputs", "experiments.models.layers", "experiments.models.janossy"):
        monkeypatch.setattr(f"torch_goat.{module}.neighborhoods", build)
    for epoch in loop(Network(options(name, hidden_channels=4), 5, 3), tiny(), epochs=2):
        if epoch.number == 1:
            asked.clear()
    assert asked
    assert not any(checks is None or checks for checks in asked)


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        ({"warmup": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        ({"schedule": "cosine"}, [1.0, 0.9330127, 0.75, 0.5, 0.25, 0.0669873]),  # cos of multiples of 30 degrees
        ({"schedule": "cosine", "warmup": 2}, [0.5, 0.9330127, 0.75, 0.5, 0.25, 0.0669873]),
    ],
)
def test_the_learning_rate_follows_its_schedule(schedule: dict[str, Any], shares: list[float]) -> None:
    # Adam's steps against a gradient of one sign are the learning rate, as long as they are small.
    model = Constant()
    made = loop(model, epochs=6, learning_rate=1e-4, weight_decay=0.0, patience=0, **schedule)
    steps, before = [], model.score.tolist()[1]
    for _ in made:
        steps.append(model.score.tolist()[1] - before)
        before = model.score.tolist()[1]
    assert steps == pytest.approx([1e-4 * share for share in shares], rel=2e-3)


def test_the_order_noise_falls_in_steps_over_the_first_70_percent() -> None:
    model = Network(options("goat", hidden_channels=4, num_layers=3, order_noise=0.5), 5, 3)
    model.layers[1].order_noise = 0.0  # stays off
    seen: list[tuple[float, float]] = []

    def watch(module: torch.nn.Module, inputs: object) -> None:
        if module.training:
            seen.append((model.layers[0].order_noise, model.layers[1].order_noise))

    model.register_forward_pre_hook(watch)
    made = loop(model, tiny(), epochs=40, patience=0, order_noise_end=0.1)
    made.epochs, made.best_epoch = list(made)[:33], 1  # as resumed from a checkpoint
    between = [model.layers[0].order_noise for _ in made]
    assert [second for _, second in seen] == [0.0] * 47
    expected = [0.5 - 0.4 * min(1.0, number // 1.4 / 20) for number in range(40)]  # 28 epochs in 20 steps
    assert [first for first, _ in seen] == pytest.approx(expected + expected[33:])
    assert len(set(seen)) == 21
    assert set(between) == {0.5}


def test_the_average_is_what_is_judged_and_kept() -> None:
    plain, averaged = Constant(), Constant()
    scores = [plain.score.tolist() for _ in loop(plain, epochs=8, learning_rate=0.1, weight_decay=0.0, patience=0)]
    made = loop(averaged, epochs=8, learning_rate=0.1, weight_decay=0.0, patience=0, averaging=0.75)
    mean = torch.zeros(2)
    for score, epoch in zip(scores, made, strict=True):
        assert averaged.score.tolist() == score  # training itself goes on as without
        mean = 0.75 * mean + 0.25 * torch.tensor(score)
        torch.testing.assert_close(made.average["score"], mean)
        expected = F.cross_entropy(mean.expand(2, -1), torch.tensor([1, 0]))  # the validation nodes
        assert epoch.val_loss == pytest.approx(float(expected), rel=1e-5)
    assert made.best["score"].tolist() != scores[made.best_epoch - 1]


def test_the_average_of_16_bits_follows_small_steps() -> None:
    model, mean = Constant(start=1.0), torch.ones(2)
    training = {"epochs": 60, "patience": 0, "learning_rate": 0.01, "weight_decay": 0.0, "averaging": 0.99}
    made = loop(model, precision="bf16-true", **training)
    for _ in made:
        mean = 0.99 * mean + 0.01 * model.score.detach().float()
    torch.testing.assert_close(made.average["score"], mean)
    assert model.score.dtype == made.best["score"].dtype == torch.bfloat16


class OfTwo:
    """A fabric as the first of two processes has it, the second of which has counted 14 more everywhere."""

    world_size = 2

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fabric, name)

    def all_reduce(self, value: torch.Tensor, reduce_op: str) -> torch.Tensor:
        return value + 7.0


def test_the_average_is_of_what_the_processes_agree_on() -> None:
    torch.manual_seed(0)
    model = Network(ModelOptions(name="gcn", hidden_channels=4, norm="batch"), 5, 3)
    made = loop(model, tiny(), epochs=1, averaging=0.75)
    made.fabric = OfTwo(made.fabric)
    list(made)
    counted = model.norms[0].module.running_mean
    assert float(counted.min()) > 3  # both processes' mean
    torch.testing.assert_close(made.average["norms.0.module.running_mean"], 0.25 * counted)


def test_weight_decay_may_spare_the_weights_of_rnns() -> None:
    rnn = ["layers.0.rnn.weight_ih", "layers.0.rnn.weight_hh", "layers.0.rnn.bias_ih", "layers.0.rnn.bias_hh"]
    torch.manual_seed(0)
    model = Network(ModelOptions(hidden_channels=4), 5, 3)
    for spare in (False, True):
        made = loop(model, tiny(), epochs=1, weight_decay=0.5, decay_recurrent=not spare)
        decay = {id(value): group["weight_decay"] for group in made.optimizer.param_groups for value in group["params"]}
        spared = [name for name, value in model.named_parameters() if decay[id(value)] == 0]
        assert spared == (rnn if spare else [])
        assert len(decay) == len(list(model.parameters()))


@pytest.mark.parametrize(("asked", "metric"), [("", "roc_auc"), ("macro_f1", "macro_f1")])
def test_the_metric_asked_for_or_of_the_dataset_decides_the_best_epoch_and_run(
    tmp_path: Path, asked: Any, metric: str
) -> None:
    options = TrainingOptions(epochs=12, stop_on="metric", patience=0, learning_rate=0.05, metric=asked)
    experiment = Experiment("tolokers", model=ModelOptions("gcn"), training=options)
    with tiny_steps():
        result = train(experiment, tmp_path, device="cpu")
    run = Run(tmp_path)
    values = run.curves[f"val_{metric}"]
    assert result.best_epoch == 1 + int(values.argmax())
    assert result.metrics["val"][metric] == pytest.approx(values.max())
    assert deciding_metric([run]) == metric
    assert replace(experiment, training=replace(options, metric="accuracy")).metric == "accuracy"
    assert replace(experiment, graph="own").metric == asked
    assert Experiment("cora").metric == ""
