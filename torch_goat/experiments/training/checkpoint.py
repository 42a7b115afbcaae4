"""The state of a run between two epochs, as one safetensors file."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from torch_goat.experiments.training.loop import Epoch, Loop
from torch_goat.files import write_atomic

_FORMAT = "torch_goat.checkpoint.1"


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes the weights of a network."""
    write_atomic(path, save({name: value.cpu().contiguous() for name, value in weights.items()}))


def save_checkpoint(path: Path, loop: Loop, peak_memory_bytes: int) -> None:
    """Writes everything that the remaining epochs depend on."""
    tensors = {f"model.{name}": value for name, value in loop.network.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in loop.best.items()}
    tensors |= {f"average.{name}": value for name, value in loop.average.items()}
    for number, values in loop.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in values.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if loop.fabric.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(loop.fabric.device)
    tensors["epochs"] = torch.tensor([epoch[3:] for epoch in loop.epochs], dtype=torch.double)  # [epochs, 6]
    about = {
        "format": _FORMAT,
        "best_epoch": loop.best_epoch,
        "peak_memory_bytes": peak_memory_bytes,
        "precision": loop.fabric.strategy.precision.state_dict(),  # the gradient scale, if any
    }
    # Copies: the weights of a network may share memory, those of a safetensors file may not.
    tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    write_atomic(path, save(tensors, metadata={"state": json.dumps(about)}))


def load_checkpoint(path: Path, loop: Loop) -> int:
    """Restores a new loop of the same run from a checkpoint, and returns the peak memory before it."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("state", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable checkpoint ({error}); delete it to start again.") from None
    if about.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a checkpoint that this version can read; delete it to start again.")
    loop.network.load_state_dict(_part(tensors, "model."))
    optimizer = loop.optimizer.state_dict()
    for name, value in _part(tensors, "optimizer.").items():
        number, _, key = name.partition(".")
        optimizer["state"].setdefault(int(number), {})[key] = value
    loop.optimizer.load_state_dict(optimizer)
    loop.fabric.strategy.precision.load_state_dict(about["precision"])
    rows = enumerate(tensors["epochs"].tolist(), start=1)
    loop.epochs = [Epoch(number, loop.options.epochs, loop.task.metric, *row) for number, row in rows]
    loop.best_epoch, device = about["best_epoch"], loop.fabric.device
    loop.best, loop.average = _part(tensors, "best.", device), _part(tensors, "average.", device)
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda":
        if "random.cuda" not in tensors:
            raise ValueError(f"{path} was written on a CPU; continue there (device 'cpu') or delete it to start again.")
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
    return about["peak_memory_bytes"]


def _part(tensors: Mapping[str, Tensor], prefix: str, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value.to(device) for name, value in tensors.items() if name.startswith(prefix)}
