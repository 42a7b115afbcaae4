import tempfile
from pathlib import Path
from typing import Annotated

import typer

from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.options import Device, Precision, with_options
from torch_goat.app.cli.progress import RunProgress
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments.search import starting_point
from torch_goat.settings import override

DATASET = "top2"
MODELS = {"goat": "GOAT", "gat": "GAT", "sage-lstm": "GraphSAGE-LSTM"}


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs for each model.")] = 150,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    device: Device = "auto",
    precision: Precision = None,
) -> None:
    """Train GOAT, GAT and GraphSAGE-LSTM on one Top-2 pooling graph and compare them; no files are kept.

    Example: goat demo --epochs 100
    """
    known, rows = DATASETS[DATASET], []
    say(
        f"Top-2 pooling: {known.nodes} nodes, about {known.edges} edges, 2 classes: whether the combined value of the "
        "two largest features within two hops is above the median."
    )
    from torch_goat.experiments import train  # after the first line of output, as it takes seconds

    assignments = with_options([f"epochs={epochs}", "patience=0", f"seed={seed}"], {"training.precision": precision})
    with tempfile.TemporaryDirectory(prefix="goat-demo-") as folder:
        for model, name in MODELS.items():
            experiment = override(starting_point(DATASET, model), assignments)
            with RunProgress(f"{name:<14}") as show:
                result = train(experiment, Path(folder) / model, device=device, observer=show)
            accuracy = 100 * result.metrics["test"]["accuracy"]
            rows.append([name, f"{accuracy:.1f}", str(result.best_epoch), f"{result.seconds:.1f}"])
    say(f"Test accuracy after {epochs} epochs, seed {seed}:")
    console().print(Aligned(["model", "accuracy (%)", "best epoch", "time (s)"], rows))
