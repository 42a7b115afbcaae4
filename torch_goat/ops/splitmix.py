"""The hash behind every fixed draw: of neighbours to keep, of random orders, and of sampled mini-batches."""

from typing import Any

STEP = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed 64-bit integer, like all constants here


def mix(value: Any) -> Any:
    """The finalizer of splitmix64, in which every bit of the result depends on every bit of the value.

    All arithmetic is on signed 64-bit integers that wrap around, so that int64 tensors, int64 NumPy arrays and int64
    scalars compiled by numba give the same numbers. The masks turn arithmetic shifts into logical ones.
    """
    value = (value ^ (value >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    value = (value ^ (value >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return value ^ (value >> 31 & 0x1FFFFFFFF)
