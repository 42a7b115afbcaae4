"""The sampler of :mod:`torch_goat.data.loader.typed` for a single type and no times, compiled by numba."""

import threading
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from torch_goat.data.loader.typed import Relation, TypedSample
from torch_goat.ops import splitmix
from torch_goat.ops.compiling import compiled

_HALF, _ONE, _STEP = np.uint64(32), np.uint64(1), np.int64(splitmix.STEP)
_mix = njit(nogil=True, inline="always")(splitmix.mix)
_scratch = threading.local()


@njit(nogil=True)
def _longer(values: np.ndarray, size: int, wanted: int) -> np.ndarray:
    longer = np.empty(wanted, values.dtype)
    longer[:size] = values[:size]
    return longer


@njit(nogil=True)
def _degrees(ptr: np.ndarray, targets: np.ndarray, most: int) -> tuple[int, int]:
    """The number of edges to draw, and the largest degree above the fanout."""
    total, widest = 0, 0
    for target in targets:
        degree = ptr[target + 1] - ptr[target]
        if degree > most >= 0:
            widest, degree = max(widest, degree), most
        total += degree
    return total, widest


@njit(nogil=True)
def _draw(
    ptr: np.ndarray, targets: np.ndarray, begin: int, most: int, key: Any, column: np.ndarray, edge: np.ndarray
) -> None:
    """Fills in the edges that are drawn for a hop's targets, the first of which is node ``begin`` of the batch."""
    taken = np.zeros(_degrees(ptr, targets, most)[1], np.int64)  # the last target that chose a number, from 1
    total = 0
    for place in range(targets.size):
        first = ptr[targets[place]]
        degree = ptr[targets[place] + 1] - first
        if most < 0 or degree <= most:
            for number in range(degree):
                column[total], edge[total] = begin + place, first + number
                total += 1
            continue
        stream = _mix(key + _mix(np.int64(targets[place])))
        for last in range(degree - most, degree):  # Floyd's algorithm
            stream += _STEP
            pick: Any = np.int64(((np.uint64(_mix(stream)) >> _HALF) * (np.uint64(last) + _ONE)) >> _HALF)
            if taken[pick] == place + 1:
                pick = last
            taken[pick] = place + 1
            column[total], edge[total] = begin + place, first + pick
            total += 1


@njit(nogil=True)
def _number(node: np.ndarray, size: int, where: np.ndarray, row: np.ndarray) -> int:
    """Replaces every node in ``row`` by its position in the batch, appends new nodes, and returns the new size."""
    for place in range(row.size):
        value = row[place]
        known = where[value]
        new = known == 0
        here = np.int32(size + 1) if new else known  # without branches, which would be mispredicted half of the time
        where[value], node[size], row[place] = here, value, here - 1
        size += new
    return size


@partial(compiled, files=[__file__, splitmix.__file__])
def _sample(
    ptr: np.ndarray, source: np.ndarray, seeds: np.ndarray, fanout: np.ndarray, key: np.ndarray, where: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    size, total, begin, node = seeds.size, 0, 0, seeds
    for place in range(size):
        if where[seeds[place]] == 0:
            where[seeds[place]] = place + 1
    row, column, edge = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    sizes, counts = np.zeros(fanout.size + 1, np.int64), np.zeros(fanout.size, np.int64)
    sizes[0] = size
    for hop in range(fanout.size):
        targets, end = node[begin:size].copy(), size
        room = total + _degrees(ptr, targets, fanout[hop])[0]
        row, column, edge = _longer(row, total, room), _longer(column, total, room), _longer(edge, total, room)
        _draw(ptr, targets, begin, fanout[hop], key[0], column[total:], edge[total:])
        for place in range(total, room):  # a separate loop, so that the processor can overlap the memory accesses
            row[place] = source[edge[place]]
        node = _longer(node, size, size + room - total + 1)
        size = _number(node, size, where, row[total:])
        sizes[hop + 1], counts[hop] = size - end, room - total
        total, begin = room, end
    for place in range(size):
        where[node[place]] = 0
    return node[:size].copy(), row, column, edge, sizes, counts


def sample(relation: Relation, seeds: np.ndarray, key: np.ndarray) -> TypedSample:
    """What ``sample_typed`` returns for this relation alone; every thread keeps 4 bytes per node of the graph."""
    ptr, source = relation.csc.ptr.numpy(), relation.csc.source.numpy()
    where = getattr(_scratch, "where", None)  # the position of each node in the batch, from 1; all 0 between batches
    if where is None or where.size < ptr.size:
        where = _scratch.where = np.zeros(ptr.size, np.int32)
    fanout = np.array(relation.fanout, np.int64)
    node, row, column, edge, sizes, counts = _sample(ptr, source, seeds, fanout, key, where)
    return TypedSample({None: node}, {}, [(row, column, edge)], {None: sizes.tolist()}, [counts.tolist()])
