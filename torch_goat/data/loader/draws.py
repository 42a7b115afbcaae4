"""Random numbers as functions of what they are for, so that nothing depends on who draws them, or when.

A batch has a key, made of a seed and the nodes that the batch is for. The neighbours of a node are drawn from the key
and the node's number alone, by Floyd's algorithm: as many numbers as there are neighbours to draw, whatever the degree.
"""

from typing import Any

import numpy as np

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def mix(value: Any) -> Any:
    """The finalizer of splitmix64: every bit of the result depends on every bit of the value (arrays of ``uint64``)."""
    value = (value ^ (value >> _SHIFTS[0])) * _FIRST
    value = (value ^ (value >> _SHIFTS[1])) * _SECOND
    return value ^ (value >> _SHIFTS[2])


def batch_key(seed: int, nodes: np.ndarray) -> np.ndarray:
    """The key of a batch ``[1]``: another one for other nodes, and for the same nodes in another order.

    Args:
        seed: The sampler's seed.
        nodes: The nodes that the batch is for ``[B]``.
    """
    place = np.arange(1, nodes.size + 1, dtype=np.uint64) * STEP
    return mix(np.array([seed], np.uint64) * STEP + mix(mix(nodes.astype(np.uint64)) + place).sum(dtype=np.uint64))
