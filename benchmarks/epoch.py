"""The time of a training epoch relative to plain PyTorch.

    python benchmarks/epoch.py --threads 1 --out build/bench

Compares an epoch of :mod:`torch_goat.experiments.training` (Fabric, evaluation of all splits, early stopping, best
weights; recorded as a CUDA graph on a GPU) with a plain step (forward, backward, Adam) and with a plain step plus one
forward pass for validation. The three take turns, so that other load on the machine affects them equally. Writes
``epoch.json`` and ``epoch.md`` into ``--out``.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from graphs import load_data
from measure import environment, heading, interleaved, write_results
from torch_geometric.data import Data
from tqdm import tqdm

from torch_goat.experiments import TrainingOptions
from torch_goat.experiments.models import ModelOptions, Network
from torch_goat.experiments.training.loop import Loop
from torch_goat.experiments.training.processes import make_fabric
from torch_goat.experiments.training.task import Task

CLASSES = 7
SPLITS = {"train": 140, "val": 500, "test": 1000}
MODELS = {
    "gcn": ModelOptions(name="gcn", hidden_channels=64),
    "gat": ModelOptions(name="gat", hidden_channels=8, heads=8, dropout=0.6),
    "goat": ModelOptions(name="goat", hidden_channels=8, heads=8, dropout=0.6),
}


def graph(name: str, data: str | None) -> tuple[str, Data]:
    """A graph with random features and classes, split as Cora is."""
    title, made, generator = load_data(name, data, CLASSES)
    place = torch.randperm(made.num_nodes, generator=generator)
    start = 0
    for split, size in SPLITS.items():
        made[f"{split}_mask"] = (place >= start) & (place < start + size)
        start += size
    return title, made


def bare(options: ModelOptions, data: Data, device: torch.device, evaluate: bool) -> Callable[[], object]:
    """A step of a loop as one would write it, and the forward pass of an evaluation if wanted."""
    torch.manual_seed(0)
    model = Network(options, data.num_features, CLASSES).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    x, edge_index, y = data.x.to(device), data.edge_index.to(device), data.y.to(device)
    nodes = data.train_mask.nonzero().view(-1).to(device)

    def step() -> None:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[nodes], y[nodes]).backward()
        optimizer.step()
        if evaluate:
            model.eval()
            with torch.no_grad():
                model(x, edge_index)

    return step


def ours(options: ModelOptions, data: Data, device: torch.device) -> Callable[[], object]:
    """An epoch of the training loop."""
    torch.manual_seed(0)
    fabric = make_fabric(device.type, "32-true")
    model = Network(options, data.num_features, CLASSES)
    loop = Loop(model, Task(data, fabric.device), TrainingOptions(epochs=10**9, patience=0), fabric, record=True)
    epochs: Iterator[object] = iter(loop)
    return lambda: next(epochs)


def measure(name: str, data: Data, device: torch.device, seconds: float) -> dict[str, str | float]:
    """The median times of the three, in turns."""
    subjects = {
        "step": bare(MODELS[name], data, device, evaluate=False),
        "step_and_evaluation": bare(MODELS[name], data, device, evaluate=True),
        "epoch": ours(MODELS[name], data, device),
    }
    for call in [*subjects.values()] * 2:  # compiled and recorded
        call()
    times = interleaved(subjects, device, seconds / len(subjects), most=1000)
    row: dict[str, str | float] = {f"{subject}_ms": 1e3 * median(values) for subject, values in times.items()}
    for subject in ("step", "step_and_evaluation"):
        row[f"times_{subject}"] = median(times["epoch"]) / median(times[subject])
    return {"model": name, **row}


def markdown(rows: list[dict], about: dict[str, str | int]) -> str:
    """The result as a page."""
    lines = [
        *heading("A training epoch beside the bare step", about),
        "| graph | model | step (ms) | step and evaluation (ms) | epoch (ms) | x step | x step and evaluation |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['graph']} | {row['model']} | {row['step_ms']:.2f} | {row['step_and_evaluation_ms']:.2f} "
        f"| {row['epoch_ms']:.2f} | {row['times_step']:.2f} | {row['times_step_and_evaluation']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--graphs", default="Cora", help="of Cora, Computers, ogbn-arxiv")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model")
    parser.add_argument("--data", help="a data directory in PyG's layout (default: TORCH_GOAT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where the results are written")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    rows: list[dict] = []
    for name in arguments.graphs.split(","):
        title, data = graph(name, arguments.data)
        bar = tqdm(arguments.models.split(","), desc=title, unit="model")
        rows += [{"graph": title, **measure(model, data, device, arguments.seconds)} for model in bar]
    about = environment(device)
    write_results(arguments.out, "epoch", {"environment": about, "rows": rows}, markdown(rows, about))


if __name__ == "__main__":
    main()
