import os
import signal
import subprocess
import sys

import pytest
import torch
from torch_geometric.nn import GCN

from tests.experiments.training.graphs import Constant, constant_data, tiny
from torch_goat.experiments import Epoch, Interrupted, TrainingOptions, fit
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.training.interrupt import handling


def test_reads_the_test_nodes_where_validation_was_best() -> None:
    seen: list[Epoch] = []
    options = TrainingOptions(epochs=5, learning_rate=0.1, weight_decay=0.0, patience=0)
    result = fit(Constant(), constant_data(), options, device="cpu", observer=seen.append)
    assert result.best_epoch == 1
    assert result.metrics["test"]["accuracy"] == 0.75
    assert [(epoch.number, epoch.total, epoch.val_metric) for epoch in seen] == [(n, 5, 0.5) for n in range(1, 6)]
    assert result.seconds == sum(epoch.seconds for epoch in seen) > 0
    assert (result.epochs, result.stopped) == (5, "epochs")
    assert result.peak_memory_bytes > 0
    assert result.versions["torch"] == torch.__version__


def test_the_same_seed_gives_the_same_weights() -> None:
    def trained(seed: int) -> torch.Tensor:
        torch.manual_seed(0)
        model = GCN(5, 8, num_layers=2, out_channels=3, dropout=0.5)
        torch.manual_seed(99)
        fit(model, tiny(), TrainingOptions(epochs=5), seed=seed, device="cpu")
        return torch.cat([value.flatten() for value in model.state_dict().values()])

    first = trained(1)
    assert torch.equal(first, trained(1))
    assert not torch.equal(first, trained(2))


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_trains_in_other_precisions(precision: str) -> None:
    model, losses = GCN(5, 8, num_layers=2, out_channels=1), []
    options = TrainingOptions(epochs=60, precision=precision)
    fit(model, tiny(regression=True), options, device="cpu", observer=lambda epoch: losses.append(epoch.train_loss))
    assert losses[-1] < losses[0]
    dtype = {"bf16-mixed": torch.float, "bf16-true": torch.bfloat16, "64-true": torch.double}[precision]
    assert next(model.parameters()).dtype == dtype


@pytest.mark.parametrize("how", ["signal", "observer"])
def test_stopping_keeps_the_best_weights(how: str) -> None:
    def press(epoch: Epoch) -> None:
        if epoch.number == 3 and how == "observer":
            raise KeyboardInterrupt
        if epoch.number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    model = Constant()
    options = TrainingOptions(epochs=100, learning_rate=0.1, weight_decay=0.0)
    with pytest.raises(Interrupted, match=r"after epoch 3 of 100; the model has the weights of epoch 1\."):
        fit(model, constant_data(), options, device="cpu", observer=press)
    assert model.score.tolist() == pytest.approx([-0.1, 0.1])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_pressed_twice_it_stops_at_once() -> None:
    class Presses(Constant):
        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            if self.calls == 3:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
            return super().forward(*args)

    model = Presses()
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(model, constant_data(), device="cpu")
    assert not isinstance(caught.value, Interrupted)
    assert model.calls == 3


def test_a_process_that_is_started_while_ctrl_c_is_ignored_does_not_hear_it() -> None:
    interrupt = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('still here')"
    command = [sys.executable, "-c", interrupt]
    with handling(signal.SIG_IGN):
        os.kill(os.getpid(), signal.SIGINT)
        child = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert child.stdout == "still here\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "KeyboardInterrupt" in subprocess.run(command, capture_output=True, text=True, timeout=300).stderr


@pytest.mark.parametrize("batch_size", [0, 10])
def test_a_network_that_reads_edges_needs_their_features(batch_size: int) -> None:
    model = Network(ModelOptions(name="gat"), 5, 3, edge_dim=2)
    with pytest.raises(ValueError, match="reads 2 features of each edge, but data"):
        fit(model, tiny(), TrainingOptions(batch_size=batch_size), device="cpu")


@pytest.mark.parametrize(
    "options", [{"record_orderings": (1,)}, {"fixed_ordering": 0}, {"orderings_files": ("a.safetensors",)}]
)
def test_options_that_need_a_folder_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} = .* needs a run folder"):
        fit(Constant(), constant_data(), TrainingOptions(**options), device="cpu")
