from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch")


def run_in_batches(
    run: Callable[[Batch], tuple[Tensor, Tensor]], batches: Iterable[Batch], num_nodes: int, device: str | torch.device
) -> tuple[Tensor | None, Tensor]:
    """Computes one layer for all nodes of a graph, over batches of nodes with all their neighbours.

    Layer by layer, this gives the exact output of a network in memory for one batch and the states of all nodes.

    Args:
        run: Maps a batch to the nodes that it computes ``[b]`` and their states after the layer ``[b, F]``.
        batches: The batches.
        num_nodes: The number of nodes of the graph, N.
        device: Where the states of all nodes are kept.

    Returns:
        The states after the layer ``[N, F]``, zero for nodes that no batch computes and ``None`` without batches, and
        the number of batches that computed each node ``[N]``.
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
