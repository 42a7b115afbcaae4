"""Small graphs in the place of the datasets, short runs on them, and runs that were never trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch_geometric.data import Data

from torch_goat.data import datasets
from torch_goat.experiments import Experiment, Result, TrainingOptions, train
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.training import train as run_module

MODELS = {
    "gcn": ModelOptions(name="gcn", hidden_channels=4),
    "goat": ModelOptions(name="goat", hidden_channels=4, heads=2, backend="torch"),
    "apart": ModelOptions(name="goat", hidden_channels=4, backend="torch", add_self_loops=False, residual=True),
    "deep": ModelOptions(name="goat", hidden_channels=4, heads=2, last="goat", backend="torch"),
}


class Done(NamedTuple):
    """What of a finished run is compared."""

    experiment: Experiment
    result: Result


def result(metrics: dict[str, dict[str, float]], **changes: object) -> Result:
    """The result of a run with these metrics by split."""
    return replace(Result(metrics, 1, 1, "epochs", 1.0, 1.0, 1, "a CPU", {}, ""), **changes)  # type: ignore[arg-type]


def small(name: str, *, split: str = "", index: int = 0, data_dir: Path | None = None) -> Data:
    """Top-2 pooling on 60 nodes, or a target on 100 whose features are their own."""
    if name == "betweenness-100":
        generator = torch.Generator().manual_seed(index)
        data = Data(x=torch.eye(100), edge_index=torch.randint(100, (2, 400), generator=generator))
        data.y = torch.rand(100, generator=generator)
        part = torch.arange(100) % 3
        data.train_mask, data.val_mask, data.test_mask = (part == number for number in range(3))
        return data
    data = datasets.top2(seed=index, num_nodes=60, edge_probability=0.08)
    data.num_classes = 2
    return data


@contextmanager
def small_graphs() -> Iterator[None]:
    """While it lasts, all datasets are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", small)
        run_module._load.cache_clear()
        yield
        run_module._load.cache_clear()


def run(folder: Path, model: str, dataset: str = "top2", seed: int = 0, index: int = 0, **training: object) -> Result:
    """Trains for a few epochs."""
    options = TrainingOptions(**{"epochs": 8, "patience": 0, "learning_rate": 0.05, **training})  # type: ignore[arg-type]
    return train(
        Experiment(dataset, seed=seed, index=index, model=MODELS[model], training=options), folder, device="cpu"
    )
