from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch")


def run_in_batches(
    run: Callable[[Batch], tuple[Tensor, Tensor]], batches: Iterable[Batch], num_nodes: int, device: str | torch.device
) -> tuple[Tensor | None, Tensor]:
    """Computes one layer for all nodes of a graph, over batches of nodes with all their neighbours.

    ``run`` maps a batch to its nodes ``[b]`` and their states after the layer ``[b, F]``. Returns the states of all
    nodes ``[N, F]`` (zero if no batch has a node, ``None`` without batches) and how many batches had each node ``[N]``.
    """
    states, count = None, torch.zeros(num_nodes, dtype=torch.long)
    for batch in batches:
        nodes, rows = run(batch)
        nodes, rows = nodes.cpu(), rows.to(device)
        if states is None:
            states = rows.new_zeros(num_nodes, rows.size(1))
        states[nodes.to(device)] = rows
        count[nodes] += 1
    return states, count
