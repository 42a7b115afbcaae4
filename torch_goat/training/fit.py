import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data


class FitResult(NamedTuple):
    """What a training run came to."""

    test_accuracy: float  # at the epoch of the lowest validation loss
    best_epoch: int
    seconds: float


def fit(
    model: Module,
    data: Data,
    *,
    epochs: int,
    learning_rate: float = 0.005,
    weight_decay: float = 0.0,
    progress: Callable[[int, float], None] | None = None,
) -> FitResult:
    """Trains a node classifier on the whole graph at once and reads the test nodes where validation was best.

    Args:
        model: Maps ``(x, edge_index)`` to class scores.
        data: A graph with ``y``, ``train_mask``, ``val_mask`` and ``test_mask``.
        epochs: The number of epochs.
        learning_rate: Adam's learning rate.
        weight_decay: Adam's weight decay.
        progress: Called after each epoch with its number, from 1, and the validation accuracy.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    start = time.perf_counter()
    best_loss, best_epoch, test_accuracy = float("inf"), 0, 0.0
    for epoch in range(1, epochs + 1):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            out = model(data.x, data.edge_index)
            loss = float(F.cross_entropy(out[data.val_mask], data.y[data.val_mask]))
        if loss < best_loss:
            best_loss, best_epoch, test_accuracy = loss, epoch, _accuracy(out, data.y, data.test_mask)
        if progress is not None:
            progress(epoch, _accuracy(out, data.y, data.val_mask))
    return FitResult(test_accuracy, best_epoch, time.perf_counter() - start)


def _accuracy(out: Tensor, y: Tensor, mask: Tensor) -> float:
    return float((out[mask].argmax(dim=-1) == y[mask]).float().mean())
