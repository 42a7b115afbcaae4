"""Random numbers as functions of what they are for, so that nothing depends on who draws them, or when.

A batch has a key, made of a seed and the nodes that the batch is for. The neighbours of a node are drawn from the key
and the node's number alone, by Floyd's algorithm: as many numbers as there are neighbours to draw, whatever the degree.
"""

import numpy as np

from torch_goat.ops.splitmix import STEP, mix


def batch_key(seed: int, nodes: np.ndarray) -> np.ndarray:
    """The key of a batch ``[1]``: another one for other nodes, and for the same nodes in another order.

    Args:
        seed: The sampler's seed.
        nodes: The nodes that the batch is for ``[B]``.
    """
    place = np.arange(1, nodes.size + 1) * STEP
    seeded = np.array([seed], np.uint64).view(np.int64) * STEP
    return mix(seeded + mix(mix(nodes.astype(np.int64)) + place).sum())
