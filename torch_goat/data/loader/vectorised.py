"""Sampling with NumPy alone, hop by hop; the compiled sampler gives the same numbers."""

import numpy as np

from torch_goat.ops.splitmix import STEP, mix

Sampled = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def sample(ptr: np.ndarray, source: np.ndarray, seeds: np.ndarray, fanout: np.ndarray, key: np.ndarray) -> Sampled:
    """Draws neighbours of the seeds, neighbours of those, and so on.

    Args:
        ptr: The edges into each node ``[N + 1]``.
        source: Their sources ``[E]``.
        seeds: Where to begin ``[B]``.
        fanout: The most neighbours of each node of a hop; all of them if below 0 ``[hops]``.
        key: The batch's key ``[1]``.

    Returns:
        The nodes, seeds first; of each edge the source and the target as places among them, and its place in
        ``source``, by target; and the numbers of new nodes (of seeds first) and of edges per hop.
    """
    node, begin = seeds, 0
    edges: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    sizes = [seeds.size]
    for most in fanout:
        targets = node[begin:]
        place, count = _draw(ptr, targets, int(most), key)
        new, row = _number(node, source[place].astype(np.int64))
        edges.append(place)
        rows.append(row)
        columns.append(np.repeat(np.arange(begin, node.size), count))
        begin, node = node.size, np.concatenate([node, new])
        sizes.append(new.size)
    counts = [place.size for place in edges]
    joined = (np.concatenate(parts) for parts in (rows, columns, edges))
    return node, *joined, np.array(sizes), np.array(counts)  # type: ignore[return-value]


def _draw(ptr: np.ndarray, targets: np.ndarray, most: int, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of the edges that were drawn, target by target, and how many there are of each."""
    first, degree = ptr[targets], ptr[targets + 1] - ptr[targets]
    count = degree if most < 0 else np.minimum(degree, most)
    start = np.cumsum(count) - count  # [T]
    place = np.arange(count.sum()) + np.repeat(first - start, count)  # all neighbours, in their order
    hubs = np.flatnonzero(degree > count)
    if hubs.size:
        slots = start[hubs, None] + np.arange(most)
        place[slots] = first[hubs, None] + _floyd(targets[hubs], degree[hubs], most, key)
    return place, count


def _floyd(targets: np.ndarray, degree: np.ndarray, most: int, key: np.ndarray) -> np.ndarray:
    """A uniform choice of ``most`` numbers below each target's degree, without replacement ``[T, most]``."""
    stream = mix(key + mix(targets.astype(np.int64)))  # [T]
    chosen = np.empty((targets.size, most), np.int64)
    for number in range(most):
        last = degree - most + number  # [T]
        stream = stream + STEP
        draw = mix(stream).view(np.uint64) >> np.uint64(32)
        pick = ((draw * (last + 1).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
        taken = (chosen[:, :number] == pick[:, None]).any(axis=1)
        chosen[:, number] = np.where(taken, last, pick)
    return chosen


def _number(node: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nodes that are new, in the order in which they were found, and every found node's place in the batch."""
    known = node.size
    _, first, inverse = np.unique(np.concatenate([node, found]), return_index=True, return_inverse=True)
    fresh = np.sort(first[first >= known])
    place = np.where(first < known, first, known + np.searchsorted(fresh, first))
    return found[fresh - known], place[inverse.reshape(-1)[known:]]
