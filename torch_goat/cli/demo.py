from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from torch_goat.datasets import top2
from torch_goat.models import ModelOptions, build
from torch_goat.training import Epoch, TrainingOptions, fit

LEARNING_RATE = 0.01
SHARED: dict[str, Any] = {"hidden_channels": 32, "activation": "relu", "dropout": 0.0}
MODELS = {
    "GOAT": ModelOptions(name="goat", last="goat", **SHARED),
    "GAT": ModelOptions(name="gat", **SHARED),
    "GraphSAGE-LSTM": ModelOptions(name="sage-lstm", **SHARED),
}


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs for each model.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the graph and the weights.")] = 0,
) -> None:
    """Train GOAT, GAT and GraphSAGE-LSTM on one Top-2 pooling graph and compare them.

    Example: goat demo --epochs 100
    """
    console = Console()
    data = top2(seed)
    console.print(
        f"Top-2 pooling: {data.num_nodes} nodes, {data.num_edges // 2} edges, 2 classes; is the combined value of the "
        f"two largest features within two hops above the median?"
    )
    table = Table("model", title=f"Test accuracy after {epochs} epochs, seed {seed}")
    for name in ("accuracy (%)", "best epoch", "time (s)"):
        table.add_column(name, justify="right")
    columns = (
        TextColumn("{task.description:<15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    training = TrainingOptions(epochs=epochs, learning_rate=LEARNING_RATE, weight_decay=0.0, patience=0)
    with Progress(*columns, console=console) as bars:
        for name, options in MODELS.items():
            torch.manual_seed(seed)
            bar = bars.add_task(name, total=epochs, note="compiling")

            def advance(epoch: Epoch, bar: TaskID = bar) -> None:
                bars.update(bar, completed=epoch.number, note=f"validation {100 * epoch.val_metric:.1f} %")

            result = fit(build(options, 1, 2), data, training, observer=advance)
            accuracy = 100 * result.metrics["test"]["accuracy"]
            table.add_row(name, f"{accuracy:.1f}", str(result.best_epoch), f"{result.seconds:.1f}")
    console.print(table)
