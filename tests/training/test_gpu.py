"""What holds on a GPU, for training."""

from pathlib import Path

import pytest
import torch

from tests.training.graphs import tiny
from torch_goat.models import ModelOptions, build
from torch_goat.training import Epoch, Experiment, Interrupted, TrainingOptions, fit, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.mark.parametrize("name", ["gat", "goat"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "bf16-true"])
def test_learns_in_every_precision(name: str, precision: str) -> None:
    torch.manual_seed(0)
    model = build(ModelOptions(name=name, dropout=0.0), 5, 3)
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
    data, model = tiny(), build(ModelOptions(name=name, dropout=0.0, residual=True), 5, 3)
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

    def stop(epoch: Epoch) -> None:
        if epoch.number == 10:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        train(experiment, tmp_path / "cut", device="cuda", observer=stop)
    cut = train(experiment, tmp_path / "cut", device="cuda")
    whole = train(experiment, tmp_path / "whole", device="cuda")
    assert cut.epochs == whole.epochs == 30
    assert cut.metrics["test"]["mse"] == pytest.approx(whole.metrics["test"]["mse"], rel=0.02)


def test_a_checkpoint_of_a_cpu_is_refused(tmp_path: Path) -> None:
    experiment = Experiment("betweenness-100", model=ModelOptions(name="gcn"))

    def stop(epoch: Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        train(experiment, tmp_path, device="cpu", observer=stop)
    with pytest.raises(ValueError, match="was written on a CPU"):
        train(experiment, tmp_path, device="cuda")
