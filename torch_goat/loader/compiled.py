"""Sampling compiled by numba; :mod:`torch_goat.loader.vectorised` says what it gives."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from torch_goat.loader import draws
from torch_goat.loader.vectorised import Sampled

_HALF, _ONE = np.uint64(32), np.uint64(1)


def _compiled(function: Callable) -> Any:
    # Kept on disk under a name that changes with the files that it is made of, which numba does not look at.
    files = [Path(__file__), Path(draws.__file__)]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    function.__qualname__ = f"{function.__name__}_{digest}"
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no directory to write to
        return njit(nogil=True)(function)


_STEP = draws.STEP
_mix = njit(nogil=True, inline="always")(draws.mix)


@njit(nogil=True, inline="always")
def _slot(table: np.ndarray, node: np.ndarray, value: int) -> int:
    """Where a node stands in the table of the batch's nodes, or the free slot where it would."""
    mask = table.size - 1
    slot: Any = np.int64(_mix(np.uint64(value)) & np.uint64(mask))
    while table[slot] >= 0 and node[table[slot]] != value:
        slot = (slot + 1) & mask
    return slot


@njit(nogil=True)
def _rebuilt(node: np.ndarray, size: int, wanted: int) -> np.ndarray:
    """A table of slots, at least twice as many as nodes."""
    slots = 64
    while slots < 2 * wanted:
        slots *= 2
    table = np.full(slots, -1, np.int64)
    for place in range(size):
        slot = _slot(table, node, node[place])
        if table[slot] < 0:
            table[slot] = place
    return table


@njit(nogil=True)
def _longer(values: np.ndarray, size: int, wanted: int) -> np.ndarray:
    longer = np.empty(wanted, values.dtype)
    longer[:size] = values[:size]
    return longer


@njit(nogil=True)
def _degrees(ptr: np.ndarray, targets: np.ndarray, most: int) -> tuple[int, int]:
    """How many edges will be drawn, and the largest degree of which not all are."""
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
    """Fills in the edges that are drawn for a hop's targets, the first of which is the batch's node ``begin``."""
    taken = np.zeros(_degrees(ptr, targets, most)[1], np.int64)  # for which target a number was chosen last, from 1
    total = 0
    for place in range(targets.size):
        first = ptr[targets[place]]
        degree = ptr[targets[place] + 1] - first
        if most < 0 or degree <= most:
            for number in range(degree):
                column[total], edge[total] = begin + place, first + number
                total += 1
            continue
        stream = _mix(key + _mix(np.uint64(targets[place])))
        for last in range(degree - most, degree):  # Floyd's algorithm
            stream += _STEP
            pick: Any = np.int64(((_mix(stream) >> _HALF) * (np.uint64(last) + _ONE)) >> _HALF)
            if taken[pick] == place + 1:
                pick = last
            taken[pick] = place + 1
            column[total], edge[total] = begin + place, first + pick
            total += 1


@njit(nogil=True)
def _number(node: np.ndarray, size: int, table: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
    """Replaces every node in ``row`` by its place in the batch, at whose end new ones are put."""
    for place in range(row.size):
        slot = _slot(table, node, row[place])
        if table[slot] < 0:
            if size == node.size:
                node = _longer(node, size, 2 * size)
            node[size], table[slot] = row[place], size
            size += 1
            row[place] = size - 1
            if 2 * size > table.size:
                table = _rebuilt(node, size, 2 * size)
        else:
            row[place] = table[slot]
    return node, size, table


@_compiled
def _sample(ptr: np.ndarray, source: np.ndarray, seeds: np.ndarray, fanout: np.ndarray, key: np.ndarray) -> Sampled:
    size, total, begin = seeds.size, 0, 0
    node = _longer(seeds, size, size + 64)
    table = _rebuilt(node, size, size + 64)
    row, column, edge = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    sizes, counts = np.zeros(fanout.size + 1, np.int64), np.zeros(fanout.size, np.int64)
    sizes[0] = size
    for hop in range(fanout.size):
        targets, end = node[begin:size].copy(), size
        room = total + _degrees(ptr, targets, fanout[hop])[0]
        row, column, edge = _longer(row, total, room), _longer(column, total, room), _longer(edge, total, room)
        _draw(ptr, targets, begin, fanout[hop], key[0], column[total:], edge[total:])
        for place in range(total, room):  # a loop of its own, in which the processor waits for many edges at a time
            row[place] = source[edge[place]]
        node, size, table = _number(node, size, table, row[total:])
        sizes[hop + 1], counts[hop] = size - end, room - total
        total, begin = room, end
    return node[:size].copy(), row, column, edge, sizes, counts


def sample(ptr: np.ndarray, source: np.ndarray, seeds: np.ndarray, fanout: np.ndarray, key: np.ndarray) -> Sampled:
    """As :func:`torch_goat.loader.vectorised.sample`, to the bit."""
    return _sample(ptr, source, seeds, fanout, key)
