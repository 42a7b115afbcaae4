"""A search that takes no time, and processes that train its trials."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.search import Search, Space
from torch_goat.experiments.search.study import Study
from torch_goat.experiments.search.tune import run_trials

SPACE: Space = {"hidden_channels": (2, 3, 4, 5), "dropout": (0.0, 0.2, 0.4, 0.6), "learning_rate": (0.001, 0.01, 0.1)}


def small_search(
    space: Space | None = None, epochs: int = 3, model: ModelOptions | None = None, **changes: Any
) -> Search:
    """A search over three keys of a network of a few weights."""
    training = TrainingOptions(epochs=epochs, patience=0)
    experiment = Experiment("betweenness-100", "paper", model=model or ModelOptions("gcn"), training=training)
    return Search(experiment, space or SPACE, **{"metric": "mse", **changes})


def run_logged(study: Study) -> None:
    """Trains trials and writes their events to a file of this process, which :func:`events` counts."""
    torch.set_num_threads(1)
    with open(study.folder / f"worked-{os.getpid()}", "a") as worked:
        run_trials(study, device="cpu", on_event=lambda event: print(event.kind, event.number, file=worked, flush=True))


def events(*folders: Path) -> Counter[str]:
    files = [path for folder in folders for path in folder.glob("worked-*")]
    return Counter(line for path in files for line in path.read_text().splitlines())


def told(study: Study) -> list[tuple[object, ...]]:
    return [(trial.number, trial.state.name, trial.params, trial.value) for trial in study.trials()]
