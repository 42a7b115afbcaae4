"""What holds on a GPU, for training."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.models.cases import DETERMINISTIC
from tests.experiments.training.graphs import tiny
from tests.processes import stop_after
from torch_goat.experiments import Experiment, Interrupted, RunError, TrainingOptions, fit, train
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.training.epoch_graph import EpochGraph
from torch_goat.experiments.training.loop import Loop
from torch_goat.experiments.training.processes import make_fabric
from torch_goat.experiments.training.task import Task

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.mark.parametrize("name", ["gat", "goat"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "bf16-true"])
def test_learns_in_every_precision(name: str, precision: str) -> None:
    torch.manual_seed(0)
    model = Network(ModelOptions(name=name, dropout=0.0), 5, 3)
    options = TrainingOptions(epochs=100, patience=0, precision=precision, clip_norm=1.0, learning_rate=0.02)
    losses: list[float] = []
    result = fit(model, tiny(), options, device="cuda", observer=lambda epoch: losses.append(epoch.train_loss))
    assert losses[-1] < 0.8 * losses[0]
    assert result.device == torch.cuda.get_device_name()
    assert 0 < result.peak_memory_bytes < 1e9
    assert next(model.parameters()).is_cuda


@pytest.mark.parametrize("name", ["gcn", "goat"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-true"])
def test_mini_batches(name: str, precision: str) -> None:
    torch.manual_seed(0)
    data, model = tiny(), Network(ModelOptions(name=name, dropout=0.0, residual=True), 5, 3)
    options = TrainingOptions(
        epochs=40, precision=precision, clip_norm=1.0, learning_rate=0.02, batch_size=7, fanout=(8, 8)
    )
    result = fit(model, data, options, device="cuda", workers=2)
    assert result.metrics["train"]["accuracy"] > 0.6
    if precision == "32-true":
        right = model(data.x.cuda(), data.edge_index.cuda()).argmax(dim=-1).cpu() == data.y
        assert result.metrics["test"]["accuracy"] == pytest.approx(float(right[data.test_mask].double().mean()))


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_goes_on_from_a_checkpoint(tmp_path: Path, precision: str) -> None:
    experiment = Experiment(
        "betweenness-100",
        model=ModelOptions(name="gcn"),
        training=TrainingOptions(epochs=30, patience=0, precision=precision, weight_decay=0.0),
    )
    with pytest.raises(Interrupted):
        train(experiment, tmp_path / "cut", device="cuda", observer=stop_after(10))
    cut = train(experiment, tmp_path / "cut", device="cuda")
    whole = train(experiment, tmp_path / "whole", device="cuda")
    assert cut.epochs == whole.epochs == 30
    assert cut.metrics["test"]["mse"] == pytest.approx(whole.metrics["test"]["mse"], rel=0.02)


def _losses(name: str, record: bool, **training: Any) -> tuple[list[float], Loop]:
    torch.manual_seed(0)
    fabric = make_fabric("cuda", "32-true")
    task = Task(tiny(), fabric.device)
    model = ModelOptions(name=name, hidden_channels=8, norm="batch", order_noise=3 * training.get("order_noise_end", 0))
    network = Network(model, 5, 3, degree=torch.tensor([0, 1, 1]))
    options = TrainingOptions(epochs=30, patience=0, learning_rate=0.02, **training)
    loop = Loop(network, task, options, fabric, record=record)
    return [epoch.train_loss for epoch in loop], loop


@pytest.mark.parametrize(
    ("name", "training"),
    [
        *((name, {}) for name in DETERMINISTIC),
        *(("goat", training) for training in ({"warmup": 9}, {"averaging": 0.9}, {"clip_norm": 0.1})),
        ("goat", {"schedule": "cosine"}),
        ("goat", {"order_noise_end": 0.1}),  # captured again with each of its levels
    ],
)
def test_recorded_epochs_are_those_that_would_be_launched(name: str, training: dict[str, Any]) -> None:
    plain, _ = _losses(name, record=False, **training)
    recorded, loop = _losses(name, record=True, **training)
    assert loop._graph is not None
    assert loop._graph.recorded
    assert recorded == pytest.approx(plain, rel=2e-3)  # PyG's sums are rounded in another order every time
    assert recorded[-1] < recorded[0]


def test_a_recording_draws_anew_in_every_epoch() -> None:
    drawn = torch.zeros(5, device="cuda")

    def epoch() -> torch.Tensor:
        return drawn.copy_(torch.rand(5, device="cuda")) + 0

    graph = EpochGraph(torch.optim.Adam([drawn], fused=True), torch.device("cuda"))
    seen = [tuple(graph(epoch).tolist()) for _ in range(6)]
    assert graph.recorded
    assert len(set(seen)) == 6


def test_work_that_depends_on_what_the_device_says_is_not_recorded() -> None:
    number = torch.zeros(1, device="cuda")

    def epoch() -> torch.Tensor:
        return number.add_(1 if bool(number > 2) else 2) + 0

    graph = EpochGraph(torch.optim.Adam([number], fused=True), torch.device("cuda"))
    assert [graph(epoch).item() for _ in range(5)] == [2, 4, 5, 6, 7]
    assert not graph.recorded


def test_work_that_cannot_be_recorded_goes_on_as_it_was() -> None:
    number = torch.zeros(1, device="cuda")

    def epoch() -> torch.Tensor:
        torch.cuda.synchronize()  # which the watch does not see
        return number.add_(1) + torch.rand(1, device="cuda") * 0

    graph = EpochGraph(torch.optim.Adam([number], fused=True), torch.device("cuda"))
    assert [graph(epoch).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert not graph.recorded


def test_a_checkpoint_of_a_cpu_is_refused(tmp_path: Path) -> None:
    experiment = Experiment("betweenness-100", model=ModelOptions(name="gcn"))
    with pytest.raises(Interrupted):
        train(experiment, tmp_path, device="cpu", observer=stop_after(1))
    with pytest.raises(RunError, match="was written on a CPU"):
        train(experiment, tmp_path, device="cuda")
