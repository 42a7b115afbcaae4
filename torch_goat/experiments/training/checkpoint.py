"""The state of a run between two epochs, as one safetensors file."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from torch_goat.experiments.training.loop import Loop
from torch_goat.experiments.training.result import Epoch

_OLD, _FORMAT = "torch_goat.checkpoint.1", "torch_goat.checkpoint.2"  # the old one has no digest
_ADAM = {"step", "exp_avg", "exp_avg_sq"}
_DIGEST = b'"sha256":"'  # in the header, before the digest


def pack_weights(weights: Mapping[str, Tensor]) -> bytes:
    """The weights of a network as a safetensors file."""
    return save({name: value.cpu().contiguous() for name, value in weights.items()})


def pack_checkpoint(loop: Loop, peak_memory_bytes: int, digests: Mapping[str, str]) -> bytes:
    """Everything that the remaining epochs depend on, with the digests of the orderings that were written so far."""
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
        "digests": dict(digests),
    }
    # Copies: the weights of a network may share memory, those of a safetensors file may not.
    tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    return _sealed(save(tensors, metadata={"state": json.dumps(about), "sha256": "0" * 64}))


def load_checkpoint(content: bytes, loop: Loop) -> tuple[int, dict[str, str]]:
    """Restores a new loop of the same run, and returns the peak memory before it and the digests of its orderings.

    A checkpoint that is damaged or does not fit the loop raises an error of any kind.
    """
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = json.loads(header.get("__metadata__", {}).get("state", "{}"))
    if about.get("format") not in (_OLD, _FORMAT):
        raise ValueError("it has another format")
    if (about["format"] == _FORMAT or _DIGEST in content) and _sealed(content) != content:
        raise ValueError("it does not match its digest")
    tensors = load(content)
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
    complete = all(state.keys() == _ADAM for state in optimizer["state"].values())
    complete &= loop.best.keys() == (loop.network.state_dict().keys() if loop.best_epoch else set())
    if not complete or not 0 <= loop.best_epoch <= len(loop.epochs):  # possible only without a digest
        raise ValueError("it is incomplete")
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda":
        if "random.cuda" not in tensors:
            raise ValueError("it was written on a CPU; continue there with the device 'cpu'")
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
    return about["peak_memory_bytes"], about.get("digests", {})


def _sealed(content: bytes) -> bytes:
    """A file with the digest of its other bytes in its header."""
    before, mark, rest = content.partition(_DIGEST)
    return b"".join([before, mark, sha256(before + rest[64:]).hexdigest().encode(), rest[64:]])


def _part(tensors: Mapping[str, Tensor], prefix: str, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value.to(device) for name, value in tensors.items() if name.startswith(prefix)}
