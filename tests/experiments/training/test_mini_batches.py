import math
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from tests.experiments.models.cases import options as model_options
from tests.experiments.training.graphs import tiny, tiny_steps
from tests.experiments.training.test_resume import outcome
from tests.processes import largest_file
from torch_goat.data.loader import open_graph, write_graph
from torch_goat.experiments import Epoch, Experiment, RunError, TrainingOptions, fit, train
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.training.batches import SeedBatches
from torch_goat.experiments.training.task import Task
from torch_goat.settings import SettingsError

CPU = torch.device("cpu")
GOAT = ModelOptions(name="goat", hidden_channels=4, heads=2, backend="torch", dropout=0.2)


@pytest.fixture(autouse=True)
def _tiny_steps() -> Iterator[None]:
    with tiny_steps():
        yield


def experiment(model: ModelOptions = GOAT, **training: Any) -> Experiment:
    options = {"epochs": 6, "patience": 0, "batch_size": 7, "fanout": (3, 2), "learning_rate": 0.02} | training
    return Experiment("tiny", seed=3, model=model, training=TrainingOptions(**options))


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 4), st.integers(1, 9))
def test_an_epoch_has_every_node_once(count: int, size: int, world: int, epoch: int) -> None:
    steps = math.ceil(count / size)
    if size > count or count // steps < world:
        with pytest.raises(SettingsError, match=r"is more than the|are too many for"):
            SeedBatches(count, size, 0, world=world)
        return
    shares = []
    for rank in range(world):
        batches = SeedBatches(count, size, 7, rank, world)
        shares.append([mine.tolist() for _, mine in batches.of(epoch)])
        assert len(shares[-1]) == steps
        assert all(shares[-1])  # nobody waits for a process that has nothing to do
    whole = [list(chain(*parts)) for parts in zip(*shares, strict=True)]
    assert [step.tolist() for step, _ in batches.of(epoch)] == whole
    assert sorted(chain(*whole)) == list(range(count))
    assert max(map(len, whole)) <= size
    assert max(map(len, whole)) - min(map(len, whole)) <= 1


def test_epochs_are_shuffled_differently() -> None:
    one, two, again = ([step.tolist() for step, _ in SeedBatches(40, 10, 0).of(epoch)] for epoch in (1, 2, 1))
    assert one == again != two


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("goat", {}), ("goat", {"add_self_loops": False}), ("goat", {"given_order": True, "last": "goat"}), ("gcn", {}),
        ("gat", {}), ("sage-mean", {}), ("gin", {}),
    ],
)  # fmt: skip
def test_one_batch_of_everything_is_the_full_batch(name: str, apart: dict[str, Any]) -> None:
    data = tiny()
    data.edge_key = torch.randn(data.num_edges)
    runs = []
    for options in ({}, {"batch_size": 20, "fanout": (-1, -1)}):
        torch.manual_seed(0)
        model = Network(model_options(name, hidden_channels=4, dropout=0.0, residual=True, **apart), 5, 3)
        epochs: list[Epoch] = []
        fit(model, data, TrainingOptions(epochs=6, patience=0, **options), device="cpu", observer=epochs.append)
        runs.append((model, epochs))
    (whole, full), (parts, batched) = runs
    for key in ("train_loss", "val_loss", "test_metric"):
        assert [getattr(one, key) for one in batched] == pytest.approx([getattr(one, key) for one in full], rel=1e-4)
    for value, wanted in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("regression", [False, True])
def test_evaluation_is_that_of_the_whole_graph(regression: bool) -> None:
    data = tiny(regression=regression)
    model = Network(GOAT, 5, 1 if regression else 3)
    options = TrainingOptions(epochs=3, patience=0, batch_size=6, fanout=(2, 2), learning_rate=0.05)
    epochs: list[Epoch] = []

    def check(epoch: Epoch) -> None:
        epochs.append(epoch)
        out = model(data.x, data.edge_index).detach()[data.val_mask]
        y = data.y[data.val_mask]
        wanted = F.mse_loss(out.view(-1), y) if regression else F.cross_entropy(out, y)
        assert epoch.val_loss == pytest.approx(float(wanted), rel=1e-5)

    result = fit(model, data, options, seed=1, device="cpu", observer=check)
    assert len(epochs) == 3
    out = model(data.x, data.edge_index).detach()
    if not regression:
        right = (out.argmax(dim=-1) == data.y)[data.test_mask].double().mean()
        assert result.metrics["test"]["accuracy"] == pytest.approx(float(right))


@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-4), ("bf16-mixed", 0.03), ("bf16-true", 0.03)])
def test_every_precision_trains_alike(precision: Any, tolerance: float) -> None:
    losses: dict[str, list[float]] = {"32-true": [], precision: []}
    for name, seen in losses.items():
        torch.manual_seed(0)
        model = Network(ModelOptions(name="goat", hidden_channels=4, backend="torch", last="gcn", dropout=0.0), 5, 3)
        options = TrainingOptions(epochs=3, batch_size=7, fanout=(8, 8), precision=name)  # type: ignore[arg-type]
        fit(model, tiny(), options, seed=0, device="cpu", observer=lambda epoch, seen=seen: seen.append(epoch.val_loss))
    assert losses[precision] == pytest.approx(losses["32-true"], rel=tolerance)


