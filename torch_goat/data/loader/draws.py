"""The sampler's random draws, with NumPy; the compiled sampler draws the same neighbours.

Draws are hashes, so that they depend neither on the process nor on the order of calls: a batch has a key, computed from
the seed and its nodes, and the neighbours of a node are drawn from the key and the node's number alone. Floyd's
algorithm needs one number per drawn neighbour, whatever the degree.
"""

import numpy as np

from torch_goat.ops.splitmix import STEP, mix


def batch_key(seed: int, nodes: np.ndarray) -> np.ndarray:
    """The key ``[1]`` of a batch of nodes ``[B]``; it depends on their order."""
    place = np.arange(1, nodes.size + 1) * STEP
    start = np.array([seed], np.uint64).view(np.int64) * STEP
    return mix(start + mix(mix(nodes.astype(np.int64)) + place).sum())


def generator_seed(seed: int, numbers: np.ndarray) -> int:
    """A seed for PyTorch's generators that depends on a seed and on several numbers in their order."""
    return int(batch_key(seed, numbers).view(np.uint64)[0] >> np.uint64(1))


def draw(
    first: np.ndarray, degree: np.ndarray, targets: np.ndarray, most: int, key: np.ndarray, last: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the drawn edges, target by target, and their number per target ``[T]``.

    Target number ``targets[t]`` has ``degree[t]`` edges from ``first[t]`` on; ``last`` takes the last of them.
    """
    count = degree if most < 0 else np.minimum(degree, most)
    start = np.cumsum(count) - count  # [T]
    begin = first + degree - count if last else first
    place = np.arange(count.sum()) + np.repeat(begin - start, count)  # neighbours in their order
    hubs = np.flatnonzero(degree > count)
    if hubs.size and not last:
        slots = start[hubs, None] + np.arange(most)
        place[slots] = first[hubs, None] + _floyd(targets[hubs], degree[hubs], most, key)
    return place, count


def _floyd(targets: np.ndarray, degree: np.ndarray, most: int, key: np.ndarray) -> np.ndarray:
    """A uniform choice of ``most`` numbers below each target's degree, without replacement ``[T, most]``."""
    stream = mix(key + mix(targets.astype(np.int64)))  # [T]
    chosen = np.empty((targets.size, most), np.int64)
    for drawn in range(most):
        last = degree - most + drawn  # [T]
        stream = stream + STEP
        draw = mix(stream).view(np.uint64) >> np.uint64(32)
        pick = ((draw * (last + 1).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
        taken = (chosen[:, :drawn] == pick[:, None]).any(axis=1)
        chosen[:, drawn] = np.where(taken, last, pick)
    return chosen


def number(node: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The new nodes in the order in which they were found, and the position of every found node in the batch."""
    known = node.size
    _, first, inverse = np.unique(np.concatenate([node, found]), return_index=True, return_inverse=True)
    fresh = np.sort(first[first >= known])
    place = np.where(first < known, first, known + np.searchsorted(fresh, first))
    return found[fresh - known], place[inverse.reshape(-1)[known:]]
