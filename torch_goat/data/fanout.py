from collections.abc import Sequence
from typing import SupportsIndex


def check_fanout(fanout: Sequence[int]) -> tuple[int, ...]:
    """Validates the number of neighbours of each hop."""
    if isinstance(fanout, int):
        raise TypeError(f"fanout must be a list of numbers, one for each hop, got {fanout}; pass [{fanout}] for one.")
    values = tuple(fanout)
    if not values:
        raise ValueError("fanout is empty; give the maximum number of neighbours of every layer, or -1 for all.")
    for most in values:
        if isinstance(most, bool) or not isinstance(most, SupportsIndex) or (most < 1 and most != -1):
            raise ValueError(f"fanout must contain positive integers, or -1 for all neighbours, got {most!r}.")
    return tuple(map(int, values))
