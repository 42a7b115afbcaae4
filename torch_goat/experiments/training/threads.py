from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

SMALL: Final = 5000  # edges of a graph on which one thread trains as fast as several


@contextmanager
def threads_for(edges: int) -> Iterator[None]:
    """Uses one CPU thread for a small graph: several would only wait, for each other and for other programs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if edges <= SMALL else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
