"""The ragged RNN in plain PyTorch: step by step, or as a scan if the cell is one."""

import sys

import torch
from torch import Tensor

from torch_goat.ops.ragged_rnn.interface import SCANS, Gradients, Inputs
from torch_goat.ops.ragged_rnn.torch import scan, steps

DESCRIPTION = "all heads and directions batched in plain PyTorch, on any device"


def max_hidden(arithmetic: torch.dtype) -> int:
    return sys.maxsize


def devices() -> tuple[str, ...]:
    return ("cpu", "cuda")


def unavailable() -> str | None:
    return None


def forward(kind: str, inputs: Inputs, save: bool) -> tuple[Tensor, list[Tensor]]:
    return (scan if kind in SCANS else steps).forward(kind, inputs, save)


def backward(kind: str, grad: Tensor, inputs: Inputs, saved: list[Tensor]) -> Gradients:
    return (scan if kind in SCANS else steps).backward(kind, grad, inputs, saved)


def saved_like(kind: str, inputs: Inputs) -> list[Tensor]:
    return (scan if kind in SCANS else steps).saved_like(kind, inputs)
