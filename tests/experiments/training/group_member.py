"""One of several processes that train together, as ``torchrun`` starts them; one of them may be killed on the way."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import Tensor

from tests.experiments.training.graphs import tiny_steps
from torch_goat.experiments import Experiment, TrainingOptions, train
from torch_goat.experiments.models import ModelOptions
from torch_goat.experiments.training.batches import Step
from torch_goat.experiments.training.loop import Loop

# Without dropout and with all neighbours, the processes together do what one does alone, up to rounding.
EXPERIMENT = Experiment(
    "tiny",
    seed=4,
    model=ModelOptions(name="goat", hidden_channels=4, heads=2, backend="torch", dropout=0.0),
    training=TrainingOptions(epochs=6, patience=0, batch_size=7, learning_rate=0.02, class_weights=True),
)


def kill_in_step(number: int, marker: Path) -> None:
    """The process ends in the middle of a step, with no chance to say so, in its first life."""
    run, count = Loop._step, 0

    def step(loop: Loop, given: Step) -> Tensor:
        nonlocal count
        count += 1
        if count == number and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run(loop, given)

    Loop._step = step  # type: ignore[method-assign]


def main(folder: Path, kill: int = 0) -> None:
    torch.set_num_threads(1)
    rank = os.environ["RANK"]
    if kill and rank == "1":
        kill_in_step(kill, folder.parent / "killed")
    seen: list[int] = []
    with tiny_steps():
        result = train(EXPERIMENT, folder, device="cpu", observer=lambda epoch: seen.append(epoch.number))
    lives = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
    said = folder.parent / f"process-{rank}.txt"
    said.write_text(f"{lives} {seen[0]} {result.metrics['test']['accuracy']!r} {os.environ['GROUP_RANK']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