def test_losses_of_shares_add_up_to_that_of_the_step() -> None:
    data = tiny()
    data.y[data.train_mask.nonzero().view(-1)[:12]] = 0  # unbalanced
    for weights in (False, True):
        task, out = Task(data, CPU, class_weights=weights), torch.randn(60, 3)
        whole = torch.randperm(20)
        shares = [task.loss_of(out[task.train_nodes[part]], part, whole) for part in whole.tensor_split(3)]
        assert float(sum(shares)) == pytest.approx(float(task.loss(out)), rel=1e-5)


def test_a_disk_that_is_full_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    train(experiment(), tmp_path / "whole", device="cpu")
    folder, kept, limits = tmp_path / "run", [], ExitStack()

    def fill(epoch: Epoch) -> None:
        if epoch.number == 3:
            kept.append((folder / "checkpoint.safetensors").read_bytes())
            limits.enter_context(largest_file(1024))

    with limits, pytest.raises(RunError, match=f"the run folder {folder} cannot be used: file too large; make room"):
        train(experiment(), folder, device="cpu", observer=fill)
    assert [(folder / "checkpoint.safetensors").read_bytes()] == kept
    seen: list[int] = []
    train(experiment(), folder, device="cpu", observer=lambda epoch: seen.append(epoch.number))
    assert seen == [3, 4, 5, 6]
    assert outcome(tmp_path / "whole") == outcome(folder)


def test_workers_change_nothing(tmp_path: Path) -> None:
    for workers in (0, 2):
        train(experiment(), tmp_path / str(workers), device="cpu", workers=workers)
    assert outcome(tmp_path / "0") == outcome(tmp_path / "2")


class Sees(torch.nn.Module):
    """Notes the first feature of the neighbours that it is given in training."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[float] = set()
        self.map = torch.nn.Linear(1, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.update(x[edge_index[0], 0].tolist())
        return self.map(x)


def test_a_batch_of_one_node_draws_other_neighbours_in_other_epochs() -> None:
    number, model = torch.arange(10), Sees()
    data = Data(x=number.view(-1, 1).float(), y=number % 2, edge_index=torch.stack([number[1:], 0 * number[1:]]))
    data.train_mask, data.val_mask, data.test_mask = number == 0, number == 1, number == 2
    fit(model, data, TrainingOptions(epochs=60, patience=0, batch_size=1, fanout=(1,)), seed=0, device="cpu")
    assert model.seen == {*range(1, 10)}


def test_all_neighbours_of_another_network_are_those_of_all_its_layers() -> None:
    data, seen = tiny(), []
    model = GCN(5, 8, num_layers=2, out_channels=3)
    model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[1].size(1)) if module.training else None)
    nodes = data.train_mask.nonzero().view(-1)
    fit(model, data, TrainingOptions(epochs=1, batch_size=nodes.numel()), seed=0, device="cpu")
    near = torch.cat([nodes, data.edge_index[0][torch.isin(data.edge_index[1], nodes)]]).unique()
    assert seen == [int(torch.isin(data.edge_index[1], near).sum())]
    with pytest.raises(SettingsError, match="Linear has no num_layers"):
        fit(torch.nn.Linear(5, 3), data, TrainingOptions(epochs=1, batch_size=5), seed=0, device="cpu")


@pytest.mark.parametrize("kind", [torch.float64, torch.float16])
@pytest.mark.parametrize("batches", [{}, {"batch_size": 7}])
@pytest.mark.parametrize("name", ["goat", "gcn"])
def test_features_of_any_real_type(name: str, batches: dict[str, int], kind: torch.dtype) -> None:
    found = []
    for convert in (False, True):
        data = tiny()
        data.x = data.x.half().float()  # exact in every type
        data.x = data.x.to(kind) if convert else data.x
        torch.manual_seed(2)
        model = Network(ModelOptions(name=name, hidden_channels=4, backend="auto"), 5, 3)
        found.append(fit(model, data, TrainingOptions(epochs=2, **batches), seed=2, device="cpu").metrics)
    assert found[0] == found[1]


@pytest.mark.parametrize("batches", [{}, {"batch_size": 7, "fanout": (3, 2)}])
def test_files_are_trained_on_as_memory_is(tmp_path: Path, batches: dict[str, Any]) -> None:
    data = tiny()
    order = data.edge_index[1].argsort(stable=True)
    data.edge_index = data.edge_index[:, order]  # as write_graph does, so that the draws are the same
    data.edge_attr = torch.randn(data.num_edges, 2)
    write_graph(data, tmp_path)
    scores = []
    options = TrainingOptions(epochs=3, patience=0, **batches)
    for graph in (data, open_graph(tmp_path)):
        torch.manual_seed(2)
        scores.append(fit(Network(GOAT, 5, 3, edge_dim=2), graph, options, seed=2, device="cpu").metrics)
    assert scores[0] == scores[1]


def test_a_fanout_has_a_number_for_each_layer() -> None:
    options = TrainingOptions(epochs=1, batch_size=5, fanout=(3, 3, 2))
    with pytest.raises(SettingsError, match="3,3,2 has 3 numbers, but the network has 2 layers; give one for each"):
        fit(Network(GOAT, 5, 3), tiny(), options, device="cpu")


def test_isolated_nodes_alone() -> None:
    data = tiny()
    data.edge_index = torch.empty(2, 0, dtype=torch.long)
    for name in ("goat", "gcn", "sage-mean"):
        model = Network(model_options(name, hidden_channels=4), 5, 3)
        assert fit(model, data, TrainingOptions(epochs=2, batch_size=9), seed=0, device="cpu").epochs == 2
